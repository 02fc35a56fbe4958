package signal

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unfinished are the facts by which a first process, and the program that a small init runs for it, has taken its stop signal, as far as can be
// seen, and has not exited within the grace period.
var unfinished = slices.Concat(facts{
	{Says: "The grace period is three seconds or longer: that of a force delete is 0.", Pod: diagnose.IfPod(hadGrace)},
	{Says: "The processes were last seen before the deadline, or less than ten seconds after it. What lives longer was not ended by its SIGKILL.",
		Pod: diagnose.IfPod(lastSeenInTime)},
	{Says: "The kubelet's Events report no failure to stop the pod.", Pod: diagnose.IfPod(noKillFailure), From: []evidence.Source{evidence.Events}},
}, sent, facts{
	{Says: "Two readings, three seconds or more apart, show that the process does the same with signals. " +
		"Or it has the handlers that it had before the deletion, and ignores the same signals.", Is: diagnose.If(handlersKnown), Partly: ofSuspects},
	hadTurn,
	{Says: "Under a small init such as tini, the next four items hold for the program that it runs, too. " +
		"They need not if that program has removed its handler since the deletion."},
	{Says: "The process does not sleep in sigwait without a bit in SigCgt or SigBlk. What PID 1 waits for without having blocked it, " +
		"the kernel drops. A small init may sleep so.", Is: ofBoth(expectsNothing), From: ofSuspects},
	{Says: "The stop signal is not pending (ShdPnd).", Is: ofBoth(hasNonePending)},
	{Says: "The stop signal is in SigCgt, or was in two readings shortly before the deletion. Or it is blocked (SigBlk), as with sigwait and signalfd.",
		Is: ofBoth(takesSignal), From: ofSuspects},
	{Says: "A reading from before the deletion shows the same. Without one, the process had lived for 15 seconds by then, " +
		"and was not seen to change what it does with signals since. A program that starts has no handler yet.", Is: ofBoth(tookBefore), From: ofSuspects},
	{Says: "The first process is not stopped (state T).", Is: diagnose.If(runsOn)},
	{Says: "The first process has no tracer (TracerPid), which gets each signal first, and may keep it or be late.", Is: diagnose.If(untraced)},
	{Says: "The first process writes no core dump (CoreDumping).", Is: diagnose.If(dumpsNoCore)},
	{Says: "The cgroup of the first process is not frozen.", Is: diagnose.If(notFrozen), From: ofCgroups},
	{Says: "No thread of the first process has waited three seconds for a disk, a server or a FUSE daemon. SIGKILL shows whether it can exit.",
		Is: diagnose.If(hangsNowhere), From: ofSuspects},
	{Says: "The program is no shell that is known to defer its trap, and acts on what a small init forwards. " +
		"Otherwise it is ShellPID1TrapDeferred or ChildIgnoresForwardedSignal.", Is: diagnose.If(trapUntold), From: ofSuspects},
})

func hadGrace(p *fact.View) bool { return fact.Grace(p) >= fact.LeastStill }

func lastSeenInTime(p *fact.View) bool { return p.Overdue() < fact.KillLatency }

// noKillFailure reports whether the kubelet has not reported that the runtime could not send the stop signal, which nothing in the process shows.
func noKillFailure(p *fact.View) bool { return len(p.KillFailures) == 0 }

func handlersKnown(p *fact.View, fp fact.FirstProcess) bool {
	return fact.Settled(p, fp.Leader) || fp.HandlersKept()
}

// ofBoth makes a fact about the first process, and about the program that was asked to exit.
func ofBoth(is func(fact.FirstProcess) bool) func(*fact.View, fact.FirstProcess) diagnose.Holding {
	return func(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
		if fp.ForwardsUnread() {
			return diagnose.NotRead(evidence.Suspects)
		}
		program := asked(p, fp)
		return diagnose.Is(is(fp) && (is(program) || program.HadHandler(fp.Container.StopSignal)))
	}
}

// expectsNothing reports whether the process is a small init, or does not sleep in sigwait with no bit of the stop signal: such a sleep does not
// show that it waits for this signal.
func expectsNothing(fp fact.FirstProcess) bool {
	return !fp.Expects(fp.Container.StopSignal) || fp.ForwardsTo() != nil
}

// hasNonePending reports whether the stop signal does not wait to be taken: a thread that hangs in the kernel leaves it pending.
func hasNonePending(fp fact.FirstProcess) bool { return !fp.Leader.Sent(fp.Container.StopSignal) }

// takesSignal reports whether the stop signal reaches the process. A program that takes signals with sigwait or signalfd blocks them.
func takesSignal(fp fact.FirstProcess) bool {
	r := fp.Receives(fp.Container.StopSignal)
	return r == fact.Took || r == fact.Caught || r == fact.Blocked
}

// tookBefore reports whether the stop signal did so when it came.
func tookBefore(fp fact.FirstProcess) bool {
	sig := fp.Container.StopSignal
	return fp.Receives(sig) == fact.Took || fp.HandledBefore(sig)
}

func runsOn(_ *fact.View, fp fact.FirstProcess) bool { return fp.Leader.State != evidence.Stopped }

func untraced(_ *fact.View, fp fact.FirstProcess) bool { return fp.Leader.TracerPID == 0 }

func dumpsNoCore(_ *fact.View, fp fact.FirstProcess) bool { return !fp.Leader.CoreDumping }

func notFrozen(p *fact.View, fp fact.FirstProcess) bool { return fact.FrozenGroup(p, fp.Leader) == nil }

// asked returns the program that was asked to exit: the one that a small init forwards its signals to, else the first
// process itself.
func asked(p *fact.View, fp fact.FirstProcess) fact.FirstProcess {
	if child := fp.ForwardsTo(); child != nil {
		return fact.Assemble(p, fp.Container, child)
	}
	return fp
}

// trapUntold reports whether the program is no shell that is known to defer its trap, for which another cause is reported
// (ShellPID1TrapDeferred, ChildIgnoresForwardedSignal).
func trapUntold(p *fact.View, fp fact.FirstProcess) bool {
	if fp.ForwardsTo() != nil {
		return !fp.DeafChild(p)
	}
	child, _ := fp.Foreground(p)
	return child == nil || !fp.MayPutTrapOff(p)
}

// hangsNowhere reports whether no thread waits for a disk, a server or a FUSE daemon, and
// has not run for a while. It may be the thread that has to take the signal.
func hangsNowhere(p *fact.View, fp fact.FirstProcess) bool {
	return !slices.ContainsFunc(fp.Threads, func(t *evidence.Task) bool {
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
