package verdict

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	// cacheLag is how long after a write the object from the cache may still be
	// the old one. Later the cache is believed again, so that a condition which
	// somebody removed comes back.
	cacheLag = 30 * time.Second
	// rewordAfter is the least time between two writes that change nothing but
	// words. Each write is sent to everybody who watches the pod.
	rewordAfter = time.Minute
)

// A conditionState is what is known of the condition on the object, and of the
// attempts to write it.
type conditionState struct {
	written *Condition // what was written last; nil for nothing
	at      time.Time  // when
	retry   backoff
	refusal *evidence.Refusal
}

// current returns the condition as it stands on the object, nil for none.
func (c *conditionState) current(s Subject, t time.Time) *Condition {
	if c.written != nil && t.Sub(c.at) < cacheLag {
		return c.written
	}
	return s.Condition
}

// refusedFirst reports whether somebody has refused the write at the time t, and none before.
func (c *conditionState) refusedFirst(t time.Time) bool {
	return c.refusal != nil && c.refusal.At.Equal(t) && c.retry.failures == 1
}

// cause returns the cause that stands on the object, "" for none.
func (c *conditionState) cause(s Subject, t time.Time) string {
	if have := c.current(s, t); have != nil && have.Blocked {
		return have.Reason
	}
	return ""
}

// ConditionDue returns the condition to write, and reports whether it is to be
// written now: not when the one that stands will do, and not soon after a write
// that failed. A condition and an Event that is created with it say the same.
func (c *Case) ConditionDue(blocked bool, reason, message string) (Condition, bool) {
	t := c.Last.Time
	want := Condition{Blocked: blocked, Reason: reason, Message: message, Generation: c.Subject.Generation, Since: t}
	have := c.condition.current(c.Subject, t)
	if have != nil && have.Blocked == want.Blocked && !have.Since.IsZero() {
		want.Since = have.Since
	}
	reworded := c.condition.at.IsZero() || t.Sub(c.condition.at) >= rewordAfter || c.tells()
	differs := have == nil || have.Blocked != want.Blocked || have.Reason != want.Reason || have.Message != want.Message && reworded
	return want, differs && !c.condition.retry.waits(t)
}

// HasCondition reports whether a condition that says that the pod is stuck stands on the object.
func (c *Case) HasCondition() bool {
	return c.Last != nil && c.condition.cause(c.Subject, c.Last.Time) != ""
}

// ConditionWritten takes note of a condition that has been written.
func (c *Case) ConditionWritten(written Condition) {
	c.condition = conditionState{written: &written, at: c.Last.Time}
	c.note(func(s *Standing) { s.Reported = s.Reported || written.Reason == s.Cause })
}

// ConditionFailed takes note of a write that has failed, of who has refused it, nil where that is
// not known, and of whether nobody was there to answer. It returns how many have failed in a row.
func (c *Case) ConditionFailed(by *evidence.Refusal, unreachable bool) int {
	if by != nil {
		by.At = c.Last.Time
	}
	c.condition.refusal = by
	return c.condition.retry.failed(c.Last.Time, unreachable)
}

// Refusal returns who has refused the last write of the condition; nil for nobody.
func (c *Case) Refusal() *evidence.Refusal { return c.condition.refusal }
