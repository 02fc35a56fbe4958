package api

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StatusUpdateRejected is a pod that has terminated on its node, and whose status the kubelet
// is not allowed to update. It deletes the object only when the phase is terminal.
var StatusUpdateRejected = &diagnose.Rule{
	Cause:  "StatusUpdateRejected",
	Phases: []diagnose.Phase{diagnose.FinalDelete},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "the API server rejects the kubelet's pod status updates",
		Who:     diagnose.ByPolicy,
		Message: "the API server {rejects} the kubelet's pod status updates (HTTP {code}){why}. The pod stays until an update succeeds",
		Seen: []string{
			"Nothing of the pod is left on the node, but its status still reports a running container",
			"The kubelet got HTTP {code} for at least two PATCH requests since then",
			"The API server does not accept nodeagent's own update of this pod's status either, because of {refuser}",
			"The kubelet counts requests by method, not by object: that they were for this pod is inferred",
		},
		First: "{check}",
		Avoid: "deleting that policy or webhook (may guard more)",
		Phrases: map[string][]diagnose.Choice{
			"rejects": {{Variant: diagnose.Uncalled, Text: "does not accept"}, {Text: "rejects"}},
			"why":     {{Variant: diagnose.Uncalled, Text: " because it cannot call {refuser}"}, {Text: ""}},
			"check": {
				{Text: "ask the owner of {refuser} (it rejects nodeagent's update too) to allow the kubelets (group system:nodes) to update pods/status"},
				{Text: "search the kubelet's log on the node (see Fix) for 'Failed to update status for pod'. " +
					"The owner of the rule it names may allow the kubelets (group system:nodes) to update pods/status"},
			},
			"log": {{Text: "journalctl -u kubelet --since=-10min | grep 'Failed to update status for pod'"}},
		},
		Meaning: "The kubelet writes into the pod's status that all containers have exited, and deletes the object after that. " +
			"Something in the API server does not allow the update of pods/status. " +
			"The reason is a ValidatingAdmissionPolicy, a webhook (also one that changes a field that must not change), RBAC, or the API's own validation. " +
			"The kubelet retries every ten seconds, and reports the error only in its log.",
		Remedy: "On the node, read the error, which names the policy or webhook: {log}. " +
			"Then allow UPDATE of pods/status for the group system:nodes in that policy, webhook or RBAC role. The kubelet retries within ten seconds.",
		Danger: "A force delete by an administrator removes only this object. Every other pod that the rule covers has a wrong status " +
			"too, and so misleads Services and controllers. " +
			"Do not delete a whole webhook or policy: it may guard other things.",
		Families: []diagnose.Family{{
			Name: webhookFails,
			Meaning: "The API server has to call a webhook before it writes the status of pods. " +
				"It cannot reach the webhook, does not accept its certificate or gets no answer, and then rejects the update (failurePolicy: Fail). " +
				"Most often the webhook's own pods do not run, perhaps because their status cannot be written either.",
			First: "ask the webhook's owner to get its pods Ready (cluster rights; Fix shows its Service). " +
				"If they are Ready: ask about its caBundle",
			Avoid: "deleting the whole webhook (may guard more)",
			Remedy: "Find the webhook's Service: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml. " +
				"Check that its pods run and respond, and that its certificate (caBundle) is valid. " +
				"A webhook need not check pods/status: leave that resource out of its rules. The kubelet retries within ten seconds.",
		}},
	},
	Recurs: fact.UncountedRequests,
	By: diagnose.By[*evidence.APICall]{
		From: []evidence.Source{evidence.APICalls}, Partly: ofKubelet,
		Of: requests(evidence.MethodPatch),
		Facts: []diagnose.Fact[*evidence.APICall]{
			{Says: "status.phase is not terminal (Succeeded or Failed).", Pod: diagnose.IfPod(isNotTerminal)},
			{Says: "The pod's status reports a running container.", Pod: diagnose.IfPod(fact.SaidToRun)},
			{Says: "The pod is no mirror pod of a static pod.", Pod: diagnose.IfPod(isNoMirror)},
			{
				Says: "The node has no process, mount, cgroup or running container of the pod.",
				Pod:  diagnose.IfPod(nothingLeft),
				From: []evidence.Source{evidence.Processes, evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.Volumes},
			},
			{Says: "A reading has found the pod's cgroup before, or the kubelet ran before the deletion. A node that was restarted has no such cgroup."},
			{
				Says: "The API server has rejected PATCH requests of the kubelet (code 4xx). " +
					"Codes 401, 404, 408, 409 and 429 do not count. " +
					"Code 500, for a webhook that the API server could not call, counts only in one case: " +
					"the same has lately kept nodeagent from writing its own condition into this pod's status.",
				Is: diagnose.If(isRefusedOrUncalled),
			},
			counted, lately, ownProgram, answers,
			{Says: "If something has rejected nodeagent's update with the same code, it is named. " +
				"It may check the requests of nodeagent and not those of the kubelet."},
			{Says: "It is inferred, because the kubelet counts requests by method, not by object."},
		},
		Tell: lastCounted(tellUpdateRejected),
	},
}

func isNotTerminal(p *fact.View) bool { return !p.ContainersEnded() }

func isRefusedOrUncalled(p *fact.View, c *evidence.APICall) bool {
	return c.Refused() || isUncalled(p, c)
}

// isUncalled reports whether requests end with an error of the API server's own (500), and a webhook that it cannot call has lately stopped
// nodeagent's own update of the pod's status.
func isUncalled(p *fact.View, c *evidence.APICall) bool {
	r := fact.OwnRefusal(p)
	return c.Code == "500" && r != nil && r.Uncalled && r.At.After(p.UnchangedSince)
}

func tellUpdateRejected(p *fact.View, c *evidence.APICall) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: ofRequest(p, c)}
	if isUncalled(p, c) {
		f.Family = webhookFails
	}
	// With another code, it is rejected by something else, or for another reason.
	if r := fact.OwnRefusal(p); r != nil && r.Code == c.Code {
		f.RefusedBy(r)
	}
	return f
}

// webhookFails is the family of updates that are rejected because a webhook cannot be called.
const webhookFails = "WebhookFails"
