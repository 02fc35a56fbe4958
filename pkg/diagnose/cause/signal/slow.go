package signal

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// slowSources are the sources for what happened to the signal, and the kubelet's Events.
var slowSources = append(slices.Clone(fact.SignalSources), evidence.Events)

// slow returns the first processes that have taken their stop signal, as far as
// can be seen, and have not exited within the grace period.
func slow(p *fact.View) []fact.FirstProcess {
	// A grace period of 0 is that of a force delete. A process that was seen alive
	// long after the deadline was not killed by the SIGKILL of the deadline.
	if fact.Grace(p) < fact.LeastStill || p.Overdue() >= fact.KillLatency {
		return nil
	}
	// A runtime that could not send the stop signal reports it to the kubelet, and
	// nothing in the process shows it.
	if len(p.KillFailures) > 0 {
		return nil
	}
	return slices.DeleteFunc(fact.Sent(p), func(fp fact.FirstProcess) bool {
		program := asked(p, fp)
		return !fact.Settled(p, fp.Leader) && !fp.HandlersKept() || !hadItsTurn(p, fp) ||
			!took(fp) || !took(program) && !program.HadHandler(fp.Container.StopSignal) || heldUp(p, fp) || trapTold(p, fp)
	})
}

// heldUp reports whether something other than the program itself may have kept it from exiting.
func heldUp(p *fact.View, fp fact.FirstProcess) bool {
	t := fp.Leader
	// A tracer gets each signal first, and may keep it or be late. SIGKILL shows whether a process that hangs can exit.
	return t.CoreDumping || t.State == evidence.Stopped || t.TracerPID != 0 || fact.FrozenGroup(p, t) != nil || hangs(p, fp)
}

// asked returns the program that was asked to exit: the one that a small init forwards its signals to, else the first
// process itself.
func asked(p *fact.View, fp fact.FirstProcess) fact.FirstProcess {
	if child := fp.ForwardsTo(); child != nil {
		return fact.Assemble(p, fp.Container, child)
	}
	return fp
}

// trapTold reports whether the program is a shell that is known to defer its trap, for which another cause is reported
// (ShellPID1TrapDeferred, ChildIgnoresForwardedSignal).
func trapTold(p *fact.View, fp fact.FirstProcess) bool {
	if fp.ForwardsTo() != nil {
		return fp.DeafChild(p)
	}
	child, _ := fp.Foreground(p)
	return child != nil && fp.MayPutTrapOff(p)
}

// took reports whether the stop signal reaches the process, did so when it came, and is not pending. A program that takes
// signals with sigwait or signalfd blocks them. One that sleeps in sigwait does not show that it waits for this signal.
func took(fp fact.FirstProcess) bool {
	sig := fp.Container.StopSignal
	if fp.Expects(sig) && fp.ForwardsTo() == nil || fp.Leader.SharedPending.Has(sig) { // a thread that hangs in the kernel leaves it pending
		return false
	}
	r := fp.Receives(sig)
	return r == fact.Took || (r == fact.Caught || r == fact.Blocked) && fp.HandledBefore(sig)
}

// hangs reports whether a thread waits for a disk, a server or a FUSE daemon, and
// has not run for a while. It may be the thread that has to take the signal.
func hangs(p *fact.View, fp fact.FirstProcess) bool {
	return slices.ContainsFunc(fp.Threads, func(t *evidence.Task) bool {
		return (t.State == evidence.Uninterruptible || fact.Through(t, "request_wait_answer")) && t.Unchanged(p.Time) >= fact.LeastStill
	})
}

// slowFinding returns the finding of both causes for a program that was not done in time.
func slowFinding(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Proved)
	if child := fp.ForwardsTo(); child != nil {
		f.Objects.Process = diagnose.ProcessOf(p, child)
	}
	return f
}

// squeezed returns the limit that slowed the program down for half of the grace
// period or more, up to the last reading: of CPU or of memory, nil for the other.
// A limit of the whole pod counts if this container uses more than half of what the pod uses.
func squeezed(p *fact.View, fp fact.FirstProcess) (*evidence.CPU, *evidence.Memory) {
	own := containerGroup(p, fp.Container.ID)
	for i := range p.Cgroups {
		g := &p.Cgroups[i]
		ofPod := g.Container == ""
		switch c, m := g.CPU, g.Memory; {
		case !ofPod && g.Container != fp.Container.ID:
		case throttled(p, c) && (!ofPod || own != nil && own.CPU != nil && own.CPU.RecentMillis*2 > c.RecentMillis):
			return c, nil
		case overHigh(p, m) && (!ofPod || own != nil && own.Memory != nil && own.Memory.Current*2 > m.Current):
			return nil, m
		}
	}
	return nil, nil
}

// throttled reports whether a cgroup was throttled by its CPU quota for that long.
func throttled(p *fact.View, c *evidence.CPU) bool {
	return c != nil && c.Millis > 0 && forHalf(p, c.ThrottledSince)
}

// overHigh reports whether a cgroup above memory.high has waited for memory for that long.
func overHigh(p *fact.View, m *evidence.Memory) bool {
	return m != nil && m.High > 0 && m.Current > m.High && forHalf(p, m.StalledSince)
}

// forHalf reports whether something has lasted for half of the grace period or more. A zero time means that it does not last.
func forHalf(p *fact.View, since time.Time) bool {
	return !since.IsZero() && p.Time.Sub(since) >= max(fact.Grace(p)/2, fact.LeastStill)
}

// hadItsTurn reports whether a container of a pod that is gone was asked to stop when the deletion began.
// A sidecar is stopped after the containers of the app, and after the sidecars that
// follow it in the specification. It has two seconds left if they have used up the
// grace period (minimumGracePeriodInSeconds and terminationOrdering,
// pkg/kubelet/kuberuntime).
func hadItsTurn(p *fact.View, fp fact.FirstProcess) bool {
	c := fp.Container
	if !p.Gone || c.Kind != evidence.Sidecar {
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

// turnTakes is the time after the request for deletion within which the containers
// that a sidecar waits for must have exited, so that the sidecar had the grace period.
const turnTakes = 5 * time.Second
