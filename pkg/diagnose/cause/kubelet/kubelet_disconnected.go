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
		Remedy: "On the node: journalctl -u kubelet -n 50 shows why. The unit is k3s or k3s-agent with K3s, rke2-server or rke2-agent with RKE2. " +
			"Unauthorized, x509 or system:anonymous: repair the kubelet's credentials. " +
			"openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem shows when its certificate expires. " +
			"kubectl get csr shows a request that waits for approval. " +
			"Timeout or connection refused: check the network, and the server in the kubelet's kubeconfig. " +
			"When the kubelet is connected again, it stops the deleted pods by itself.",
		Danger: "Do not force-delete the pods of this node, and do not taint it out-of-service: their containers keep running. A " +
			"StatefulSet then starts the same pod twice.",
	},
	By: diagnose.Ways{
		diagnose.By[diagnose.ThePod]{
			Title: "While the pod runs on",
			Facts: slices.Concat(disconnected, []diagnose.Fact[diagnose.ThePod]{
				{
					Says: "The pod's containers run, and nothing has begun to stop them although containerd and the shim respond.",
					Pod:  diagnose.IfPod(noStopSeen), From: []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers, evidence.Shims},
				},
				{
					Says: "The API server did not hear from the kubelet after the deletion, or a kubelet was started later and not heard. " +
						"One that was heard has received the deletion, and something else holds the pod.",
					Pod: diagnose.IfPod(notHeardSince), From: seenFromBoth,
				},
			}),
			Tell: diagnose.OfPod(tellUntold),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "When no process of its containers is left",
			Facts: slices.Concat(disconnected, []diagnose.Fact[diagnose.ThePod]{
				{
					Says: "The kubelet may have received the deletion: the pod does not run on as if it were not deleted.",
					Pod:  diagnose.IfPod(notUntold),
				},
				{
					Says: "No process of the pod's containers is left.",
					Pod:  diagnose.IfPodLater(noProcessLeft, diagnose.Slow), From: []evidence.Source{evidence.Processes, evidence.Cgroups},
				},
				{Says: "No CNI plugin works for the pod.", Pod: diagnose.IfPodLater(noPluginWorks, diagnose.Slow)},
				{
					Says: "containerd and the shim respond, no runtime command is in progress, and the kubelet has not reported that it could not stop the pod.",
					Pod:  diagnose.IfPodLater(runtimeIdle, diagnose.Slow), From: []evidence.Source{evidence.Shims},
				},
				{Says: "All this has been so for twenty seconds.", Pod: unchangedForLong},
				{
					Says: "Since the pod's last change, the kubelet was heard for less than a minute. In more time it could have written that the pod has ended.",
					Pod:  diagnose.IfPodLater(hadNoTimeToWrite, diagnose.Slow), From: []evidence.Source{evidence.NodeObject},
				},
				{
					Says: "No container waits to be started again.",
					Pod:  diagnose.IfPodLater(noneBackedOff, diagnose.Retry), From: []evidence.Source{evidence.Containers},
				},
				{Says: "The kubelet runs if its process has been there for a minute, or the one before was not heard either. It is neither stopped nor blocked."},
				{Says: "The kubelet's port completes a TLS handshake within three seconds, so CPU pressure does not keep it from being heard. If " +
					"it did not respond for twenty seconds, it gets thirty more."},
				{Says: "It is inferred, because the reason why the kubelet is not heard does not show."},
				{Says: "It is proved if the kubelet does not accept nodeagent's token and the API server does: the kubelet cannot have the API " +
					"server review tokens. This shows only where the cluster signed the kubelet's certificate."},
				{Says: "For that proof, Ready was Unknown before the deletion, or before the last of the pod was gone from the node."},
			}),
			Tell: diagnose.OfPod(tellEnded),
		},
	},
}

// disconnected are the facts about the kubelet, and that it has something to do for the pod.
var disconnected = []diagnose.Fact[diagnose.ThePod]{
	{
		Says: "The condition Ready of the Node is Unknown with the reason NodeStatusUnknown.",
		Pod:  diagnose.IfPod(unheard), From: []evidence.Source{evidence.NodeObject},
	},
	{
		Says: "Responses of the API server over thirty seconds show the same lastTransitionTime, though the kubelet runs. " +
			"A kubelet that gets through corrects it within ten.",
		Pod: outOfTouch, From: seenFromBoth,
	},
	{Says: "The pod is no static pod.", Pod: diagnose.IfPod(notStatic)},
	{Says: "The pod is ten seconds past its deadline.", Pod: isLate},
}

// seenFromBoth are the sources of what the kubelet does, as its node and the API server see it.
var seenFromBoth = []evidence.Source{evidence.Kubelet, evidence.NodeObject}

func unheard(p *fact.View) bool { return p.Node.Ready.Unheard() }

// outOfTouch answers whether the kubelet runs and is not heard all the same. One that is not there, stopped or silent may be getting through again.
func outOfTouch(p *fact.View) diagnose.Holding {
	if p.Delivery.OutOfTouch {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Waits(fact.MayReconnect(p), fact.Reconnects, diagnose.Restarting))
}

func notStatic(p *fact.View) bool { return !p.Mirror }

func isLate(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, fact.KillLatency, diagnose.Late)
}

func noStopSeen(p *fact.View) bool { return p.Delivery.NoStopSeen }

// notHeardSince reports whether the kubelet has not received the deletion (Delivery.DeletionNotReceived).
func notHeardSince(p *fact.View) bool {
	return p.Node.Ready != nil &&
		(!fact.HeardAfter(p, p.DeletionRequested.Add(fact.KillLatency)) || !fact.HeardAfter(p, p.Node.Kubelet.Process.Started()))
}

func notUntold(p *fact.View) bool { return !p.Delivery.DeletionNotReceived }

// noProcessLeft, noPluginWorks and runtimeIdle answer whether nothing is in progress for the pod: what is may end.
func noProcessLeft(p *fact.View) bool { return len(fact.AppTasks(p)) == 0 }

func noPluginWorks(p *fact.View) bool { return p.CNI.State == fact.Unseen }

func runtimeIdle(p *fact.View) bool { return fact.RuntimeIdle(p) }

func unchangedForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.UnchangedSince, fact.Restart, diagnose.Slow)
}

// hadNoTimeToWrite answers whether the kubelet was not heard for long after the pod has last changed: it could have written so, and has not.
func hadNoTimeToWrite(p *fact.View) bool {
	return p.Node.Ready != nil && !fact.HeardAfter(p, p.UnchangedSince.Add(fact.UnknownAfter))
}

// noneBackedOff answers whether the kubelet is not about to start a container again.
func noneBackedOff(p *fact.View) bool {
	return !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.BackedOff })
}

func tellUntold(p *fact.View) diagnose.Finding {
	f := tellDisconnected(p, true)
	f.Variants = []string{untold}
	return f
}

func tellEnded(p *fact.View) diagnose.Finding { return tellDisconnected(p, false) }

func tellDisconnected(p *fact.View, untold bool) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Since: p.Node.Ready.Transition}}
	if explains(p, untold) && strings.HasPrefix(p.Node.Kubelet.Health, evidence.TokenRefused) {
		f.Confidence = diagnose.Proved
	}
	return f
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
