package diagnose

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A ground is what a diagnosis follows from. What is asked of a verdict that stood before, and that this diagnosis does not
// have, follows from it, too.
type ground struct {
	pod   *fact.View
	table Table
}

// row returns that of a cause, nil when there is none.
func (g *ground) row(cause string) *Row {
	if g == nil {
		return nil
	}
	i := slices.IndexFunc(g.table, func(r Row) bool { return r.Rule.Cause == cause })
	if i < 0 {
		return nil
	}
	return &g.table[i]
}

// Lacks returns the sources that could not be read of those that the rule of a cause uses, whichever phase the pod seems to be
// in: that may follow from what is missing.
func (d *Diagnosis) Lacks(cause string) []evidence.Source {
	row := d.ground.row(cause)
	if row == nil {
		return nil
	}
	return slices.DeleteFunc(row.Rule.Sources(), func(s evidence.Source) bool { return !fact.Missing(d.ground.pod, s) })
}

// Explains reports whether a cause, where it is found, explains or holds another one.
func (d *Diagnosis) Explains(cause, other string) bool {
	row := d.ground.row(cause)
	return row != nil && row.reaches(other)
}

// FoundIn reports whether a cause that is not found is found if nothing changes for so long, so that only time is missing now: two
// readings that show that nothing moves, as after a start of the agent or while the node is under pressure, or the next try of
// somebody who fails. ended says that it has been seen to end, so that no try is waited for.
func (d *Diagnosis) FoundIn(cause string, ended bool, by time.Duration) bool {
	if rest, _ := d.recurs(cause); !ended && rest > 0 && by >= rest {
		return true
	}
	return d.asks(cause) && d.finds(d.ground.pod.Later(by), cause)
}

// Ended reports whether a cause that was found at a time, is not seen in each reading, and is not found now, has ended: what shows it has been
// seen all the while.
func (d *Diagnosis) Ended(cause string, found time.Time) bool {
	within, since := d.recurs(cause)
	return within > 0 && !found.IsZero() && !since.After(found)
}

// leastEarly is how far apart readings are.
const leastEarly = 2 * time.Second

// Early returns after what time a cause that is not found is found if nothing changes until then, to within the time between two
// readings; ok is false if it is not found within the time after which nothing is open any more. ended is that of FoundIn.
func (d *Diagnosis) Early(cause string, ended bool) (by time.Duration, ok bool) {
	limit, ok := longestOpen, false
	if rest, _ := d.recurs(cause); !ended && rest > 0 {
		limit, ok = min(rest, limit), true
	}
	if !d.asks(cause) {
		return limit, ok
	}
	// Nothing is found in at, which is so much later.
	at, least := d.ground.pod.Pod, time.Duration(0)
	found := func(by time.Duration) bool {
		later := at.Later(by - least)
		if d.finds(later, cause) {
			return true
		}
		at, least = later, by
		return false
	}
	for by = leastEarly; by < limit && !found(by); by *= 2 {
	}
	if by >= limit {
		if by = limit; !ok && !found(by) {
			return 0, false
		}
	}
	for by-least > leastEarly {
		if half := (least + by) / 2; found(half) {
			by = half
		}
	}
	return by, true
}

// mostThreads is of how many threads a pod may have for its rules to be run on readings to come: each costs a copy of it.
const mostThreads = 1000

// asks reports whether the rules are run on readings to come.
func (d *Diagnosis) asks(cause string) bool {
	return d.ground.row(cause) != nil && len(d.ground.pod.Tasks) <= mostThreads
}

// finds reports whether a cause is found in a reading.
func (d *Diagnosis) finds(p *evidence.Pod, cause string) bool {
	later := Run(p, d.ground.table)
	return slices.ContainsFunc(later.Findings, func(f Finding) bool { return f.Cause == cause && !f.Symptom })
}

// recurs returns within what time a cause is seen again that is not seen in each reading, and since when what shows it is seen; 0 for
// another one, or when the pod is in no phase of it.
func (d *Diagnosis) recurs(cause string) (within time.Duration, since time.Time) {
	row := d.ground.row(cause)
	if row == nil || row.Rule.Recurs == nil || !d.ground.mayBeHere(row.Rule) {
		return 0, time.Time{}
	}
	return row.Rule.Recurs(d.ground.pod)
}

// mayBeHere reports whether a pod may be in one of a rule's phases. That the kubelet unmounts volumes is seen by its counts, too.
func (g *ground) mayBeHere(r *Rule) bool {
	p := g.pod
	phase := locate(p, g.table)
	return len(r.Phases) == 0 || phase == PhaseUnknown || slices.Contains(r.Phases, phase) ||
		slices.Contains(r.Phases, Volumes) && p.ContainersEnded() && len(p.Volumes) > 0
}
