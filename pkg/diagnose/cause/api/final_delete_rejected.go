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
		Remedy: "On the node, read the error, which names the policy or webhook: {log}. " +
			"Or reproduce it as an administrator, which deletes nothing: {try}. " +
			"Then allow DELETE of pods for the group system:nodes in that policy, webhook or RBAC role. The kubelet retries within ten seconds.",
		Danger: "A force delete by an administrator removes only this object: every other pod that the rule covers stays stuck. " +
			"Do not delete a whole webhook or policy: it may guard other things.",
	},
	Recurs: fact.UncountedRequests,
	By: diagnose.By[*evidence.APICall]{
		From: []evidence.Source{evidence.APICalls}, Partly: ofKubelet,
		Of: requests(evidence.MethodDelete),
		Facts: []diagnose.Fact[*evidence.APICall]{
			{Says: "status.phase is terminal (Succeeded or Failed).", Pod: diagnose.IfPod(isTerminal)},
			{Says: "metadata.deletionGracePeriodSeconds is not 0.", Pod: diagnose.IfPod(isNotFinal)},
			{Says: "The pod is no mirror pod of a static pod.", Pod: diagnose.IfPod(isNoMirror)},
			{
				Says: "The node has no process, mount, volume directory, cgroup or running container of the pod.",
				Pod:  diagnose.IfPod(nothingLeft),
				From: []evidence.Source{evidence.Processes, evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.Volumes},
			},
			{
				Says: "The API server has rejected DELETE requests of the kubelet (code 4xx). " +
					"Codes 401, 404, 408, 409 and 429 do not count: they answer a request that comes at the wrong time, or from an unknown client.",
				Is: diagnose.If(isRefused),
			},
			counted, lately, ownProgram, answers,
			{Says: "It is inferred, because the kubelet counts requests by method, not by object. It also deletes mirror pods, ResourceSlices and other pods."},
			{Says: "The message names \"this pod or another pod of the node\" in two cases: " +
				"another pod has waited for its delete with grace period 0 since then, or the node has static pods."},
		},
		Tell: lastCounted(tellDeleteRejected),
	},
}

func isTerminal(p *fact.View) bool { return p.ContainersEnded() }

func isNotFinal(p *fact.View) bool { return p.GracePeriodSeconds != 0 }

func isNoMirror(p *fact.View) bool { return !p.Mirror }

func nothingLeft(p *fact.View) bool { return p.NothingLeft() }

func isRefused(_ *fact.View, c *evidence.APICall) bool { return c.Refused() }

func tellDeleteRejected(p *fact.View, c *evidence.APICall) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: ofRequest(p, c)}
	// The rejected request may have been for another pod, which has been deleted since.
	if !p.Node.Deletes().Since(c.RoseBefore) {
		f.Variants = []string{others}
	}
	return f
}

// others is the variant for a node with other pods that the kubelet may be deleting with
// grace period 0.
const others = "Others"
