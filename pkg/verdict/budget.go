package verdict

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

const (
	// budgetTime is the time in which no more than Budget.PerMinute verdicts are
	// told freely.
	budgetTime = time.Minute
	// repeatAfter is the time after which a workload is told of again beyond that,
	// which is as long as an Event lives by default.
	repeatAfter = time.Hour
	// maxWorkloads is how many workloads are told of in repeatAfter, and remembered.
	maxWorkloads = 200
	// lateBy is how far past its deadline a pod is late, and told of whatever the
	// budget says. SIGKILL ends most pods a second or two after their deadline.
	lateBy = 10 * time.Second
)

// A Budget bounds what is told about pods that terminate on time, or nearly so, and
// about those that are gone: there is something to tell on every deletion of a pod that
// does not heed its stop signal, and a drain or a CI cluster deletes thousands. Beyond
// PerMinute a workload is told of once an hour, and at most 200 workloads. What stands
// about a pod ten seconds past its deadline is always told. A Budget is safe for use by
// several goroutines.
type Budget struct {
	// PerMinute is how many verdicts are told in any minute, whatever they are about.
	PerMinute int

	mu        sync.Mutex
	told      []time.Time // the last PerMinute, in order
	workloads map[workload]time.Time
}

// A workload is what is told of once: the pods of a controller, or one that has none, with the same cause in the same container. It is
// kept for an hour, and is as long whatever the pod's creator has written: a hash of the namespace, in which nobody else names owners,
// and of the rest.
type workload [sha256.Size]byte

func workloadOf(s Subject, f *diagnose.Finding) workload {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", s.Namespace, cmp.Or(s.Owner, s.UID), f.Container, f.Cause))
}

// Allow reports whether a finding about the pod is to be told at the time t, and
// takes note of it then.
func (b *Budget) Allow(s Subject, f *diagnose.Finding, t time.Time) bool {
	w := workloadOf(s, f)
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.told) > 0 && t.Sub(b.told[0]) >= budgetTime {
		b.told = b.told[1:]
	}
	if len(b.told) < b.PerMinute {
		b.told = append(b.told, t)
		b.remember(w, t)
		return true
	}
	if last, ok := b.workloads[w]; ok && t.Sub(last) < repeatAfter {
		return false
	}
	return b.remember(w, t)
}

// remember notes that the workload was told of, and reports whether there was room.
func (b *Budget) remember(w workload, t time.Time) bool {
	if _, ok := b.workloads[w]; !ok && len(b.workloads) >= maxWorkloads {
		for other, last := range b.workloads {
			if t.Sub(last) >= repeatAfter {
				delete(b.workloads, other)
			}
		}
		if len(b.workloads) >= maxWorkloads {
			return false
		}
	}
	if b.workloads == nil {
		b.workloads = make(map[workload]time.Time)
	}
	b.workloads[w] = t
	return true
}

// A weighed verdict is one about which Budget has been asked.
type weighed struct {
	finding  diagnose.Finding
	heldBack bool // it is not told
	late     bool // it was held back, and is told as it was found
}

// Weigh decides after Judge whether the verdict is told, and reports whether it has
// just been held back. That is decided once for a cause. One that was held back and
// still stands when the pod is late, because SIGKILL is, is told as it was found.
func (c *Case) Weigh(b *Budget) (heldBack bool) {
	w := &c.weighed
	defer func() { c.note(func(s *Standing) { s.HeldBack = w.heldBack && s.Cause != "" }) }()
	isLate := c.Last.Overdue() >= lateBy
	switch c.outcome {
	case Nothing:
		*w = weighed{}
	case Held:
		if isLate && (w.heldBack || w.late) {
			w.heldBack, w.late = false, true
			c.outcome, c.finding, c.Diagnosis.Phase = Found, w.finding, c.Standing().Phase
		}
	case Found:
		known := w.finding.Cause == c.finding.Cause
		w.finding, w.late = c.finding, false
		switch {
		case isLate, c.condition.current(c.Subject, c.Last.Time) != nil: // what stands on the pod, Resolved too, is kept true
			w.heldBack = false
		case !known:
			w.heldBack = !b.Allow(c.Subject, &c.finding, c.Last.Time)
			return w.heldBack
		}
	case Withdrawn:
	}
	return false
}

// Allowed reports whether a cause has had its share of the budget already.
func (c *Case) Allowed(cause string) bool {
	return c.weighed.finding.Cause == cause && !c.weighed.heldBack
}

// HeldBack reports whether nothing is to be written about what stands, or about its
// end.
func (c *Case) HeldBack() bool { return c.weighed.heldBack }
