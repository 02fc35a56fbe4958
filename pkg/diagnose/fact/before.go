package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// steady is for how long a program must have had the same dispositions before the
// deletion, to have set up all handlers that it ever has. nodeagent reads a pod that is as young
// often enough that its last readings are no further apart.
const steady = 15 * time.Second

// unrefreshed is how old the last reading from before the deletion may be for that.
const unrefreshed = 15 * time.Minute

// A met is what is known of the disposition that a signal met, sent after the
// request for deletion, where the process does not catch the signal now.
type met int

const (
	metUnknown met = iota
	metSame        // the one that is read now
	metHandler     // one that took it: a handler, or a mask for sigwait or signalfd, which is not there any more
	metPerhaps     // the same, if it was there until then
)

// whatMet compares what a process does with a signal now with a reading from before
// the deletion. A handler may change dispositions: Node.js removes that of
// process.once, and a shell's trap that ends its job begins with trap - TERM. After
// the signal such a program, which drains, looks like one that never had a handler.
// So the present is the past only of a process that has not run since then, or that
// has had the same dispositions for so long that it is not about to set up others.
func whatMet(p *View, t *evidence.Task, sig evidence.Signal) met {
	b := before(p, t)
	if b == nil {
		return metUnknown
	}
	shell := Shell(t)
	since := signalsSince(b, shell)
	lasted, age := p.Before.Read.Sub(since), p.DeletionRequested.Sub(p.Before.Read)
	lasting := !since.IsZero() && lasted >= steady
	// A program may have a handler for a part of its start only, as a script has that
	// prepares something, and all signals are blocked for a moment while one is started.
	kept := !since.IsZero() && lasted >= LeastStill && age <= min(lasted, unrefreshed)
	taken := (b.Caught.Has(sig) || mayBlock(b, shell, sig) && lasting) && !(t.Caught | t.Blocked).Has(sig)
	switch {
	case taken && kept:
		return metHandler
	case taken:
		return metPerhaps
	case !sameDisposition(b, t, shell, sig), mayBeEnding(p, b, sig, since):
		return metUnknown
	case sleptThrough(b, t), lasting && kept:
		return metSame
	}
	return metUnknown
}

// sameDisposition reports whether two readings of a process show the same of what it does with a signal.
func sameDisposition(b, t *evidence.Task, shell bool, sig evidence.Signal) bool {
	return b.Caught.Has(sig) == t.Caught.Has(sig) && b.Ignored.Has(sig) == t.Ignored.Has(sig) && mayBlock(b, shell, sig) == mayBlock(t, shell, sig)
}

// mayBeEnding reports whether a process may have taken a signal from before the deletion, and be about to end: the kubelet ends a container for
// its liveness probe, and SIGKILL comes when that grace period is over, which is the specification's. since is that of signalsSince.
func mayBeEnding(p *View, b *evidence.Task, sig evidence.Signal, since time.Time) bool {
	return b.Removed.Has(sig) && p.DeletionRequested.Sub(since) < max(Grace(p), time.Duration(p.SpecifiedGraceSeconds)*time.Second)
}

// signalsSince is since when readings in a row have shown the same dispositions of a process. What a shell blocks is
// left out: it blocks all for moments (mayBlock).
func signalsSince(t *evidence.Task, shell bool) time.Time {
	if shell && !t.ActionsSince.IsZero() {
		return t.ActionsSince
	}
	return t.SignalsSince
}

// sleptThrough reports whether a process has not run between two readings. A task that
// runs is not counted before it is switched, so it has to sleep in both.
func sleptThrough(before, now *evidence.Task) bool {
	return before.Threads == 1 && now.Threads == 1 && before.State == evidence.Sleeping && now.State == evidence.Sleeping && before.Switches == now.Switches
}

// SleptThrough reports whether a process of the pod has not run since a reading from
// before the deletion. What it does with signals has not changed then for certain; what
// has been the same for long most likely has not.
func SleptThrough(p *View, t *evidence.Task) bool {
	b := before(p, t)
	return b != nil && sleptThrough(b, t)
}

