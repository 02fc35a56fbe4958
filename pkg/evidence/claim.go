package evidence

import "slices"

// A Claim is a resource claim that the kubelet has had drivers prepare for the pod, or has
// begun to, and has not had unprepared, by its checkpoint dra_manager_state
// (pkg/kubelet/cm/dra/state). It does so when all containers have ended, and says only then
// that they have (SyncTerminatingPod, pkg/kubelet/kubelet.go).
type Claim struct {
	Name string `json:"name"`
	// Shared reports whether another pod of the node has the claim, too: drivers are called
	// only for the last one.
	Shared  bool          `json:"shared,omitempty"`
	Drivers []ClaimDriver `json:"drivers,omitempty"`
}

// A ClaimDriver is a DRA driver with devices in a claim.
type ClaimDriver struct {
	Name string `json:"name"`
	// Unregistered reports whether the kubelet's directory plugins_registry has no socket
	// that begins with the driver's name, as that of k8s.io/dynamic-resource-allocation does.
	Unregistered bool `json:"unregistered,omitempty"`
	// Pod and PodState are as DriverPod and DriverPodState of a Volume.
	Pod      string `json:"pod,omitempty"`
	PodState string `json:"podState,omitempty"`
}

// A ClaimCall is how often the kubelet has tried to have resource claims unprepared, and how
// that ended, since the kubelet was started (dra_operations_duration_seconds and
// dra_grpc_operations_duration_seconds, pkg/kubelet/metrics/metrics.go). It tells no pod.
type ClaimCall struct {
	// Method is Unprepare, the whole attempt for all claims of a pod, with Status
	// ClaimsSucceeded or ClaimsFailed; or NodeUnprepare, the call of Driver, with Status its
	// gRPC code. A driver can answer OK and name an error about a claim in the answer.
	Method string `json:"method"`
	Driver string `json:"driver,omitempty"`
	Status string `json:"status"`
	Counter
}

// The methods of a ClaimCall, and how a whole attempt ends.
const (
	Unprepare       = "UnprepareResources"
	NodeUnprepare   = "NodeUnprepareResources"
	ClaimsSucceeded = "success"
	ClaimsFailed    = "error"
)

// sameClaims reports whether two readings show the same claims, and no driver that has come
// back.
func sameClaims(now, before []Claim) bool {
	return slices.EqualFunc(now, before, func(a, b Claim) bool {
		return a.Name == b.Name && a.Shared == b.Shared && slices.EqualFunc(a.Drivers, b.Drivers, func(a, b ClaimDriver) bool {
			return a.Name == b.Name && (a.Unregistered || !b.Unregistered) && (a.PodState != DriverRunning || b.PodState == DriverRunning)
		})
	})
}

func (c *ClaimCall) counter() (counts string, n *Counter) {
	return c.Method + " " + c.Driver + " " + c.Status, &c.Counter
}
