package kube

import (
	"net/http"
	"sync"
	"time"
)

// measuredFor is how long a measurement is good: clocks are adjusted, and run at
// different speeds.
const measuredFor = 10 * time.Minute

// A clock measures how far the API server's clock is ahead of this machine's, by the
// Date of its answers (RFC 9110, section 6.6.1), which is in whole seconds and was set
// between the request and the answer.
type clock struct {
	next http.RoundTripper
	now  func() time.Time

	// elapsed is what had gone by since some moment when now told a time, by a clock that nobody can set. Both are of one
	// reading: the program may be paused between two.
	elapsed func(time.Time) time.Duration

	mu          sync.Mutex
	least, most time.Duration
	since       time.Time // of the first answer that counts; zero before there is one
	// looked is when, by this machine's clock, least and most were such, and at the same by elapsed.
	looked time.Time
	at     time.Duration
}

// settle takes off what this machine's clock has been set forward by: the API server's is ahead by that much
// less. The next answer may come seconds later, and until then each deadline would be wrong.
func (c *clock) settle() {
	now := c.now()
	at := c.elapsed(now)
	now = now.Round(0)
	if !c.looked.IsZero() {
		step := now.Sub(c.looked) - (at - c.at)
		c.least, c.most = c.least-step, c.most-step
		if !c.since.IsZero() {
			c.since = c.since.Add(step)
		}
	}
	c.looked, c.at = now, at
}

// RoundTrip implements http.RoundTripper.
func (c *clock) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := c.now()
	answer, err := c.next.RoundTrip(r)
	if err == nil {
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			c.answered(asked, c.now(), date)
		}
	}
	return answer, err
}

// answered narrows down what is known with an answer. One that contradicts what was
// known says that a clock was set.
func (c *clock) answered(asked, got, date time.Time) {
	// Without the monotonic clock: how far the wall clocks differ is the question.
	asked, got = asked.Round(0), got.Round(0)
	if got.Before(asked) {
		return // this clock was set back meanwhile
	}
	least, most := date.Sub(got), date.Add(time.Second).Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	if l, m := max(least, c.least), min(most, c.most); c.measured(got) && l <= m {
		c.least, c.most = l, m
		return
	}
	c.least, c.most, c.since = least, most, got
}

func (c *clock) measured(now time.Time) bool {
	age := now.Sub(c.since)
	return !c.since.IsZero() && age >= 0 && age < measuredFor
}

// Skew returns the least and the most by which the API server's clock is ahead of this
// machine's; not ok when no answer has told.
func (c *Client) Skew() (least, most time.Duration, ok bool) {
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	c.clock.settle()
	return c.clock.least, c.clock.most, !c.clock.since.IsZero()
}
