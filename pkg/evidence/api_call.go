package evidence

import "time"

// An APICall is how often the kubelet has made a request of the API server and how that
// was answered, since the kubelet was started (rest_client_requests_total,
// k8s.io/component-base/metrics/prometheus/restclient). It tells no object. Of pods the
// kubelet asks for the final delete with DELETE, and writes their status with PATCH
// (syncPod, pkg/kubelet/status/status_manager.go), both again after ten seconds when
// it was refused.
type APICall struct {
	// Method is that of HTTP, and Code the status of the answer, as in 403, or
	// NoAnswer.
	Method string `json:"method"`
	Code   string `json:"code"`
	Counter
}

// Counts are what the kubelet counts of its work.
type Counts struct {
	Volumes []VolumeCall
	API     []APICall
	Claims  []ClaimCall
	// Listed is as in KubeletService.
	Listed time.Time
}

// The methods of an APICall, and its code when there was no answer.
const (
	MethodDelete = "DELETE"
	MethodPatch  = "PATCH"
	NoAnswer     = "<error>"
)

// Refused reports whether the API server answered that it does not do what it was asked
// for: an admission policy or webhook, RBAC and the API's own validation answer so. It
// is not for what a request meets that is right and comes at the wrong time (404, 409, 408,
// 429), nor for one of somebody who is not known (401).
func (c *APICall) Refused() bool {
	switch c.Code {
	case "401", "404", "408", "409", "429":
		return false
	}
	return len(c.Code) == 3 && c.Code[0] == '4'
}

// Trouble reports whether the API server, or the way to it, is what failed: a webhook
// that does not answer counts too (500).
func (c *APICall) Trouble() bool {
	switch c.Code {
	case NoAnswer, "401", "408", "429":
		return true
	}
	return len(c.Code) == 3 && c.Code[0] == '5'
}

// A Refusal is what has kept the last update of the pod's status by nodeagent itself from being
// written. It need not look at requests of others.
type Refusal struct {
	// Webhook is the name of a webhook, and Policy that of a ValidatingAdmissionPolicy, with that
	// of its Binding: one of both is "".
	Webhook string `json:"webhook,omitempty"`
	Policy  string `json:"policy,omitempty"`
	Binding string `json:"binding,omitempty"`
	// Uncalled reports whether the API server could not call the webhook, and so refused.
	Uncalled bool `json:"uncalled,omitempty"`
	// Code is the HTTP status of the answer, as in 403.
	Code string `json:"code,omitempty"`
	// At is the time of the reading after which it was tried.
	At time.Time `json:"at,omitzero"`
}

func (c *APICall) counter() (counts string, n *Counter) { return c.Method + " " + c.Code, &c.Counter }
