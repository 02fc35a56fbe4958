package fact

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Lingering is a process that a program runs and that has not ended, though the program was asked to.
type Lingering struct {
	Task *evidence.Task
	// Meets is what becomes of the container's stop signal in it, by the last reading. That it was sent
	// the signal is not known, but of one that is Blocked, in which the signal is pending, or one that Took it;
	// and of one for which it is Fatal it is known that it was not.
	Meets Reception
	// Alike counts the processes that the program runs, this one among them, as far as they
	// have not ended and are no sideshows.
	Alike int
	// Awaited reports whether the program sleeps in a system call that waits for its children, of
	// which this is, or leads to, the only one, sideshows among them.
	Awaited bool
	// New reports whether the program has started it, or what leads to it, after the request for deletion.
	New bool
}

// Lingers returns what the program runs and what has not ended: what a shell has started since the deletion and has run for long, else
// of several processes the youngest, one of before the deletion first. It is nil while a thread of the program is at work, which then does not
// wait, and when there is none. What somebody has executed in the container, as a hook does, is no child of the program.
func (fp FirstProcess) Lingers(p *View) *Lingering {
	for _, t := range fp.Threads {
		if t.State != evidence.Sleeping {
			return nil
		}
	}
	if c := fp.runsSince(p); c != nil {
		return &Lingering{Task: c, Alike: 1, Awaited: len(fp.Children) == 1 || fp.Runs("dash") || fp.Runs("busybox"), New: true}
	}
	l := &Lingering{Awaited: fp.awaitsOne()}
	all := slices.DeleteFunc(fp.programs(), func(c *evidence.Task) bool { return !l.Awaited && reads(c) })
	// What ignores the signal by design, as PostgreSQL's checkpointer, is not what is waited for where there is another one.
	ignoring := func(c *evidence.Task) bool { return c.Ignored.Has(fp.Container.StopSignal) }
	if slices.ContainsFunc(all, func(c *evidence.Task) bool { return !ignoring(c) }) {
		all = slices.DeleteFunc(all, ignoring)
	}
	for _, c := range all {
		// What a supervisor waits for is what it has started last: it stops the others after it.
		if fresh := startedSince(p, c); l.Task == nil || l.New && !fresh || l.New == fresh && Older(l.Task, c) {
			l.Task, l.New = c, fresh
		}
	}
	if l.Alike = len(all); l.Task == nil {
		return nil
	}
	l.Task = lastInLine(p, l.Task, fp.Container.StopSignal)
	l.Meets = meets(Assemble(p, fp.Container, l.Task))
	return l
}

// meets returns what becomes of the stop signal in a process, ReceptionUnknown where it is not certain: a signal that is
// blocked and not pending may have been taken with sigwait or signalfd, and one that would end the process now by a handler
// that is not there any more.
func meets(fp FirstProcess) Reception {
	t, sig := fp.Leader, fp.Container.StopSignal
	r := fp.Receives(sig)
	switch {
	case r == Blocked && !t.Sent(sig):
		return ReceptionUnknown
	case r != Fatal:
		return r
	case t.State != evidence.Sleeping && t.State != evidence.Runnable:
		return ReceptionUnknown // it may have been sent and not taken
	}
	switch whatMet(fp.pod, t, sig) {
	case metSame:
		return r
	case metHandler:
		return Took
	}
	return ReceptionUnknown
}

// runsSince returns the only child that a shell has started since the deletion, as its trap does, and that has run for a
// quarter of the grace period; nil when there is none. What was not there before the deletion, and started after it by
// the node's clock, is new: the trap starts it immediately.
func (fp FirstProcess) runsSince(p *View) *evidence.Task {
	if !Shell(fp.Leader) || !waitsForChildren(fp.Leader) {
		return nil
	}
	found := only(fp.living(), func(c *evidence.Task) bool { return mayBeNew(p, c) })
	if found == nil || p.Time.Sub(found.Probe.Started) < max(Grace(p)/4, LeastStill) {
		return nil
	}
	return found
}

// mayBeNew reports whether a process may have been started after the request for deletion, by clocks that may differ.
func mayBeNew(p *View, t *evidence.Task) bool {
	return t.Probe != nil && t.Probe.Started.After(p.DeletionRequested.Add(-ClockSkew))
}

// startedSince reports whether a process is known to have been started after the request for deletion.
func startedSince(p *View, t *evidence.Task) bool {
	return t.Probe != nil && t.Probe.Started.After(p.DeletionRequested.Add(ClockSkew))
}

// MayPutTrapOff reports whether the process is a shell with a trap that waits for a child which was there before the
// deletion, so that its trap may not have run. One that has reset itself has run.
func (fp FirstProcess) MayPutTrapOff(p *View) bool {
	return fp.WaitsForOldChild(p) && fp.Receives(fp.Container.StopSignal) != Took
}

// KeepsTrapOff returns the program for which such a shell puts its trap off, unless that is in the background, and whether it
// writes to a filter; nil where the trap has run: the shell has started another child since the deletion, which it does not
// before its trap, or it may have a trap for EXIT, which does not wait.
func (fp FirstProcess) KeepsTrapOff(p *View) (program *evidence.Task, role Role) {
	if !fp.MayPutTrapOff(p) || trapsExit(fp.Leader) || slices.ContainsFunc(fp.Children, func(c *evidence.Task) bool { return mayBeNew(p, c) }) {
		return nil, Unnamed
	}
	if program, role = fp.Main(p); program != nil {
		return program, role
	}
	all := fp.programs()
	if len(all) == 0 {
		all = fp.Children
	}
	return slices.MaxFunc(all, byAge), role
}
