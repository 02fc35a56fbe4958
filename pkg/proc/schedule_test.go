package proc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A search that takes all of its time leaves the others theirs, and one that takes none
// leaves them more.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		s := newSchedule(ctx) // of 25 shares
		defer s.done()
		room := func(c context.Context) time.Duration {
			end, _ := c.Deadline()
			return time.Until(end)
		}
		first := s.next(forShim)
		if got := room(first); got != time.Second {
			t.Errorf("the first has %s", got)
		}
		<-first.Done()
		suspects := s.next(forSuspects)
		if got := room(suspects); got != 12*time.Second {
			t.Errorf("suspects have %s", got)
		}
		next := s.next(forOther) // they took none
		if got := room(next); got != 2*time.Second || suspects.Err() == nil {
			t.Errorf("the one behind has %s; the one before has ended: %v", got, suspects.Err())
		}
		for range 8 {
			<-s.next(forOther).Done()
		}
		last := s.next(forVolumes)
		if got := room(last); got < 3*time.Second {
			t.Errorf("the last has %s", got)
		}
		s.done()
		if last.Err() == nil || ctx.Err() != nil {
			t.Error("the last has not ended, or all of them have")
		}
		unlimited := newSchedule(context.Background()).next(forSuspects)
		if _, limited := unlimited.Deadline(); limited {
			t.Error("a reading without a deadline has one")
		}
	})
}
