package kubelet

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletDisconnected is a kubelet that runs and does not get through to the API server, or is
// refused there: it is not told of deletions, and cannot tell what it has done.
var KubeletDisconnected = &diagnose.Rule{
	Cause:  "KubeletDisconnected",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.Sandbox, diagnose.FinalDelete, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Kubelet, evidence.NodeObject, evidence.Processes, evidence.Cgroups, evidence.Containers, evidence.Shims},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet runs but does not reach the API server",
		Message:   "the kubelet runs, but the API server does not hear from it (Node Ready is Unknown since {since}). {so}",
		Phrases: map[string][]diagnose.Choice{
			"so": {
				{Variant: untold, Text: "The kubelet has not received the deletion, so the pod keeps running"},
				{Text: "The kubelet cannot report that the pod has ended, nor delete it"},
			},
			"state": {
				{Variant: untold, Text: "The pod's containers run, and nothing has begun to stop them, though containerd and the shim respond"},
				{Text: "No process of the pod's containers is left, and nothing is in progress for the pod"},
			},
		},
		Seen: []string{
			"The API server reports Ready Unknown with reason NodeStatusUnknown since {since}",
			"The kubelet's process is neither stopped nor blocked, and its port completes a TLS handshake",
			"{state}",
		},
		First: "on the node: journalctl -u kubelet -n 50 (x509 or Unauthorized: its certificate; timeout: the network)",
		Avoid: "out-of-service taint (containers still run)",
		Meaning: "The kubelet watches the API server for deletions, and writes there what it has done. Without that its pods run on as they were. " +
			"After some 50 seconds the node controller makes the Node's condition Ready Unknown (reason NodeStatusUnknown), and five minutes later it deletes the node's pods, which stay Terminating. " +
			"nodeagent reaches the API server by another way, with other credentials.",
		Evidence: []string{"The condition Ready of the Node is Unknown with the reason NodeStatusUnknown, in answers of the API server over thirty seconds, with the same lastTransitionTime. A kubelet that gets through corrects that within ten. " +
			"The kubelet's process has been there for a minute, or the one before was not heard either. It is neither stopped nor blocked, and its port completes a TLS handshake within three seconds: it is not too short of processors to be heard; one that has been silent there for twenty seconds is given thirty more. " +
			"The pod is past its deadline. Either its containers run, and nobody has begun to stop them though containerd and the shim answer; or no process of them is left, nothing is under way, and no container waits to be started again. " +
			"Nothing is said when Ready has become Unknown so late that the kubelet was heard after the deletion and is the same since, or for a minute in which it could have written that the pod has ended: something else has held the pod before. " +
			"It is inferred: why the kubelet is not heard does not show. It is proved when the kubelet does not take nodeagent's token any more, which the API server takes: the kubelet has the API server review tokens, and cannot. Ready was Unknown before the deletion then, or before the last of the pod was gone from the node. " +
			"That shows only where the cluster has signed the kubelet's certificate. A static pod is not judged."},
		Remedy: "On the node: journalctl -u kubelet -n 50 shows why. The unit is k3s or k3s-agent with K3s, rke2-server or rke2-agent with RKE2. " +
			"Unauthorized, x509 or system:anonymous: repair the kubelet's credentials. " +
			"openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem shows when its certificate expires. " +
			"kubectl get csr shows a request that waits for approval. " +
			"Timeout or connection refused: check the network, and the server in the kubelet's kubeconfig. " +
			"When the kubelet is connected again, it stops the deleted pods by itself.",
		Danger: "Do not force-delete the pods of this node, and do not taint it out-of-service: their containers keep running. A StatefulSet then starts the same pod twice.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if since := fact.MayReconnect(p); !since.IsZero() {
			return diagnose.Undecided(diagnose.Waits(since, fact.Reconnects, diagnose.Restarting))
		}
		if !p.Delivery.OutOfTouch || p.Mirror || p.Overdue() < fact.KillLatency {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Since: p.Node.Ready.Transition}}
		switch {
		case p.Delivery.Untold:
			f.Variants = []string{untold}
		case len(fact.AppTasks(p)) > 0 || p.CNI.State != fact.Unseen || !fact.RuntimeIdle(p) || p.Time.Sub(p.UnchangedSince) < fact.Restart:
			return diagnose.Result{} // somebody may be at work on it
		case fact.HeardAfter(p, p.UnchangedSince.Add(fact.UnknownAfter)):
			return diagnose.Result{} // it could have written so, and has not
		case slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.BackedOff }):
			return diagnose.Result{} // it may be about to start it again
		}
		if explains(p, len(f.Variants) > 0) && strings.HasPrefix(p.Node.Kubelet.Health, evidence.TokenRefused) {
			f.Confidence = diagnose.Proved
		}
		return diagnose.Found(f)
	},
}

// explains reports whether nothing else than the lost connection can have the pod be as it is: it
// was noted before that began, and what is left to be done takes the API server. A sandbox does not.
func explains(p *fact.View, untold bool) bool {
	noted := p.NodeTime(p.Node.Ready.Transition)
	if untold {
		return !noted.After(p.DeletionRequested)
	}
	return !noted.After(p.UnchangedSince) && p.NothingLeft()
}

// untold is the variant of a pod of which the kubelet does not know that it is deleted.
const untold = "Untold"
