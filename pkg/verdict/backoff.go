package verdict

import "time"

const (
	firstRetry = 3 * time.Second
	lastRetry  = 5 * time.Minute
)

// A backoff spaces out the attempts at a write that fails. The next look after
// its time tries again; nothing waits for it.
type backoff struct {
	failures  int
	notBefore time.Time
}

func (b *backoff) waits(now time.Time) bool { return now.Before(b.notBefore) }

// failed takes note of a failure and returns how many there were in a row.
func (b *backoff) failed(now time.Time) int {
	d := lastRetry
	if b.failures < 7 {
		d = min(lastRetry, firstRetry<<b.failures)
	}
	b.failures++
	b.notBefore = now.Add(d)
	return b.failures
}
