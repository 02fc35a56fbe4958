package proc

import (
	"context"
	"time"
)

// A schedule hands out the time of a reading to its searches, one after the other. Each may
// take its share of what is left, so that one which takes long leaves the others theirs, and
// one which is done at once leaves them more.
type schedule struct {
	ctx    context.Context
	left   int // shares that are not handed out
	cancel context.CancelFunc
}

// newSchedule has shares for all searches of ReadPod. The context of the last one ends with
// done.
func newSchedule(ctx context.Context) *schedule {
	return &schedule{ctx: ctx, left: forShim + forSuspects + forVolumes + 9*forOther, cancel: func() {}}
}

// The shares of the searches. Suspects are looked at on each node, and one that hangs its
// reader takes a second.
const (
	forShim     = 1
	forSuspects = 12
	forVolumes  = 3
	forOther    = 1
)

// leastTurn is what a search has in any case, unless it is more than half of what is left: a file that
// hangs is known to after a second.
const leastTurn = 2 * time.Second

// next returns the context of the next search, and ends that of the one before.
func (s *schedule) next(shares int) context.Context {
	s.cancel()
	end, limited := s.ctx.Deadline()
	ctx, cancel := context.WithCancel(s.ctx)
	if limited && shares < s.left {
		cancel()
		rest := time.Until(end)
		ctx, cancel = context.WithTimeout(s.ctx, max(rest*time.Duration(shares)/time.Duration(s.left), min(leastTurn, rest/2)))
	}
	s.left -= shares
	s.cancel = cancel
	return ctx
}

func (s *schedule) done() { s.cancel() }
