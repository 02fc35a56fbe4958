package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// lastSeen is how long before the deadline the last reading of a container may
// be, to tell what it was at. Anywhere in the second half of a long grace period
// will do.
const lastSeen = 20 * time.Second

// ClockSkew is how far the node's clock, by which processes start and containers
// end, may be from the API server's, by which the deletion is requested and the
// deadline set. Both count whole seconds where the API server writes them.
const ClockSkew = 3 * time.Second

// EndedAtDeadline reports whether the container was seen shortly before the
// deadline and has ended after it, soon enough for SIGKILL to be the reason: the
// end of a large or throttled process takes a while.
func EndedAtDeadline(p *View, c *evidence.Container) bool {
	if c.Exit == nil || c.Exit.OutOfMemory || !p.Kill.Known {
		return false
	}
	late := c.Exit.At.Sub(p.Deadline)
	return late >= -min(p.ClockDoubt(), ClockSkew) && late <= UnknownAfter && p.Deadline.Sub(p.Time) <= max(lastSeen, Grace(p)/2)
}

// Grace returns the grace period that the deletion gave the pod.
func Grace(p *View) time.Duration {
	return p.Deadline.Sub(p.DeletionRequested).Round(time.Second)
}

// killedExit is the exit code of a container that SIGKILL has ended.
const killedExit = 128 + int(evidence.SIGKILL)

// KilledAtDeadline reports whether the container was seen shortly before the
// deadline and has been ended by SIGKILL after it.
func KilledAtDeadline(p *View, c *evidence.Container) bool {
	return EndedAtDeadline(p, c) && c.Exit.Code == killedExit
}
