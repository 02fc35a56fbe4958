package network

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// How long a CNI plugin may take before it is said to hang, on a node that is short
// of something too. Plugins that work have been seen to wait half a minute for their
// daemon; after two minutes the kubelet gives up, and begins anew.
//
// When the kubelet has given up once, the next run of the plugin has to last only so
// long that it is no ordinary one: the first try may have failed for another reason.
const (
	patience        = time.Minute
	patienceStarved = 100 * time.Second
	// patienceAgain is the same once stopping the sandbox has timed out, which may have
	// been for another reason.
	patienceAgain = fact.SlowDevice
)

// CNIDelHanging is a CNI plugin that does not return from DEL.
var CNIDelHanging = &diagnose.Rule{
	Cause:  "CNIDelHanging",
	Phases: phases,
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Plugins},
	Doc: diagnose.Doc{
		Layer:   "network",
		Title:   "a CNI plugin does not return while it takes down the pod's network",
		Message: "the containers have ended, but the CNI plugin {process} does not return, which containerd runs since {since} to take down the pod's network (CNI DEL){waits}",
		Phrases: map[string][]diagnose.Choice{"waits": {
			{Text: ". It waits for its child {child} (PID {childpid}), which sleeps in {syscall} ({function})"},
			{Text: ". It waits for its child {child} (PID {childpid})"},
			{Text: ". It sleeps in {syscall} ({function})"},
			{Text: ""},
		}},
		Meaning: "Before the pod's sandbox is gone, containerd has each CNI plugin of the network undo what it did. " +
			"Most plugins ask a daemon of theirs on the node, or take a lock that all of them share. " +
			"After two minutes the kubelet gives up and tries again, so that the plugin is started anew.",
		Evidence: "A child of containerd has CNI_COMMAND=DEL and CNI_CONTAINERID of this pod's sandbox in its environment, and was started more than a minute ago, " +
			"or on a node short of processors, memory or I/O (/proc/pressure) 100 seconds; or ten seconds, and then it is inferred, when the kubelet has said before, in an Event, that stopping the sandbox has timed out. " +
			"No process of the pod's containers lives. What the plugin waits for is what the last of its descendants sleeps in, as far as each has one child.",
		Remedy: "On the node: look at what the plugin waits for (ps -eo pid,ppid,stat,wchan:30,comm --forest shows its children). Usually the pod of the plugin's daemon on this node hangs: restart that pod. " +
			"If it waits for a lock (flock), lslocks names who holds it. The plugin, or the kubelet's next try, then succeeds.",
		Danger: "Killing the plugin only brings the next try. " +
			"Do not force-delete the pod, and do not delete its network namespace or files below /var/lib/cni by hand: its address stays taken, or is given to another pod while routes still lead here.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		limit := patience
		if fact.Starved(p) {
			limit = patienceStarved
		}
		if f := fact.SandboxStop(p); f != nil && f.TimedOut() && f.Step == fact.StepUnknown {
			limit = patienceAgain
		}
		for i := range p.Plugins {
			plugin := &p.Plugins[i]
			if isChild(p, plugin) || plugin.State == evidence.Zombie || plugin.Probe == nil || plugin.Probe.Started.IsZero() || p.Time.Sub(plugin.Probe.Started) < limit {
				continue
			}
			last := fact.LastOf(p.Plugins, plugin)
			o := diagnose.Objects{Process: diagnose.ProcessOf(p, plugin), Since: plugin.Probe.Started, Thread: diagnose.ThreadOf(last)}
			if last != plugin {
				o.Child = diagnose.ProcessOf(p, last)
			}
			f := diagnose.Finding{Confidence: diagnose.Proved, Objects: o}
			if p.Time.Sub(plugin.Probe.Started) < patience {
				f.Confidence = diagnose.Inferred
			}
			return []diagnose.Finding{f}
		}
		return nil
	},
}

// isChild reports whether a process was started by another one of the plugins.
func isChild(p *evidence.Pod, t *evidence.Task) bool {
	return slices.ContainsFunc(p.Plugins, func(of evidence.Task) bool { return of.PID == t.PPID })
}
