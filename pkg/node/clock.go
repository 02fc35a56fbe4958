package node

import "time"

// loaded is when this program began, for a clock that nobody can set.
var loaded = time.Now()

// A clock notices that the node's clock was set: it has gone on by more, or by less, than the kernel's
// monotonic one, which nobody can set and which stands still while the node sleeps.
type clock struct {
	wall    time.Time
	elapsed time.Duration
	set     time.Time
}

// A clock that is slewed gains or loses at most 500 microseconds in a second (adjtimex(2)); what is less than
// a second makes no difference.
const (
	slewed = 1000
	little = time.Second
)

// look takes a time of day, and what has gone by since some moment by the monotonic clock, and returns when it
// first had that the node's clock had been set; zero when it never was.
func (c *clock) look(wall time.Time, elapsed time.Duration) time.Time {
	if !c.wall.IsZero() {
		by := elapsed - c.elapsed
		if step := wall.Round(0).Sub(c.wall) - by; step.Abs() > little+by/slewed {
			c.set = wall
		}
	}
	c.wall, c.elapsed = wall.Round(0), elapsed
	return c.set
}
