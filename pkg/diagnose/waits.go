package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	// Back says that the pod may not be killed when its grace period is over, because somebody has not acted for a minute: it
	// takes back that it is not stuck, and is said of no pod of which that was not said.
	Back bool
	// Message says which process runs, since when it has had its stop signal if that is known, and until when.
	Message string
}

// What a Wait says besides, as its message has it.
const (
	notStuck = "Not stuck: "
	again    = "That it was deleted again with a shorter grace period has no effect on this kubelet."
	latest   = " at the latest "
)

// SaysAs reports whether the message of another Wait says the same of what may change: whether the pod will be killed, or who may not do so;
// whether it was deleted again; and whether the time is the latest one.
func (w Wait) SaysAs(message string) bool {
	for _, part := range []string{notStuck, again, latest} {
		if strings.Contains(message, part) != strings.Contains(w.Message, part) {
			return false
		}
	}
	return !w.Back || message == w.Message
}

// WaitsFor returns what a pod waits for that is inside its grace period; ok is false for one that is not, of which
// something was found, or of which no process of a container is known to run, and for one that somebody may not be able to kill, who has
// not acted for less than a minute.
func WaitsFor(pod *evidence.Pod, d *Diagnosis) (w Wait, ok bool) {
	p := fact.See(pod)
	if _, found := d.Verdict(); found || !waitsOut(p) {
		return Wait{}, false
	}
	if name, idle := p.Unable(); name != "" {
		return takesBack(p, name, idle)
	}
	if fact.Missing(p, evidence.Processes, evidence.Containers) {
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
	period := " of " + string(seconds(f.Objects.GraceSeconds))
	if p.DeadlineUnsure {
		period = ""
	}
	const says = notStuck + "container %s%s is inside its grace period%s. Process %s (PID %s on the node) %s. Unless it exits first, it " +
		"will be killed%s"
	return Wait{Container: f.Container, Message: fmt.Sprintf(says, foreign(f.Container, 63), others, period,
		of(f.Objects.Process, (*Process).program), of(f.Objects.Process, (*Process).number), asked(p, first), until(p, running))}, true
}

// takesBack is the Wait of a pod that may not be killed, because somebody has not acted for a minute. While containerd does not answer, nothing is
// known of the containers.
func takesBack(p *fact.View, name string, idle fact.Actor) (Wait, bool) {
	if idle.Since.IsZero() || p.Time.Sub(idle.Since) < fact.Answer.Usual {
		return Wait{}, false
	}
	return Wait{Back: true, Message: fmt.Sprintf("The pod is inside its grace period. Whether it will be killed when that is over is not known: %s %s since %s.",
		name, idles[idle.State], dated(idle.Since, p.DeletionRequested))}, true
}

// idles says of an actor that it does not act.
var idles = map[fact.State]string{
	fact.Gone: "has not been running", fact.Stopped: "has been stopped", fact.Stuck: "has been hanging", fact.Silent: "has not answered",
}

// until says when a pod is killed that is inside its grace period.
func until(p *fact.View, running []fact.FirstProcess) string {
	at := "at " + string(dated(p.Kill.At, p.DeletionRequested)) + "."
	switch {
	case p.DeadlineUnsure:
		return " when the grace period of its first deletion is over. When that is is not known: it may have been deleted twice."
	case p.StopAwaited:
		return " at the earliest " + at
	case p.Kill.Latest:
		return latest + at
	case p.Shortened:
		at += " " + again
		if id := running[0].Container.ID; len(running) == 1 && wholeID.MatchString(id) {
			at += " To kill it before that, on the node: ctr -n k8s.io tasks kill --signal SIGKILL " + id
		}
	}
	return " " + at
}

// wholeID is a container's ID of containerd.
var wholeID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// killedAt is when a pod is killed, in the words of a Wait.
var killedAt = regexp.MustCompile(`, it will be killed(?: at the latest)? at (?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d) UTC\.`)

// KilledAt returns until when a pod waits by the message of a Wait about it, zero where it does not say. Its day is that of the
// request for deletion, unless it says another one.
func KilledAt(message string, requested time.Time) time.Time {
	m := killedAt.FindStringSubmatch(message)
	if m == nil {
		return time.Time{}
	}
	at, err := time.Parse(time.DateTime, cmp.Or(m[1], requested.UTC().Format(time.DateOnly))+" "+m[2])
	if err != nil {
		return time.Time{}
	}
	return at
}

// waitsOut reports whether a pod is inside its grace period for certain, and its node does not shut down.
func waitsOut(p *fact.View) bool {
	return !p.Gone && p.Overdue() < -p.ClockDoubt() && !p.Delivery.NodeShuttingDown
}

// asked says whether the program of a container has had its stop signal, as far as it is known.
func asked(p *fact.View, fp fact.FirstProcess) string {
	c, h := fp.Container, p.Hook(fp.Container)
	signal, at := own(c.StopSignal.String()), func(t time.Time) said { return dated(t, p.Deadline) }
	switch {
	case p.StopAwaited:
		return "runs: the kubelet has not begun to stop the pod"
	case c.StopSignal == 0 || !p.Delivery.Likely || p.Delivery.NodeShuttingDown:
		return "runs; whether its stop signal was sent is not known"
	case h.Process != nil:
		return fmt.Sprintf("runs: its preStop hook (PID %d on the node) has been running since %s, and %s follows", h.Process.PID,
			at(h.Process.Started()), signal)
	case p.Kill.Latest:
		return "runs; when its stop signal was sent is not known"
	case h.State == fact.HookSleeps:
		return fmt.Sprintf("runs: its preStop hook sleeps until %s, and %s follows", at(h.SignalAt), signal)
	case !h.Past():
		return fmt.Sprintf("runs: %s follows its preStop hook, and whether the hook is over is not known", signal)
	case c.Kind == evidence.Sidecar:
		return fmt.Sprintf("was probably sent %s, after the containers that stop before it exited", signal)
	case h.State == fact.HookOver:
		return fmt.Sprintf("was sent %s at %s, after its preStop hook", signal, at(h.SignalAt))
	case p.StopBegun || fp.Leader.Sent(c.StopSignal):
		return fmt.Sprintf("was sent %s at %s", signal, at(h.SignalAt))
	}
	return fmt.Sprintf("was probably sent %s", signal)
}
