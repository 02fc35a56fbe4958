package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

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
)

// Receives returns what becomes of the container's stop signal. The kernel drops
// a signal to the init of a PID namespace that has no handler for it
// (SIGNAL_UNKILLABLE, kernel/signal.c), unless the leader, which it is sent to,
// blocks it (sig_ignored); the masks of other threads do not matter. A thread in
// sigwait shows no trace of the signals it waits for, neither caught nor
// blocked, so the system call that the leader sleeps in must be known.
func (fp FirstProcess) Receives(sig evidence.Signal) Reception {
	t := fp.Leader
	if sig == evidence.SIGKILL || sig == evidence.SIGSTOP || t.State == evidence.Zombie || Dying(t) {
		return ReceptionUnknown
	}
	allBlock := true
	for _, th := range fp.Threads {
		if waitsForSignals(th) {
			return Caught
		}
		allBlock = allBlock && th.Blocked.Has(sig)
	}
	switch {
	case t.Caught.Has(sig):
		return Caught
	case t.Ignored.Has(sig):
		return Ignored
	case allBlock:
		return Blocked
	case t.Blocked.Has(sig):
		// It stays pending for the other threads, and one may be about to wait
		// for it.
		return ReceptionUnknown
	case t.Probe == nil || t.Probe.Syscall == "":
		return ReceptionUnknown
	case t.NamespaceInit():
		return Dropped
	}
	return Fatal
}

func waitsForSignals(t *evidence.Task) bool {
	return t.Probe != nil && (t.Probe.Syscall == "rt_sigtimedwait" || t.Probe.Syscall == "rt_sigtimedwait_time64")
}

// Pending reports whether a signal to the process has been waiting to be taken
// for two readings.
func Pending(p *evidence.Pod, t *evidence.Task, sig evidence.Signal) bool {
	return t.SharedPending.Has(sig) && !t.PendingSince.IsZero() && p.Time.Sub(t.PendingSince) >= Stuck
}

// Mismatched reports whether the stop signal is not SIGTERM and reaches nothing,
// while the process has a handler for another signal that asks programs to end.
func (fp FirstProcess) Mismatched() bool {
	sig := fp.Container.StopSignal
	if sig == evidence.SIGTERM || fp.HandledInstead() == 0 {
		return false
	}
	r := fp.Receives(sig)
	return r == Dropped || r == Ignored
}

// HandledInstead returns the signal that asks programs to end and that the
// process has a handler for, 0 for none.
func (fp FirstProcess) HandledInstead() evidence.Signal {
	for _, s := range []evidence.Signal{evidence.SIGTERM, evidence.SIGINT, evidence.SIGQUIT} {
		if s != fp.Container.StopSignal && fp.Leader.Caught.Has(s) {
			return s
		}
	}
	return 0
}

// A Deaf is a process that a small init hands its signals to and that does not
// act on them.
type Deaf struct {
	Child *evidence.Task
	// Why is Ignored; Blocked; or Caught, by a shell that puts its trap off until
	// the program in its Foreground has ended.
	Why        Reception
	Foreground *evidence.Task
}

// DeafChild returns the child of a forwarding init that does not act on the stop
// signal, nil when there is none.
func (fp FirstProcess) DeafChild(p *evidence.Pod) *Deaf {
	t := fp.ForwardsTo()
	if t == nil || !Settled(p, t) || fp.Receives(fp.Container.StopSignal) != Caught {
		return nil
	}
	child := ProcessOf(p, fp.Container, t)
	sig := fp.Container.StopSignal
	d := &Deaf{Child: t, Why: child.Receives(sig)}
	switch d.Why {
	case Ignored:
		return d
	case Blocked:
		if Pending(p, t, sig) {
			return d
		}
	case Caught:
		if d.Foreground, _ = child.Foreground(p); d.Foreground != nil {
			return d
		}
	}
	return nil
}
