package api

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StatusUpdateRejected is a pod that is done on its node, of which the kubelet is not
// allowed to say so: it asks for the final delete only of a pod in a terminal phase.
var StatusUpdateRejected = &diagnose.Rule{
	Cause:  "StatusUpdateRejected",
	Phases: []diagnose.Phase{diagnose.FinalDelete},
	Needs:  []evidence.Source{evidence.Processes, evidence.Mounts, evidence.Cgroups, evidence.Containers, evidence.APICalls},
	Doc: diagnose.Doc{
		Layer: "api",
		Title: "the API server rejects the kubelet's pod status updates",
		Message: "the API server {rejects} the kubelet's pod status updates (HTTP {code}){why}. " +
			"The kubelet deletes the pod only after one succeeds",
		Seen: []string{
			"Nothing of the pod is left on the node, but its status still reports a running container",
			"The kubelet got HTTP {code} for at least two PATCH requests since then",
			"The API server does not accept nodeagent's own update of this pod's status either, because of {refuser}",
			"The kubelet counts requests by method, not by object: that they were for this pod is inferred",
		},
		First: "{check}",
		Avoid: "deleting the whole policy or webhook (it may guard more)",
		Phrases: map[string][]diagnose.Choice{
			"rejects": {{Variant: diagnose.Uncalled, Text: "does not accept"}, {Text: "rejects"}},
			"why":     {{Variant: diagnose.Uncalled, Text: " because it cannot call {refuser}"}, {Text: ""}},
			"check": {
				{Text: "check {refuser}: it rejects nodeagent's update of this pod's status too"},
				{Text: "on the node: {log} names the policy or webhook; ask its owner to exempt pods/status"},
			},
			"log": {{Text: "journalctl -u kubelet --since=-2min | grep 'Failed to update status for pod'"}},
		},
		Meaning: "The kubelet writes into the pod's status that all containers have ended, and deletes the object after that. " +
			"Something in the API server does not allow the update of pods/status: a ValidatingAdmissionPolicy, a webhook (also one that changes what may not be changed), RBAC, or the API's own validation. " +
			"The kubelet tries again every ten seconds, and tells it in its log only.",
		Evidence: []string{"The status says that a container runs, while the node has no process, mount, cgroup or running container of the pod. " +
			"A reading has found its cgroup before, or the kubelet was there before the deletion: a node that was started anew has none. " +
			"Since then the kubelet's PATCH requests were refused at least twice, and lately (rest_client_requests_total of the kubelet, code 4xx but 401, 404, 408, 409 and 429), and nothing shows trouble of the API server itself. " +
			"An answer that the API server gives because it could not call a webhook (code 500) counts only when the same has lately kept nodeagent from writing its own condition into this pod's status. " +
			"What has refused that, with the same code, is named as having done so: it may look at requests of nodeagent and not at those of the kubelet. " +
			"It is inferred: the kubelet counts by method, not by object. A kubelet that is part of another program, as in K3s and MicroK8s, is not judged."},
		Remedy: "On the node, read the error, which names the policy or webhook: {log}. " +
			"Then allow UPDATE of pods/status for the group system:nodes in that policy, webhook or RBAC role. The kubelet retries within ten seconds.",
		Danger: "A force delete by an administrator removes only this object. Every other pod that the rule covers has a wrong status too, and so misleads Services and controllers. " +
			"Do not delete a whole webhook or policy: it may guard other things.",
		Families: []diagnose.Family{{
			Name: webhookFails,
			Meaning: "The API server has to ask a webhook before it writes the status of pods, cannot reach it, does not accept its certificate or gets no answer, and refuses then (failurePolicy: Fail). " +
				"Most often the webhook's own pods do not run, perhaps because their status cannot be written either.",
			First: "find its Service, then check its pods and caBundle: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml",
			Avoid: "deleting the whole webhook (it may guard more)",
			Remedy: "Find the webhook's Service: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml. " +
				"Check that its pods run and respond, and that its certificate (caBundle) is valid. " +
				"A webhook need not check pods/status: leave that resource out of its rules. The kubelet retries within ten seconds.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		if p.ContainersEnded() || p.Mirror || !p.NothingLeft() || !fact.SaidToRun(p) {
			return diagnose.Result{}
		}
		family, c := "", fact.RefusedByAPI(p, evidence.MethodPatch)
		if c == nil {
			if c = fact.StoppedByWebhook(p, evidence.MethodPatch); c == nil {
				return diagnose.Result{}
			}
			family = webhookFails
		}
		f := diagnose.Finding{Family: family, Confidence: diagnose.Inferred, Objects: ofRequest(p, c)}
		// One that is answered otherwise is refused by another one, or for another reason.
		if r := fact.OwnRefusal(p); r != nil && r.Code == c.Code {
			f.RefusedBy(r)
		}
		return diagnose.Found(f)
	},
}

// webhookFails is the family of updates that are refused because a webhook cannot be called.
const webhookFails = "WebhookFails"
