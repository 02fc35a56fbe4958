package api

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// FinalDeleteRejected is a pod that has terminated on its node, and whose object the kubelet
// is not allowed to delete.
var FinalDeleteRejected = &diagnose.Rule{
	Cause:  "FinalDeleteRejected",
	Phases: []diagnose.Phase{diagnose.FinalDelete},
	Needs:  []evidence.Source{evidence.Processes, evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.Volumes, evidence.APICalls},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "the API server rejects the kubelet's delete of the pod",
		Who:     diagnose.ByPolicy,
		Message: "the API server rejects the kubelet's delete of {whose} (HTTP {code}): an admission policy, webhook or RBAC forbids it",
		Seen: []string{
			"The kubelet got HTTP {code} for at least two DELETE requests since the pod was finished on the node",
			"{counted}",
			"All containers have exited, and no process, mount, volume directory or cgroup of the pod is left on the node",
		},
		First: "{look} names what rejects it. Its owner may allow the kubelets (group system:nodes) to delete pods",
		Avoid: "deleting that policy or webhook (may guard more)",
		Phrases: map[string][]diagnose.Choice{"whose": {
			{Variant: others, Text: "this pod or another pod of the node"}, {Text: "the pod"},
		}, "counted": {
			{Variant: others, Text: "The kubelet counts requests by method, not by object, and may delete other pods too: which one is rejected is not known"},
			{Text: "The kubelet counts requests by method, not by object: that they were for this pod is inferred"},
		}, "look": {
			{Variant: others, Text: "the kubelet's log on the node (command under Fix)"}, {Text: "the dry run under Fix (cluster rights)"},
		}, "log": {
			{Text: "journalctl -u kubelet --since=-10min | grep 'Failed to delete status for pod'"},
		}, "try": {
			{Text: "kubectl delete --dry-run=server -n {podnamespace} pod {podname} --force --as=system:node:{node} --as-group=system:nodes"},
			{Text: "a kubectl delete with --dry-run=server --force --as=system:node:NODE --as-group=system:nodes"},
		}},
		Meaning: "A pod's object stays until the kubelet has finished and deletes it with a grace period of 0. " +
			"It sends this request as the user system:node:NODE of the group system:nodes. " +
			"Something in the API server does not allow it: a ValidatingAdmissionPolicy, a validating webhook, or RBAC. " +
			"The kubelet retries every ten seconds, and reports the error only in its log.",
		Evidence: []string{
			"status.phase is terminal (Succeeded or Failed), and metadata.deletionGracePeriodSeconds is not 0.",
			"The node has no process, mount, volume directory, cgroup or running container of the pod.",
			"Since then, the kubelet's DELETE requests were rejected at least twice, the last time less than a minute ago " +
				"(rest_client_requests_total of the kubelet, code 4xx).",
			"Codes 404, 409 and 429 do not count: they answer a request that comes at the wrong time.",
			"It is inferred, because the kubelet counts requests by method, not by object. It also deletes mirror pods, ResourceSlices and other pods.",
			"The message names \"this pod or another pod of the node\" in two cases: " +
				"another pod has waited for its delete with grace period 0 since then, or the node has static pods.",
			"Not reported while the API server or a webhook does not answer (5xx), or while the API server does not know the kubelet (401).",
			"Not reported if the kubelet is part of another program, as in K3s and MicroK8s.",
		},
		Remedy: "On the node, read the error, which names the policy or webhook: {log}. " +
			"Or reproduce it as an administrator, which deletes nothing: {try}. " +
			"Then allow DELETE of pods for the group system:nodes in that policy, webhook or RBAC role. The kubelet retries within ten seconds.",
		Danger: "A force delete by an administrator removes only this object: every other pod that the rule covers stays stuck. " +
			"Do not delete a whole webhook or policy: it may guard other things.",
	},
	Recurs: fact.UncountedRequests,
	Check: func(p *fact.View) diagnose.Result {
		if !p.ContainersEnded() || p.GracePeriodSeconds == 0 || p.Mirror || !p.NothingLeft() {
			return diagnose.Result{}
		}
		c := fact.RefusedByAPI(p, evidence.MethodDelete)
		if c == nil {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: ofRequest(p, c)}
		// The rejected request may have been for another pod, which has been deleted since.
		if p.Node.Deletable != 1 || !c.RoseBefore.After(p.Node.DeletablesUntil) {
			f.Variants = []string{others}
		}
		return diagnose.Found(f)
	},
}

// others is the variant for a node with other pods that the kubelet may be deleting with
// grace period 0.
const others = "Others"

// ofRequest describes a request of the kubelet about a pod.
func ofRequest(p *fact.View, c *evidence.APICall) diagnose.Objects {
	return diagnose.Objects{Pod: p.Namespace + "/" + p.Name, Node: p.Node.Name, Code: c.Code}
}
