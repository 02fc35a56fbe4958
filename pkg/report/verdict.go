package report

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

// An action is what one look means for what stands on the pod.
type action int

const (
	silence  action = iota // nothing stands, nothing is to be told
	tell                   // the verdict of this look is to be told
	hold                   // what stands goes on standing
	withdraw               // what stands is not true any more
)

// An absence is the time for which looks have found nothing better than
// Unknown.
type absence struct{ since time.Time }

// judge weighs the verdict of a look against the cause that stands on the pod,
// "" for none. Unknown is not absent: a cause whose rule could not run for want
// of a source is not taken back.
func (a *absence) judge(now time.Time, standing string, d *diagnose.Diagnosis) (action, diagnose.Finding) {
	f, found := d.Verdict()
	if found && f.Cause != diagnose.Unrecognised.Cause {
		a.since = time.Time{}
		return tell, f
	}
	if a.since.IsZero() {
		a.since = now
	}
	away := now.Sub(a.since)
	switch {
	case found && f.Cause == standing:
		return tell, f
	case standing != "" && d.NotLookedFor(standing) && (!found || away < blindAfter):
		return hold, diagnose.Finding{}
	case away < withdrawAfter && standing != "":
		return hold, diagnose.Finding{}
	case away < withdrawAfter:
		return silence, diagnose.Finding{}
	case found:
		return tell, f
	case standing != "":
		return withdraw, diagnose.Finding{}
	}
	return silence, diagnose.Finding{}
}
