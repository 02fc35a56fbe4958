package node

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var c clock
	for _, s := range []struct {
		wall, elapsed time.Duration
		set           time.Duration // the time of day of the look that noticed it; 0 is none
	}{
		{0, time.Hour, 0},
		{2 * time.Second, time.Hour + 2*time.Second, 0},
		{2*time.Hour + 3*time.Second, 3*time.Hour + 2*time.Second, 0}, // slewed
		{2*time.Hour + 10*time.Minute, 3*time.Hour + 4*time.Second, 2*time.Hour + 10*time.Minute},
		{2*time.Hour + 11*time.Minute, 3*time.Hour + 64*time.Second, 2*time.Hour + 10*time.Minute},
		{time.Hour, 3*time.Hour + 66*time.Second, time.Hour}, // set back
	} {
		got, want := c.look(start.Add(s.wall), s.elapsed), time.Time{}
		if s.set != 0 {
			want = start.Add(s.set)
		}
		if !got.Equal(want) {
			t.Errorf("%+v: %s, not %s", s, got, want)
		}
	}
}
