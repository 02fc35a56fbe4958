package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Reception is what becomes of a signal that is sent to a process.
type Reception int

// What becomes of a signal.
const (
	ReceptionUnknown Reception = iota
	Caught                     // a handler, sigwait or signalfd takes it
	Ignored                    // its action is to ignore
	Blocked                    // every thread blocks it
	Dropped                    // the kernel drops it, because the process is the init of a PID namespace
	Fatal                      // its default action ends the process
	Took                       // a handler took it that is not there any more
	MayHaveTaken               // the same, if the handler was not removed before
)

// Receives returns what becomes of the container's stop signal. That the signal is
// ignored or dropped is said only where the dispositions are known to be those that
// it met (whatMet).
func (fp FirstProcess) Receives(sig evidence.Signal) Reception {
	r := fp.Shows(sig)
	if r != Ignored && r != Dropped {
		return r
	}
	switch whatMet(fp.pod, fp.Leader, sig) {
	case metSame:
		return r
	case metHandler:
		return Took
	case metPerhaps:
		return MayHaveTaken
	}
	return ReceptionUnknown
}

// Shows returns what would become of a signal that is sent now. The kernel drops
// a signal to the init of a PID namespace that has no handler for it
// (SIGNAL_UNKILLABLE, kernel/signal.c), and to any process that ignores it, unless
// the leader, which it is sent to, blocks it or waits for it (sig_ignored); the
// masks of other threads do not matter, and what they wait for neither. A thread in
// sigwait shows no trace of the signals it waits for, neither caught nor
// blocked, so the system call that the leader sleeps in must be known.
func (fp FirstProcess) Shows(sig evidence.Signal) Reception {
	t := fp.Leader
	if sig == evidence.SIGKILL || sig == evidence.SIGSTOP || t.State == evidence.Zombie || Dying(t) {
		return ReceptionUnknown
	}
	own := shellsOwn(t, sig)
	switch {
	case t.InSigwait():
		return Caught
	case t.Caught.Has(sig) && own:
		return ReceptionUnknown
	case t.Caught.Has(sig):
		return Caught
	case keepsBlocked(t, sig):
		return fp.whileBlocked(sig)
	case t.Ignored.Has(sig) && !own:
		return Ignored
	case SleepsUnseen(t):
		return ReceptionUnknown // it may be in sigwait
	case t.NamespaceInit():
		return Dropped
	case t.Ignored.Has(sig), sig == evidence.SIGCHLD, sig == evidence.SIGWINCH: // the default action of these is to ignore
		return Ignored
	}
	return Fatal
}

// shellsOwn reports whether a process is a shell, and the signal one of those that it does something of its own with, which looks
// the same as a trap. dash has a handler for SIGINT, and bash for SIGINT, and ignores SIGQUIT: neither ends the shell as PID 1.
func shellsOwn(t *evidence.Task, sig evidence.Signal) bool {
	return (sig == evidence.SIGINT || sig == evidence.SIGQUIT) && Shell(t)
}

// keepsBlocked reports whether a process blocks the signal for longer than a moment: it is pending, or mayBlock.
func keepsBlocked(t *evidence.Task, sig evidence.Signal) bool {
	return t.Blocked.Has(sig) && t.Sent(sig) || mayBlock(t, Shell(t), sig)
}

// whileBlocked returns what becomes of a signal that the leader keeps blocked, by its other threads.
func (fp FirstProcess) whileBlocked(sig evidence.Signal) Reception {
	for _, th := range fp.Threads {
		switch {
		case th.InSigwait():
			return Caught
		case !th.Blocked.Has(sig):
			return ReceptionUnknown // it stays pending, and this thread may be about to wait for it
		}
	}
	return Blocked
}

// SleepsUnseen reports whether it is not known what the task sleeps in. One that runs is not
// in sigwait, unless it was: woken from that, as tini is each second, it may not have had a processor yet.
func SleepsUnseen(t *evidence.Task) bool {
	if t.State == evidence.Zombie || t.State == evidence.Runnable && !t.WasInSigwait {
		return false
	}
	return t.Probe == nil || t.Probe.Syscall == ""
}

// Expects reports whether the process waits for signals in sigwait and shows neither a
// handler for this one nor that it blocks it. It may wait for others: those that it
// waits for without having blocked them the kernel drops to PID 1 (sig_ignored looks at
// real_blocked).
func (fp FirstProcess) Expects(sig evidence.Signal) bool {
	return fp.Leader.InSigwait() && !(fp.Leader.Caught | fp.Leader.Blocked).Has(sig)
}

// pending reports whether a signal to the process has been waiting to be taken
// for two readings.
func pending(p *View, t *evidence.Task, sig evidence.Signal) bool {
	since := t.WaitsSince(sig)
	return !since.IsZero() && p.Time.Sub(since) >= LeastStill
}