// HadHandler reports whether the process had a handler for the signal that it has
// removed since the deletion.
func (fp FirstProcess) HadHandler(sig evidence.Signal) bool {
	return whatMet(fp.pod, fp.Leader, sig) == metHandler
}

// HandledBefore reports whether the process took the signal before the deletion was
// requested, by a reading from before that, or has lived for so long by then that its
// handlers were there: a program that starts has none yet, and as the first process of its
// container it never gets the signal that came too early. One that was seen to set up others
// since the deletion may not have been done with its start, however long it has lived.
func (fp FirstProcess) HandledBefore(sig evidence.Signal) bool {
	// What a process waits for in sigwait is in none of its masks meanwhile.
	if b := before(fp.pod, fp.Leader); b != nil && (b.Caught.Has(sig) || b.Blocked.Has(sig) || !fp.Leader.InSigwait()) {
		return b.Caught.Has(sig) || b.Blocked.Has(sig)
	}
	changed := !fp.pod.UnchangedSince.IsZero() && fp.Leader.SignalsSince.After(fp.pod.UnchangedSince)
	pr := fp.Leader.Probe
	return !changed && pr != nil && !pr.Started.IsZero() && fp.pod.DeletionRequested.Sub(pr.Started) >= steady
}

// HandlesSince reports whether the process has a handler for the signal that it did not have before the deletion.
func (fp FirstProcess) HandlesSince(sig evidence.Signal) bool {
	b := before(fp.pod, fp.Leader)
	if b == nil && fp.pod.Before != nil && fp.Leader.Probe != nil && fp.Leader.Probe.Started.Before(fp.pod.DeletionRequested) {
		// It has executed another program since, and is the same process.
		if i := slices.IndexFunc(fp.pod.Before.Tasks, func(b evidence.Task) bool { return b.PID == fp.Leader.PID && b.Container == fp.Leader.Container }); i >= 0 {
			b = &fp.pod.Before.Tasks[i]
		}
	}
	return b != nil && fp.Leader.Caught.Has(sig) && !(b.Caught | b.Blocked).Has(sig) && !b.InSigwait()
}

// HandlersKept reports whether the process has the handlers that it had before the deletion,
// by a reading from then, and ignores the same signals. What it blocks may differ: a thread
// blocks signals while it is in a handler (sa_mask, sigaction(2)), Go's all of them.
func (fp FirstProcess) HandlersKept() bool {
	b := before(fp.pod, fp.Leader)
	return b != nil && b.Caught == fp.Leader.Caught && b.Ignored == fp.Leader.Ignored
}

// before returns the process as it was before the deletion, nil when that is not
// known or it ran another program.
func before(p *View, t *evidence.Task) *evidence.Task {
	// An API server that is slow to answer leaves the clocks in doubt, and is slow to
	// tell of deletions.
	if !p.Before.Precedes(p.DeletionRequested.Add(-max(0, p.ClockDoubt()-evidence.BaselineMargin))) {
		return nil
	}
	for i := range p.Before.Tasks {
		b := &p.Before.Tasks[i]
		if b.PID == t.PID && b.TID == t.TID && b.Container == t.Container && b.Comm == t.Comm {
			return b
		}
	}
	return nil
}

// DispositionUnknown reports whether a first process, or the program under a small init, does
// not take its stop signal now, and nothing shows whether it did before, or what it
// sleeps in could not be read, or takes it now and did not before the deletion: a verdict of an earlier reading, or
// of an earlier run of the agent, is not refuted then. The signal comes once, and is gone when it was dropped.
func DispositionUnknown(p *View) bool {
	for _, fp := range FirstProcesses(p) {
		sig := fp.Container.StopSignal
		if sig == 0 {
			continue
		}
		for _, t := range []*evidence.Task{fp.Leader, fp.ForwardsTo()} {
			if t == nil || t != fp.Leader && fp.MayHandleAnother(t) {
				continue
			}
			one := Assemble(p, fp.Container, t)
			r := one.Shows(sig)
			if (r == Ignored || r == Dropped) && whatMet(p, t, sig) == metUnknown || r == ReceptionUnknown && SleepsUnseen(t) && !Dying(t) ||
				r == Caught && one.HandlesSince(sig) {
				return true
			}
		}
	}
	return false
}
