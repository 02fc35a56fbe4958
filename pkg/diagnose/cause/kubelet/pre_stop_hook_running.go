package kubelet

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// seenAtEnd is how long before the container's end the hook must have been seen to
// run, to have run until then.
const seenAtEnd = 6 * time.Second

// leastStop is by how much a container whose hook used up the grace period outlives
// it at least: the kubelet leaves two seconds, and the end is told in whole ones.
// One whose hook had ended before is killed at the end of the grace period.
const leastStop = time.Second

// PreStopHookRunning is a preStop hook that has used up the grace period, so that
// the program had two seconds for its stop signal (executePreStopHook and
// minimumGracePeriodInSeconds, pkg/kubelet/kuberuntime/kuberuntime_container.go).
// Hooks of other kinds than exec leave no trace on the node.
var PreStopHookRunning = &diagnose.Rule{
	Cause: "PreStopHookRunning",
	When:  diagnose.WhenGone,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "kubelet",
		Title: "a preStop hook has used up the grace period",
		Message: "container {container}: its preStop hook {program} (PID {pid} on the node) ran from {since} on and used up the grace period of {grace}. " +
			"The kubelet sent {signal} only then, two seconds before SIGKILL ended the program at {ended}; the hook itself may have asked it to stop before",
		Meaning: "The kubelet runs the preStop hook of a container before it sends the stop signal, and both share the grace period. " +
			"When the hook has not ended by then, the kubelet goes on without it and leaves the program two seconds.",
		Evidence: "The container's specification has a preStop hook that executes a program. " +
			"A process of that name, or any after a shell, was started in the container after the deletion was asked for, by its shim and not by another process of the container; " +
			"it was the only such process, and had no terminal, as kubectl exec -t gives one. " +
			"It was seen within six seconds of the container's end, which came by SIGKILL (exit code 137), a second or more after the hook had run for the grace period. " +
			"Of a shell that may have executed another program in its place, that is inferred. " +
			"Nothing is said when a container of the app without a hook took as long, because a hook may wait for that.",
		Remedy: "Nothing on the node is broken. " +
			"Find out what the hook waits for, and let it give up in time. If it waits for the program, it is the program's shutdown that takes too long. " +
			"Or raise terminationGracePeriodSeconds, so that it is enough for the hook and the program.",
		Danger: "The program is ended by SIGKILL and may lose what it has not written. A shorter grace period or a force delete makes that worse.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		var out []diagnose.Finding
		for i := range p.Containers {
			c := &p.Containers[i]
			hook, byName := fact.PreStopHook(p, c)
			if hook == nil || !fact.KilledAtDeadline(p, c) || fact.Grace(p) < fact.Stuck {
				continue
			}
			// The kubelet counts from when it starts the hook.
			beyond := c.Exit.At.Sub(hook.Probe.Started) - fact.Grace(p)
			if beyond < leastStop || beyond > leastStop+fact.KillLatency || c.Exit.At.Sub(p.Time) > seenAtEnd || othersTook(p, c) {
				continue
			}
			f := diagnose.Finding{Container: c.Name, Confidence: diagnose.Proved, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, hook), Since: hook.Probe.Started, Ended: c.Exit.At,
				Signal: c.StopSignal.String(), GraceSeconds: int64(fact.Grace(p).Seconds()),
			}}
			if !byName {
				f.Confidence = diagnose.Inferred
			}
			out = append(out, f)
		}
		return out
	},
}

// othersTook reports whether a container without a hook was there until the deadline
// too: the hook may be one that waits for it, as those of proxies do.
func othersTook(p *evidence.Pod, c *evidence.Container) bool {
	for i := range p.Containers {
		if o := &p.Containers[i]; o != c && o.Kind == evidence.App && !o.PreStop && fact.EndedAtDeadline(p, o) {
			return true
		}
	}
	return false
}
