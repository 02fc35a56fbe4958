package evidence

import (
	"testing"
	"time"
)

func TestSetSkew(t *testing.T) {
	deadline := time.Date(2026, 1, 2, 3, 0, 30, 0, time.UTC)
	for _, tt := range []struct {
		least, most time.Duration
		ahead       time.Duration // of the API server
		doubt       time.Duration
	}{
		{-400 * time.Millisecond, 500 * time.Millisecond, 0, 500 * time.Millisecond},
		{0, 0, 0, 0},
		{4900 * time.Millisecond, 5300 * time.Millisecond, 5 * time.Second, 300 * time.Millisecond},
		{-31 * time.Second, -30 * time.Second, -31 * time.Second, time.Second},
		{100 * time.Millisecond, 300 * time.Millisecond, 0, 300 * time.Millisecond},
	} {
		p := &Pod{Deadline: deadline, DeletionRequested: deadline.Add(-30 * time.Second), Time: deadline}
		if p.ClockDoubt() != unmeasured {
			t.Errorf("without a measurement %s", p.ClockDoubt())
		}
		p.SetSkew(tt.least, tt.most)
		if p.Overdue() != tt.ahead || p.Deadline.Sub(p.DeletionRequested) != 30*time.Second || p.ClockDoubt() != tt.doubt {
			t.Errorf("%+v: overdue %s, doubt %s", tt, p.Overdue(), p.ClockDoubt())
		}
	}
	if p := new(Pod); true {
		if p.SetSkew(time.Hour, time.Hour); !p.Deadline.IsZero() {
			t.Errorf("a pod without a deadline has %s", p.Deadline)
		}
	}
}
