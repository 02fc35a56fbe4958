package api

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// kubeletSettles is how long a kubelet that was started has for its static pods.
const kubeletSettles = time.Minute

// MirrorPodDeleted is the deleted API object of a static pod that still runs.
var MirrorPodDeleted = &diagnose.Rule{
	Cause: "MirrorPodDeleted",
	// The mirror pod of a static pod that has ended does not report that, and the phase is not known.
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:   "api",
		Title:   "deleting a mirror pod does not stop its static pod",
		Who:     diagnose.ByNode,
		Message: "{held}; it is only the mirror of a static pod, which still runs (a delete does not stop it)",
		Seen: []string{
			"The pod has the annotation kubernetes.io/config.mirror",
			"All its containers have kept running since the deletion, for longer than the grace period in the manifest",
			"The manifest itself was not read: that it is still on the node is inferred",
		},
		First: "{keeps}. This can wait",
		Avoid: "{harm}",
		Phrases: map[string][]diagnose.Choice{"held": {
			{Text: "{finalizers} keeps this object"}, {Text: "the kubelet cannot delete this object"},
		}, "keeps": {
			{Text: "ask the owner of the controller that should remove {finalizers} to search its log for this pod"},
			{Text: "on the node: search the kubelet's log (journalctl -u kubelet) for 'Failed deleting mirror pod'; " +
				"ask the owner of the policy or webhook it names"},
		}, "harm": {
			{Text: "removing {finalizers} by hand, killing its processes"}, {Text: "killing its processes (the kubelet restarts them)"},
		}},
		Meaning: "A static pod comes from a manifest on the node. Its object in the API, the mirror pod, only shows it. " +
			"When the mirror pod is deleted, the kubelet force-deletes it and creates a new one (tryReconcileMirrorPods). " +
			"Here something keeps the old one: a finalizer, or an admission policy that rejects the delete.",
		Remedy: "To keep the static pod running: {keeps}. The kubelet re-creates the object when the old one is gone. " +
			"To stop the static pod, ask its owner, then move its manifest out of the kubelet's staticPodPath on the node (/etc/kubernetes/manifests on most nodes).",
		Danger: "Static pods are often the control plane itself: etcd, kube-apiserver. Do not kill its processes: the kubelet restarts them. " +
			"A force delete removes only the object.",
	},
	By: diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{
			{Says: "The pod has the annotation kubernetes.io/config.mirror.", Pod: diagnose.IfPod(isMirror)},
			{Says: "status.phase is not terminal (Succeeded or Failed).", Pod: diagnose.IfPod(isNotTerminal)},
			{
				Says: "All its app containers run, but for those that wait for a restart.",
				Pod:  diagnose.IfPod(appRuns), From: []evidence.Source{evidence.Containers},
			},
			{
				Says: "No process of the pod was killed.",
				Pod:  diagnose.IfPod(livesOn), From: []evidence.Source{evidence.Processes, evidence.Cgroups}, Partly: []evidence.Source{evidence.Shims},
			},
			{
				Says: "The kubelet runs, is not stopped, and reports itself healthy.",
				Pod:  diagnose.IfPodLater(kubeletWorks, diagnose.Restarting), From: []evidence.Source{evidence.Kubelet},
			},
			{
				Says: "The API server hears from the kubelet: the Node's condition Ready is not Unknown.",
				Pod:  diagnose.IfPodLater(kubeletIsHeard, diagnose.Restarting), From: []evidence.Source{evidence.NodeObject},
			},
			{Says: "The kubelet was started a minute ago or earlier.", Pod: kubeletHasSettled, From: []evidence.Source{evidence.Kubelet}},
			{
				Says: "All this has been so since the deletion for longer than the grace period in the manifest. " +
					"If the manifest had been removed, the kubelet would have stopped the containers by now.",
				Pod: outlivesManifest,
			},
			{Says: "It is inferred, because nodeagent does not look for the manifest."},
		},
		Tell: diagnose.OfPod(tellMirror),
	},
}

func isMirror(p *fact.View) bool { return p.Mirror }

// appRuns reports whether all containers of the app run, but for those that rest.
func appRuns(p *fact.View) bool {
	live := 0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind != evidence.App || fact.Rests(p, c) {
			continue
		}
		if c.State != evidence.StateRunning {
			return false
		}
		live++
	}
	return live > 0
}

// livesOn reports whether the app has processes, and none of them has been killed.
func livesOn(p *fact.View) bool {
	tasks := fact.AppTasks(p)
	return len(tasks) > 0 && !slices.ContainsFunc(tasks, fact.Dying)
}

// kubeletWorks reports whether the kubelet works: one that does not may be about to stop the static pod.
func kubeletWorks(p *fact.View) bool {
	t, h := p.Node.Kubelet.Process, p.Node.Kubelet.Health
	return p.Kubelet.State != fact.Gone && (h == "" || h == fact.KubeletHealthy) && t != nil && !fact.Halted(t)
}

// kubeletIsHeard is the same for one that is cut off from the API server.
func kubeletIsHeard(p *fact.View) bool { return !p.Node.Ready.Unheard() }

func kubeletHasSettled(p *fact.View) diagnose.Holding {
	if started := p.Node.Kubelet.Process.Started(); !started.IsZero() {
		return diagnose.Lasted(p, started, kubeletSettles, diagnose.Restarting)
	}
	return diagnose.Is(true)
}

// outlivesManifest answers whether the pod has not changed for longer than a kubelet that stops the static pod needs.
func outlivesManifest(p *fact.View) diagnose.Holding {
	ends := time.Duration(p.ManifestGraceSeconds)*time.Second + fact.KillLatency + diagnose.StopSettles
	return diagnose.Lasted(p, p.UnchangedSince, ends, diagnose.Slow)
}

func tellMirror(p *fact.View) diagnose.Finding {
	return diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Finalizers: p.Finalizers}}
}
