package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// InGracePeriod is the reason of the condition of a pod that is not stuck: it is inside its grace
// period, and a process of it runs. It is no cause.
const InGracePeriod = "InGracePeriod"

// A Wait is what a pod waits for inside its grace period.
type Wait struct {
	// Container is the one whose process runs; of several the first in the specification.
	Container string
	// Message is one sentence: which process runs, since when it has had its stop signal if that is
	// known, and until when.
	Message string
}

// WaitsFor returns what a pod waits for that is inside its grace period; ok is false for one that is not, of which
// something was found, or of which no process of a container is known to run.
func WaitsFor(pod *evidence.Pod, d *Diagnosis) (w Wait, ok bool) {
	p := fact.See(pod)
	if _, found := d.Verdict(); found || !waitsOut(p) || fact.Missing(p, evidence.Processes, evidence.Containers) {
		return Wait{}, false
	}
	running := slices.DeleteFunc(fact.FirstProcesses(p), func(fp fact.FirstProcess) bool {
		t := fp.Leader
		return t.State == evidence.Zombie || fact.Dying(t) || t.State == evidence.Uninterruptible && t.Unchanged(p.Time) >= fact.SlowDevice
	})
	if len(running) == 0 {
		return Wait{}, false
	}
	first := running[0]
	f := About(p, first, Inferred)
	others := ""
	if n := len(running) - 1; n > 0 {
		others = fmt.Sprintf(" (and %s)", count(n, "other"))
	}
	latest := ""
	if p.DeadlineUnsure {
		latest = " at the latest"
	} else if p.StopAwaited {
		latest = " at the earliest"
	}
	const says = "Not stuck: container %s%s is inside its grace period of %s. Process %s (PID %s on the node) %s. Unless it exits " +
		"first, it will be killed%s at %s."
	return Wait{Container: f.Container, Message: fmt.Sprintf(says, foreign(f.Container, 63), others,
		seconds(f.Objects.GraceSeconds), of(f.Objects.Process, (*Process).program), of(f.Objects.Process, (*Process).number), asked(p, first),
		latest, dated(p.Kill.At, p.DeletionRequested))}, true
}

// waitsOut reports whether a pod is inside its grace period for certain, and nothing is seen for which its kubelet would not
// keep to that.
func waitsOut(p *fact.View) bool {
	k := p.Kubelet.State
	return !p.Gone && p.Overdue() < -p.ClockDoubt() && (k == fact.Acts || k == fact.Unseen) && !p.Delivery.NodeShuttingDown
}

// asked says whether the program of a container has had its stop signal, as far as it is known.
func asked(p *fact.View, fp fact.FirstProcess) string {
	c := fp.Container
	signal, at := own(c.StopSignal.String()), func(t time.Time) said { return dated(t, p.Deadline) }
	hook, _ := fact.PreStopHook(p, c)
	sleepsUntil, over := fact.HookOver(p, c)
	switch {
	case p.StopAwaited:
		return "runs: the kubelet has not begun to stop the pod"
	case c.StopSignal == 0 || !p.Delivery.Likely || p.Delivery.NodeShuttingDown:
		return "runs; whether its stop signal was sent is not known"
	case hook != nil:
		return fmt.Sprintf("runs: its preStop hook (PID %d on the node) has been running since %s, and %s follows", hook.PID, at(hook.Probe.Started), signal)
	case c.PreStopSleep > 0 && !over:
		return fmt.Sprintf("runs: its preStop hook sleeps until %s, and %s follows", at(sleepsUntil), signal)
	case c.PreStop && !over:
		return fmt.Sprintf("runs: %s follows its preStop hook, and whether the hook is over is not known", signal)
	case c.Kind == evidence.Sidecar:
		return fmt.Sprintf("was probably sent %s, after the containers that stop before it exited", signal)
	case c.PreStop:
		return fmt.Sprintf("was sent %s at %s, after its preStop hook", signal, at(fact.SignalSince(p, c)))
	case p.StopBegun || fp.Leader.SharedPending.Has(c.StopSignal):
		return fmt.Sprintf("was sent %s at %s", signal, at(fact.SignalSince(p, c)))
	}
	return fmt.Sprintf("was probably sent %s", signal)
}