// LeavesPending reports whether a process has not run at all since the signal began to
// wait (AsleepFrom), for half of the grace period: one that works on something that must not be
// interrupted blocks the signal meanwhile, and takes it afterwards. Of one with a preStop hook that is over, what the hook has left of
// the grace period counts.
func (fp FirstProcess) LeavesPending(p *View, sig evidence.Signal) bool {
	from, h := fp.AsleepFrom(p), p.Hook(fp.Container)
	return h.Past() && pending(p, fp.Leader, sig) && p.Time.Sub(h.SignalAt) >= HalfOf(p, fp.Container) &&
		p.Time.Sub(from) >= LeastStill && !fp.Ran().After(from)
}

// HalfOf returns half of the time from the stop signal of a container to the deadline.
func HalfOf(p *View, c *evidence.Container) time.Duration {
	return p.Deadline.Sub(p.Hook(c).SignalAt) / 2
}

// AsleepFrom returns from when on no thread of a process may have run, of which the stop signal is pending: from soon after it was sent. A
// process that was first seen late must be seen to sleep for half of the grace period.
func (fp FirstProcess) AsleepFrom(p *View) time.Time {
	half := HalfOf(p, fp.Container)
	from := p.Hook(fp.Container).SignalAt.Add(max(half/2, 2*LeastStill))
	if long := p.Time.Add(-half); !fp.Leader.PendingSince.After(long) && long.After(from) {
		return long
	}
	return from
}

// Ran returns when a thread of the process was last seen to have run.
func (fp FirstProcess) Ran() (last time.Time) {
	for _, t := range fp.Threads {
		last = Latest(last, t.UnchangedSince)
	}
	return last
}

// asking are signals that ask programs to do something, often to end.
const asking = evidence.SignalSet(1<<(evidence.SIGHUP-1) | 1<<(evidence.SIGINT-1) | 1<<(evidence.SIGQUIT-1) |
	1<<(evidence.SIGUSR1-1) | 1<<(evidence.SIGUSR2-1) | 1<<(evidence.SIGWINCH-1))

// MayHandleAnother reports whether the process is an init that can be told to pass on
// another signal than it gets (dumb-init --rewrite), and its child handles one of those
// that come into question.
func (fp FirstProcess) MayHandleAnother(child *evidence.Task) bool {
	const rewrites = "dumb-init"
	return (fp.Leader.Comm == rewrites || fp.Runs(rewrites)) && child.Caught&asking != 0
}

// HandledInstead returns the signal that asks programs to end and that the
// process has a handler for, 0 for none. Of a shell only a trap for SIGTERM counts,
// because it has handlers for the others that end nothing; and not while it runs a
// program, which would get none of them.
func (fp FirstProcess) HandledInstead() evidence.Signal {
	signals := []evidence.Signal{evidence.SIGTERM, evidence.SIGINT, evidence.SIGQUIT}
	if Shell(fp.Leader) {
		if len(fp.Children) > 0 {
			return 0
		}
		signals = signals[:1]
	}
	for _, s := range signals {
		if s != fp.Container.StopSignal && fp.Leader.Caught.Has(s) {
			return s
		}
	}
	return 0
}

// HeardBelow reports whether a descendant of the process in the same container may take
// the signal: dumb-init, and tini -g, send it to the whole process group, and a script
// may ignore it to outlive the program that it has started.
func HeardBelow(p *View, t *evidence.Task, sig evidence.Signal) bool {
	return slices.ContainsFunc(Below(p, t), func(c *evidence.Task) bool { return !c.Ignored.Has(sig) || c.Caught&asking != 0 })
}

// Below returns the descendants of a process in the same container that have not ended.
func Below(p *View, t *evidence.Task) (out []*evidence.Task) {
	below := map[int]bool{t.PID: true}
	for grown := true; grown; {
		grown = false
		for i := range p.Tasks {
			c := &p.Tasks[i]
			if c.Leader() && !below[c.PID] && below[c.PPID] && c.Container == t.Container && c.State != evidence.Zombie {
				out = append(out, c)
				below[c.PID], grown = true, true
			}
		}
	}
	return out
}

// DeafChild reports whether the child of a forwarding init does not act on the stop signal: it ignores it, leaves it pending, or is a shell
// that puts its trap off until the program in its foreground has ended. One that handles the signal may have been sent it with its group, as by
// dumb-init, and tini -g, and need some time.
func (fp FirstProcess) DeafChild(p *View) bool {
	t, sig := fp.ForwardsTo(), fp.Container.StopSignal
	if t == nil || !Settled(p, t) || fp.Receives(sig) != Caught {
		return false
	}
	child := Assemble(p, fp.Container, t)
	switch child.Receives(sig) {
	case Ignored:
		return !fp.MayHandleAnother(t) && !HeardBelow(p, t, sig)
	case Blocked:
		return child.LeavesPending(p, sig)
	case Caught:
		front, _ := child.Foreground(p)
		return front != nil && !front.Caught.Has(sig)
	}
	return false
}
