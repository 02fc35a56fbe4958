package api

import (
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
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers, evidence.Kubelet},
	Partly: []evidence.Source{evidence.Shims},
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
		Evidence: []string{
			"The pod has the annotation kubernetes.io/config.mirror.",
			"All its containers run, and have run since the deletion for longer than the grace period in the manifest. " +
				"If the manifest had been removed, the kubelet would have stopped them by now.",
			"It is inferred, because nodeagent does not look for the manifest.",
			"Not reported while the kubelet does not run, is stopped or unhealthy, or was started in the last minute.",
			"Not reported while the API server does not hear from the kubelet (the Node's condition Ready is Unknown).",
		},
		Remedy: "To keep the static pod running: {keeps}. The kubelet re-creates the object when the old one is gone. " +
			"To stop the static pod, ask its owner, then move its manifest out of the kubelet's staticPodPath on the node (/etc/kubernetes/manifests on most nodes).",
		Danger: "Static pods are often the control plane itself: etcd, kube-apiserver. Do not kill its processes: the kubelet restarts them. " +
			"A force delete removes only the object.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if !p.Mirror || p.ContainersEnded() || !runsOn(p) {
			return diagnose.Result{}
		}
		t, h := p.Node.Kubelet.Process, p.Node.Kubelet.Health
		switch {
		case p.Kubelet.State == fact.Gone, p.Node.Ready.Unheard(), h != "" && h != fact.KubeletHealthy, t == nil, fact.Halted(t):
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Restarting)) // it may be about to stop the static pod
		case t.Probe != nil && p.Time.Sub(t.Probe.Started) < kubeletSettles:
			return diagnose.Undecided(diagnose.Waits(t.Probe.Started, kubeletSettles, diagnose.Restarting))
		}
		// A kubelet that stops the static pod needs no longer than this.
		ends := time.Duration(p.ManifestGraceSeconds)*time.Second + fact.KillLatency + diagnose.StopSettles
		if p.UnchangedSince.IsZero() || p.Time.Sub(p.UnchangedSince) < ends {
			return diagnose.Result{}
		}
		return diagnose.Found(diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Finalizers: p.Finalizers}})
	},
}

// runsOn reports whether all containers of the app run, but for those that rest, and none of their processes has
// been killed.
func runsOn(p *fact.View) bool {
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
	for _, t := range fact.AppTasks(p) {
		if fact.Dying(t) {
			return false
		}
	}
	return live > 0 && len(fact.AppTasks(p)) > 0
}
