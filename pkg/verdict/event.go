package verdict

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// confirmAfter is the time between two confirmations of an Event whose cause
// stands. An Event lives for an hour after its last write by default.
const confirmAfter = 10 * time.Minute

// An Event is one that is known to exist.
type Event struct {
	Namespace, Name string
	Count           int32
	Observed        time.Time // when it was last written
}

// An eventState is what is known of the Event about the cause that stands.
type eventState struct {
	cause string
	known *Event // nil while it is not known to exist
	retry backoff
}

// EventDue reports whether the Event about what the last look found is to be
// written now: created if the Event is nil, otherwise confirmed. An Event cannot
// be taken back, so one about a cause that is not proved waits for the second
// look to agree. When somebody has refused the condition for the first time at this look,
// the Event waits for the next one, which knows and names them.
func (c *Case) EventDue() (*Event, bool) {
	t := c.Last.Time
	switch known := c.event.known; {
	case known == nil && c.condition.refusedFirst(t):
		return nil, false
	case c.looks < 2 && c.finding.Confidence != diagnose.Proved, c.event.retry.waits(t):
		return nil, false
	case known == nil:
		return nil, true
	default:
		return known, t.Sub(known.Observed) >= confirmAfter
	}
}

// tells reports whether an Event is to be created now.
func (c *Case) tells() bool {
	known, due := c.EventDue()
	return due && known == nil
}

// EventWritten takes note of the Event as it is now; nil means that there is none
// any more.
func (c *Case) EventWritten(e *Event) {
	c.event.known = e
	c.event.retry = backoff{}
	c.told = c.told || e != nil
	c.note(func(s *Standing) { s.Reported = s.Reported || e != nil && s.Cause == c.event.cause })
}

// EventFailed takes note of a write that has failed, and of whether nobody was there to answer. It returns how many
// have failed in a row.
func (c *Case) EventFailed(unreachable bool) int {
	return c.event.retry.failed(c.Last.Time, unreachable)
}

// Told reports whether there has been an Event about the pod.
func (c *Case) Told() bool { return c.told }
