package kubelet

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletDisconnected is a kubelet that runs and does not reach the API server, or is refused there. It receives no deletions, and cannot write what
// it has done.
var KubeletDisconnected = &diagnose.Rule{
	Cause:  "KubeletDisconnected",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.Sandbox, diagnose.FinalDelete, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Kubelet, evidence.NodeObject, evidence.Processes, evidence.Cgroups, evidence.Containers, evidence.Shims},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet runs but does not reach the API server",
		Who:       diagnose.ByNode, NotApp: true,
		Message: "the kubelet is cut off from the API server (Ready is Unknown since {since}). {so}",
		Phrases: map[string][]diagnose.Choice{
			"so": {
				{Variant: untold, Text: "It has not received the deletion, so the pod keeps running"},
				{Text: "It cannot report that the pod has ended, nor delete it"},
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
		First: "on the node: if the last lines of the kubelet's log (journalctl -u kubelet -n 50) have x509, Unauthorized or anonymous: follow Fix. " +
			"If not: ask the network team",
		Avoid: "the out-of-service taint (containers still run)",
		Meaning: "The kubelet watches the API server for deletions, and writes there what it has done. Without that its pods run on as they were. " +
			"After some 50 seconds the node controller makes the Node's condition Ready Unknown (reason NodeStatusUnknown). " +
			"Five minutes later it deletes the node's pods, which stay Terminating. " +
			"nodeagent reaches the API server by another way, with other credentials.",
		Evidence: []string{
			"The condition Ready of the Node is Unknown with the reason NodeStatusUnknown. Responses of the API server over thirty " +
				"seconds show the same lastTransitionTime. A kubelet that gets through corrects it within ten.",
			"The kubelet's process has been there for a minute, or the one before was not heard either. It is neither stopped nor " +
				"blocked.",
			"The kubelet's port completes a TLS handshake within three seconds, so CPU pressure does not keep it from being heard. If " +
				"it did not respond for twenty seconds, it gets thirty more.",
			"The pod is past its deadline. Its containers run, and nothing has begun to stop them although containerd and the shim " +
				"respond.",
			"Or no process of its containers is left, nothing is in progress, and no container waits to be started again.",
			"It is inferred, because the reason why the kubelet is not heard does not show.",
			"It is proved if the kubelet does not accept nodeagent's token and the API server does: the kubelet cannot have the API " +
				"server review tokens. This shows only where the cluster signed the kubelet's certificate.",
			"For that proof, Ready was Unknown before the deletion, or before the last of the pod was gone from the node.",
			"Not reported if something else held the pod before Ready became Unknown: the kubelet was heard after the deletion and is " +
				"the same since, or it had a minute to write that the pod has ended.",
			"Not reported for a static pod.",
		},
		Remedy: "On the node: journalctl -u kubelet -n 50 shows why. The unit is k3s or k3s-agent with K3s, rke2-server or rke2-agent with RKE2. " +
			"Unauthorized, x509 or system:anonymous: repair the kubelet's credentials. " +
			"openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem shows when its certificate expires. " +
			"kubectl get csr shows a request that waits for approval. " +
			"Timeout or connection refused: check the network, and the server in the kubelet's kubeconfig. " +
			"When the kubelet is connected again, it stops the deleted pods by itself.",
		Danger: "Do not force-delete the pods of this node, and do not taint it out-of-service: their containers keep running. A " +
			"StatefulSet then starts the same pod twice.",
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
		case p.Delivery.DeletionNotReceived:
			f.Variants = []string{untold}
		case len(fact.AppTasks(p)) > 0 || p.CNI.State != fact.Unseen || !fact.RuntimeIdle(p) || p.Time.Sub(p.UnchangedSince) < fact.Restart:
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Slow)) // something may be in progress for it
		case fact.HeardAfter(p, p.UnchangedSince.Add(fact.UnknownAfter)):
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Slow)) // it could have written so, and has not
		case slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.BackedOff }):
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Retry)) // it may be about to start it again
		}
		if explains(p, len(f.Variants) > 0) && strings.HasPrefix(p.Node.Kubelet.Health, evidence.TokenRefused) {
			f.Confidence = diagnose.Proved
		}
		return diagnose.Found(f)
	},
}

// explains reports whether nothing but the lost connection can hold the pod: the loss was noted before the hold began, and all that is left to do
// takes the API server. A sandbox that is left does not.
func explains(p *fact.View, untold bool) bool {
	noted := p.NodeTime(p.Node.Ready.Transition)
	if untold {
		return !noted.After(p.DeletionRequested)
	}
	return !noted.After(p.UnchangedSince) && p.NothingLeft()
}

// untold is the variant of a pod whose deletion the kubelet has not received.
const untold = "Untold"
