package verdict

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	// withdrawAfter is how long a cause has to stay away before it is taken back, from the first look on that could
	// have found it.
	withdrawAfter = 15 * time.Second
	// blindAfter is how long a cause that cannot be looked for any more, for
	// want of a source, still stands against the verdict Unknown, and symptomAfter against a cause that it explains.
	blindAfter   = 2 * time.Minute
	symptomAfter = 30 * time.Second
	// uneven is by how much two readings may differ in what they take: the node's part is read first, and its pods after that.
	uneven = 10 * time.Second
)

// An Outcome is what one look means for what stands about the pod.
type Outcome int

// The outcomes.
const (
	Nothing   Outcome = iota // nothing stands, nothing is to be told
	Found                    // what this look has found stands, and is to be told
	Held                     // what stood before still stands
	Withdrawn                // what stood before is not true any more
)

// A lastFound is the look that found last what stands, at a time that is zero when an agent before this one did, and the sources that the
// rule uses and that were missing then.
type lastFound struct {
	at     time.Time
	lacked []evidence.Source
}

// An absence is the time for which looks have found nothing better than Unknown, and
// that for which those have that could look for what stands. They differ after a source
// could not be read for a while: the first reading then cannot show that something does
// not move.
type absence struct {
	since, refuted time.Time
	blind          time.Time // the first of the looks in a row that could not
	// due is when what stands is found again at the latest, if nothing changes until then; zero when that is not said. It is
	// said once: what is not found then has changed.
	due time.Time
	// ended reports whether what stands has been seen to end.
	ended bool
}

// judge weighs the verdict of a look against the cause that stood before it, ""
// for none. Unknown is not absent: a cause whose rule could not run for want
// of a source is not taken back, nor is one that stays, because nothing has refuted it, nor one that only time keeps from being
// found.
func (a *absence) judge(now time.Time, stood string, stays bool, last lastFound, d *diagnose.Diagnosis) (Outcome, diagnose.Finding) {
	f, found := d.Verdict()
	lost := slices.ContainsFunc(d.Lacks(stood), func(s evidence.Source) bool { return !slices.Contains(last.lacked, s) })
	if a.since.IsZero() {
		a.since = now
	}
	blind := stood != "" && (stays || d.Blind(stood, a.since) || lost && now.Sub(a.since) < blindAfter)
	away := now.Sub(a.since)
	if found && f.Cause != diagnose.Unrecognised.Cause {
		if blind && f.Cause != stood && away < symptomAfter && d.Explains(stood, f.Cause) {
			return Held, diagnose.Finding{}
		}
		*a = absence{}
		return Found, f
	}
	if a.waits(now, stood, last.at, blind, found, d) {
		return Held, diagnose.Finding{}
	}
	switch {
	case blind && a.blind.IsZero():
		a.blind = now
	case blind:
	default:
		if a.refuted.IsZero() || a.wasBlind(now) {
			a.refuted = now
		}
		a.blind = time.Time{}
	}
	switch {
	case found && f.Cause == stood:
		return Found, f
	case blind && (!found || away < blindAfter):
		return Held, diagnose.Finding{}
	case stood != "" && !blind && now.Sub(a.refuted) < withdrawAfter:
		return Held, diagnose.Finding{}
	case away < withdrawAfter:
		return Nothing, diagnose.Finding{}
	case found:
		return Found, f
	case stood != "":
		return Withdrawn, diagnose.Finding{}
	}
	return Nothing, diagnose.Finding{}
}

// wasBlind reports whether looks could not look for what stands until this one, for so long that the times of what they read begin anew.
func (a *absence) wasBlind(now time.Time) bool {
	return !a.blind.IsZero() && now.Sub(a.blind) >= withdrawAfter
}

// waits reports whether only time is missing for what stands to be found again: a new agent has not seen for long enough that nothing
// moves, or one whose source was away, or whose node is short of processors now. Of a cause that cannot be looked for, that is asked only
// before Unknown takes its place.
func (a *absence) waits(now time.Time, stood string, at time.Time, blind, found bool, d *diagnose.Diagnosis) bool {
	if stood == "" || stood == diagnose.Unrecognised.Cause || blind && (!found || now.Sub(a.since) < blindAfter) {
		return false
	}
	// A look without a source begins the times anew of what it shows. One that is missing now and then puts nothing off for ever.
	if !blind && (a.wasBlind(now) || !a.blind.IsZero() && now.Sub(a.since) < blindAfter) {
		a.due = time.Time{}
	}
	if !blind {
		a.blind = time.Time{}
		a.ended = a.ended || d.Ended(stood, at)
	}
	if a.due.IsZero() {
		by, ok := d.Early(stood, a.ended)
		if ok {
			a.due = now.Add(by + uneven)
		}
		return ok
	}
	return now.Before(a.due) && d.FoundIn(stood, a.ended, a.due.Sub(now))
}
