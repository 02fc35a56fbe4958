package verdict

import "time"

// The pauses after a write that failed: the first one, and the longest.
const (
	firstRetry = 3 * time.Second
	lastRetry  = 5 * time.Minute
	// lastRetryUnreachable is the longest one while there is no API server to answer. To try costs next to nothing
	// then, and when it is back the verdicts of the outage are told soon.
	lastRetryUnreachable = 15 * time.Second
)

// A backoff spaces out the attempts at a write that fails. The next look after
// its time tries again; nothing waits for it.
type backoff struct {
	failures  int
	pause     time.Duration
	notBefore time.Time
}

func (b *backoff) waits(now time.Time) bool { return now.Before(b.notBefore) }

// failed takes note of a failure, and of whether it was that nobody was there to answer. It returns how many there
// were in a row.
func (b *backoff) failed(now time.Time, unreachable bool) int {
	longest := lastRetry
	if unreachable {
		longest = lastRetryUnreachable
	}
	b.pause = min(longest, max(firstRetry, 2*b.pause))
	b.notBefore = now.Add(b.pause)
	b.failures++
	return b.failures
}
