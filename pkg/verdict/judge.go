package verdict

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

const (
	// withdrawAfter is how long a cause has to stay away before it is taken
	// back. The first reading of a restarted agent cannot show that something
	// does not move, which takes two; it must not end what is still true.
	withdrawAfter = 15 * time.Second
	// blindAfter is how long a cause that cannot be looked for any more, for
	// want of a source, still stands against the verdict Unknown.
	blindAfter = 2 * time.Minute
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

// An absence is the time for which looks have found nothing better than Unknown, and
// that for which those have that could look for what stands. They differ after a source
// could not be read for a while: the first reading then cannot show that something does
// not move.
type absence struct {
	since, refuted time.Time
	blind          time.Time // the first of the looks in a row that could not
}

// judge weighs the verdict of a look against the cause that stood before it, ""
// for none. Unknown is not absent: a cause whose rule could not run for want
// of a source is not taken back, nor is one that stays, because nothing has refuted it.
func (a *absence) judge(now time.Time, stood string, stays bool, d *diagnose.Diagnosis) (Outcome, diagnose.Finding) {
	f, found := d.Verdict()
	if found && f.Cause != diagnose.Unrecognised.Cause {
		*a = absence{}
		return Found, f
	}
	blind := stood != "" && (stays || d.NotLookedFor(stood))
	if a.since.IsZero() {
		a.since = now
	}
	switch {
	case blind && a.blind.IsZero():
		a.blind = now
	case blind:
	default:
		if a.refuted.IsZero() || !a.blind.IsZero() && now.Sub(a.blind) >= withdrawAfter {
			a.refuted = now
		}
		a.blind = time.Time{}
	}
	away := now.Sub(a.since)
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
