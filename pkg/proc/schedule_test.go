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
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Second)
		defer cancel()
		s := newSchedule(ctx) // of 25 shares
		defer s.done()
		room := func(c context.Context) time.Duration {
			end, _ := c.Deadline()
			return time.Until(end)
		}
		first := s.next(forShim)
		if got := room(first); got != 10*time.Second {
			t.Errorf("the first has %s", got)
		}
		<-first.Done()
		suspects := s.next(forSuspects)
		if got := room(suspects); got != 120*time.Second {
			t.Errorf("suspects have %s", got)
		}
		next := s.next(forOther) // they took none
		if got := room(next); got != 20*time.Second || suspects.Err() == nil {
			t.Errorf("the one behind has %s; the one before has ended: %v", got, suspects.Err())
		}
		for range 8 {
			<-s.next(forOther).Done()
		}
		last := s.next(forVolumes)
		if got := room(last); got < 30*time.Second {
			t.Errorf("the last has %s", got)
		}
		s.done()
		if last.Err() == nil || ctx.Err() != nil {
			t.Error("the last has not ended, or all of them have")
		}
		// A file that hangs is known to after a second, also where the shares are small; but half of what is
		// left is for the others.
		short, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		s = newSchedule(short)
		defer s.done()
		for _, want := range []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second, time.Second, 500 * time.Millisecond} {
			c := s.next(forOther)
			if got := room(c); got != want {
				t.Errorf("a search has %s, want %s", got, want)
			}
			<-c.Done()
		}
		unlimited := newSchedule(context.Background()).next(forSuspects)
		if _, limited := unlimited.Deadline(); limited {
			t.Error("a reading without a deadline has one")
		}
	})
}
