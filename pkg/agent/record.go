package agent

import (
	"cmp"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// How a verdict has ended.
const (
	endWithdrawn      = "withdrawn"      // readings did not show the cause any more
	endReplaced       = "replaced"       // another cause took its place
	endDeleted        = "deleted"        // the pod was deleted from the API while the verdict stood
	endAlreadyDeleted = "alreadyDeleted" // it was found in the last reading of a pod that had been deleted
)

const (
	// endsPerMinute is how many records of ended verdicts are logged in any minute. Beyond that each workload has one
	// in an hour, and 200 workloads have. So what ends at one time finds room among the lines that wait to be written
	// (maxLines, cmd/nodeagent/log.go).
	endsPerMinute = 300
	// endsOfPod is how many are logged of the verdicts that a pod outlives: two causes may take turns.
	endsOfPod = 20
	// maxMessage bounds what is in a record of others' texts, in bytes.
	maxMessage = 1 << 10
)

// An end is that of a verdict.
type end struct {
	verdict verdict.Standing // Since is zero where it is not known, or it never stood
	subject verdict.Subject
	reading *evidence.Pod // the last one
	at      time.Time
	how     string
	next    string // the cause that took its place; "" for none
}

// logEnded logs the record of the verdict that has ended with the last look at a pod, if one has.
func (a *Agent) logEnded(c *verdict.Case) {
	ended, n := c.Ended()
	if ended.Cause == "" {
		return
	}
	if n > endsOfPod {
		a.unlogged.Add(1)
		return
	}
	how, next := endWithdrawn, c.Standing().Cause
	if next != "" {
		how = endReplaced
	}
	a.logEnd(&end{verdict: ended, subject: c.Subject, reading: c.Last, at: c.Last.Time, how: how, next: next})
}

// logEnd logs the record of a verdict that has ended, within the budget. docs/log.md describes it, and
// docs/verdict-record.schema.json its keys, which are stable.
func (a *Agent) logEnd(x *end) {
	if !a.ends.Allow(x.subject, &diagnose.Finding{Cause: x.verdict.Cause}, x.at) {
		a.unlogged.Add(1)
		return
	}
	v, e := &x.verdict, x.reading
	keys := []any{
		"namespace", v.Namespace, "pod", v.Name, "uid", v.UID, "node", e.Node.Name, "workload", v.Workload.Name, "workloadType", v.Workload.Type,
		"cause", v.Cause, "phase", cmp.Or(v.Phase, diagnose.PhaseUnknown), "ending", x.how,
	}
	if x.next != "" {
		keys = append(keys, "nextCause", x.next)
	}
	if !v.Since.IsZero() {
		keys = append(keys, "since", second(v.Since), "durationSeconds", seconds(x.at.Sub(v.Since)))
	}
	late := e.Overdue() + x.at.Sub(e.Time)
	keys = append(keys, "ended", second(x.at), "deletionRequested", second(e.DeletionRequested), "deadline", second(e.Deadline), "lateSeconds", seconds(late),
		"reported", v.Reported, "heldBack", v.HeldBack)
	if v.Message != "" {
		keys = append(keys, "message", diagnose.Cut(v.Message, maxMessage, "…"))
	}
	if n := a.unlogged.Swap(0); n > 0 {
		keys = append(keys, "leftOut", n)
	}
	a.Log.Info("verdict ended", keys...)
}

// second returns a time in UTC without fractions of a second.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// seconds returns the whole seconds of a time, 0 for a negative one.
func seconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }
