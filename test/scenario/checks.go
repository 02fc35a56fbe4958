package scenario

import "github.com/nodeagent-io/nodeagent/test/bed"

// Checks lists how the agent itself is tried, beside the incidents.
func Checks() []bed.Check {
	return []bed.Check{
		{Name: "stolen-token", Tier: bed.Sentinel, Story: "who has the agent's token does what it does not allow"},
		{Name: "same-name-again", Tier: bed.Sentinel, Story: "a pod of the same name follows one that was deleted by force"},
		{Name: "namespace-deleted", Tier: bed.Sentinel, Story: "a namespace that takes no Events is deleted with its pods"},
		{Name: "termination-phases", Tier: bed.Sentinel, Story: "the parts of a healthy termination are counted"},
		{Name: "capture-by-copy", Tier: bed.Sentinel, Story: "a copy of the program captures on a node where a process looks like the agent"},
		{Name: "why-terminating", Tier: bed.Sentinel, Story: "kubectl why-terminating is asked about pods that are stuck for several reasons"},
		{Name: "why-lost-node", On: bed.ANode, Story: "kubectl why-terminating is asked about pods of a node whose kubelet is stopped, then of one that is " +
			"deleted, then of one without an agent"},
		{Name: "deleted-again", Story: "a pod is deleted with a grace period of minutes, and again with one of seconds, which the kubelet does not keep to"},
		{Name: "why-namespace", On: bed.TheCluster, Story: "kubectl why-terminating is asked about a namespace with a dead APIService, and watches while " +
			"the API server is stopped"},
		{Name: "policy-unbound", On: bed.ANode, Story: "the binding of an admission policy is deleted while the agent runs"},
		{Name: "alert-life", Tier: bed.Sentinel, Story: "the alert about a stuck pod is pending, fires, reaches a person and is resolved, with a real " +
			"Prometheus and Alertmanager"},
		{Name: "alerts-by-cause", On: bed.TheCluster, Story: "an agent is silent, containerd is stopped, a pod is deleted by force, a policy is unbound, a " +
			"node is dead, and many pods have one cause: each has its alert"},
		{Name: "dashboards", On: bed.TheCluster, Story: "a real Prometheus is asked all queries of the dashboards, while all is well and while pods are " +
			"stuck"},
		{Name: "agent-killed", On: bed.TheCluster, Story: "pods are stuck in five layers while the agent is killed, its DaemonSet is rolled out, " +
			"and containerd and the kubelet are restarted"},
		{Name: "agent-ends-in-time", On: bed.ANode, Story: "the agent ends within a second of SIGTERM"},
		{Name: "api-server-stopped", On: bed.TheCluster, Story: "the API server is stopped while a pod becomes stuck"},
		{Name: "old-kernel", On: bed.TheCluster, Story: "the agents run where openat2 is refused, as before Linux 5.6"},
		{Name: "other-paths", On: bed.TheCluster, Story: "containerd's socket is where K3s has it, and the kubelet's directory has a link in its name, " +
			"for the manifest and for the chart with platform k3s; then an agent finds neither"},
		{Name: "capabilities", On: bed.TheCluster, Story: "each of the agent's capabilities is taken away in turn, and captures show what is lost"},
		{Name: "chart-values", On: bed.TheCluster, Story: "the API server checks what the chart makes of each set of values, strictly"},
		{Name: "chart-upgraded", On: bed.TheCluster, Story: "the chart is installed over the release before, upgraded and uninstalled while a pod is stuck; " +
			"each agent runs with the other one's policies"},
		{Name: "chart-restricted", On: bed.TheCluster, Story: "the chart is installed with as little as it can work with, in a namespace of its own, " +
			"and somebody has its token"},
		{Name: "proc-tests", On: bed.AKernel, Story: "the unit tests of pkg/proc, which read real hung processes, run on the node's kernel"},
		{Name: "starved-node", On: bed.TheCluster, Story: "a node has no processor to spare"},
	}
}
