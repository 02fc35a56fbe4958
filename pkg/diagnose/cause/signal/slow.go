package signal

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// slowSources are those of the signal's fate, and what the kubelet has said of the end.
var slowSources = append(slices.Clone(fact.SignalSources), evidence.Events)

// slow are the first processes that have taken their stop signal, as far as can
// be told, and have not ended within the grace period.
func slow(p *fact.View) []fact.FirstProcess {
	// A grace period of nothing is a force delete's; and a process that was seen to
	// live long after the deadline was not ended by what comes at the deadline.
	if fact.Grace(p) < fact.LeastStill || p.Overdue() >= fact.KillLatency {
		return nil
	}
	// A runtime that could not send the stop signal says so to the kubelet, and nothing
	// in the process shows it.
	if len(p.KillFailures) > 0 {
		return nil
	}
	return slices.DeleteFunc(fact.Sent(p), func(fp fact.FirstProcess) bool {
		program := asked(p, fp)
		return !fact.Settled(p, fp.Leader) && !fp.HandlersKept() || !hadItsTurn(p, fp.Container) ||
			!took(fp) || !took(program) && !program.HadHandler(fp.Container.StopSignal) || heldUp(p, fp) || trapTold(p, fp)
	})
}

// heldUp reports whether something else than what the program does may have kept it from its end.
func heldUp(p *fact.View, fp fact.FirstProcess) bool {
	t := fp.Leader
	// A tracer is told of each signal first and may keep it, or be late. Of what hangs SIGKILL shows whether that can end.
	return t.CoreDumping || t.State == evidence.Stopped || t.TracerPID != 0 || fact.FrozenGroup(p, t) != nil || hangs(p, fp)
}

// asked returns the program that was asked to end: the one that a small init hands its signals to, else the first
// process itself.
func asked(p *fact.View, fp fact.FirstProcess) fact.FirstProcess {
	if child := fp.ForwardsTo(); child != nil {
		return fact.Assemble(p, fp.Container, child)
	}
	return fp
}

// trapTold reports whether the program is a shell that puts its trap off for certain, which is told as that
// (ShellPID1TrapDeferred, ChildIgnoresForwardedSignal).
func trapTold(p *fact.View, fp fact.FirstProcess) bool {
	if fp.ForwardsTo() != nil {
		return fp.DeafChild(p) != nil
	}
	child, _ := fp.Foreground(p)
	return child != nil && fp.MayPutTrapOff(p)
}

// took reports whether the stop signal reaches the process, did so when it came, and does not wait to be
// taken. A program that takes signals with sigwait or signalfd blocks them. One that
// waits for signals in sigwait has not shown that this one is among them.
func took(fp fact.FirstProcess) bool {
	sig := fp.Container.StopSignal
	if fp.Expects(sig) && fp.ForwardsTo() == nil || fp.Leader.SharedPending.Has(sig) { // a thread that hangs in the kernel leaves it pending
		return false
	}
	r := fp.Receives(sig)
	return r == fact.Took || (r == fact.Caught || r == fact.Blocked) && fp.HandledBefore(sig)
}

// hangs reports whether a thread waits for a disk, a server or a FUSE daemon and
// has not run for a while. It may be the one that has to take the signal.
func hangs(p *fact.View, fp fact.FirstProcess) bool {
	return slices.ContainsFunc(fp.Threads, func(t *evidence.Task) bool {
		return (t.State == evidence.Uninterruptible || fact.Through(t, "request_wait_answer")) && t.Unchanged(p.Time) >= fact.LeastStill
	})
}

// slowFinding is what both causes say of a program that was not done in time.
func slowFinding(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Proved)
	if child := fp.ForwardsTo(); child != nil {
		f.Objects.Process = diagnose.ProcessOf(p, child)
	}
	return f
}

// squeezed finds the limit that held the program down for half of the grace
// period or more, up to the last reading: that of processors, or that of memory,
// nil for what did not.
func squeezed(p *fact.View, fp fact.FirstProcess) (*evidence.CPU, *evidence.Memory) {
	long := func(since time.Time) bool {
		return !since.IsZero() && p.Time.Sub(since) >= max(fact.Grace(p)/2, fact.LeastStill)
	}
	for i := range p.Cgroups {
		g := &p.Cgroups[i]
		if g.Container != fp.Container.ID && g.Container != "" {
			continue
		}
		if c := g.CPU; c != nil && c.Millis > 0 && long(c.ThrottledSince) && (g.Container != "" || usesMost(p, fp, c)) {
			return c, nil
		}
		if m := g.Memory; m != nil && m.High > 0 && m.Current > m.High && long(m.StalledSince) && (g.Container != "" || holdsMost(p, fp, m)) {
			return nil, m
		}
	}
	return nil, nil
}

// usesMost reports whether the program's container is what uses up the limit of
// the whole pod.
func usesMost(p *fact.View, fp fact.FirstProcess, pod *evidence.CPU) bool {
	for i := range p.Cgroups {
		if g := &p.Cgroups[i]; g.Container == fp.Container.ID && g.CPU != nil {
			return g.CPU.RecentMillis*2 > pod.RecentMillis
		}
	}
	return false
}

// holdsMost reports whether the program's container is what has most of the memory of the whole
// pod.
func holdsMost(p *fact.View, fp fact.FirstProcess, pod *evidence.Memory) bool {
	for i := range p.Cgroups {
		if g := &p.Cgroups[i]; g.Container == fp.Container.ID && g.Memory != nil {
			return g.Memory.Current*2 > pod.Current
		}
	}
	return false
}

// hadItsTurn reports whether a container was asked to stop when the deletion began.
// A sidecar is stopped after the containers of the app and the sidecars that the
// specification has behind it, and has two seconds left when these have used up
// the grace period (minimumGracePeriodInSeconds and terminationOrdering,
// pkg/kubelet/kuberuntime).
func hadItsTurn(p *fact.View, c *evidence.Container) bool {
	if c.Kind != evidence.Sidecar {
		return true
	}
	behind := false
	for i := range p.Containers {
		o := &p.Containers[i]
		if o == c {
			behind = true
			continue
		}
		if o.Kind != evidence.App && (o.Kind != evidence.Sidecar || !behind) {
			continue
		}
		if o.Exit == nil || o.Exit.At.Sub(p.DeletionRequested) > min(turnTakes, fact.Grace(p)/4) {
			return false
		}
	}
	return true
}

// turnTakes is the time after the request for deletion within which what a sidecar
// waits for must have ended for the sidecar to have had the grace period.
const turnTakes = 5 * time.Second
