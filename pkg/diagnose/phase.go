package diagnose

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// A Phase is a stage of a pod's termination: who holds the baton.
type Phase string

// The phases, in the order in which a termination goes through them.
const (
	Delivery         Phase = "Delivery"         // the kubelet has not been told, or does not act
	Startup          Phase = "Startup"          // the kubelet is still starting the pod
	PreStop          Phase = "PreStop"          // a preStop hook runs
	StopSignal       Phase = "StopSignal"       // the stop signal is sent, the processes live on
	Kill             Phase = "Kill"             // SIGKILL is sent, the kernel has not ended them
	Runtime          Phase = "Runtime"          // the processes are gone, or containerd or a shim does not answer
	Sandbox          Phase = "Sandbox"          // the sandbox and its network are taken down
	DynamicResources Phase = "DynamicResources" // a driver has to unprepare a resource claim
	Volumes          Phase = "Volumes"          // volumes are unmounted
	PodCgroup        Phase = "PodCgroup"        // the pod's cgroup is removed
	FinalDelete      Phase = "FinalDelete"      // the kubelet asks the API server for the final delete
	Finalizers       Phase = "Finalizers"       // nothing is left on the node, a finalizer is
	PhaseUnknown     Phase = "Unknown"          // the evidence does not tell
)

func locate(p *evidence.Pod) Phase { return PhaseUnknown }
