package evidence

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	var c Clock
	for _, s := range []struct{ wall, elapsed, step time.Duration }{
		{0, time.Hour, 0},
		{2 * time.Second, time.Hour + 2*time.Second, 0},
		{2*time.Hour + 3*time.Second, 3*time.Hour + 2*time.Second, 0}, // slewed
		{2*time.Hour + 10*time.Minute, 3*time.Hour + 4*time.Second, 10*time.Minute - 5*time.Second},
		{2*time.Hour + 11*time.Minute, 3*time.Hour + 64*time.Second, 0},
		{time.Hour, 3*time.Hour + 66*time.Second, -71*time.Minute - 2*time.Second},
	} {
		if got := c.Step(start.Add(s.wall), s.elapsed); got != s.step {
			t.Errorf("%+v: %s", s, got)
		}
		if got := c.Look(start.Add(s.wall), s.elapsed); got != s.step {
			t.Errorf("%+v: %s", s, got)
		}
	}
}

func TestAfterStep(t *testing.T) {
	now := time.Now()
	deadline := time.Date(2026, 1, 2, 3, 0, 30, 0, time.UTC)
	probe := &Probe{Started: deadline}
	p := &Pod{
		Time: now, Deadline: deadline, Before: &Baseline{Read: deadline},
		Tasks:   []Task{{PID: 7, UnchangedSince: deadline, Probe: probe}},
		Missing: map[Source]string{Pulls: "why"},
		Node:    Node{Containerd: ContainerdService{Downloads: []Download{{Updated: deadline}}}},
	}
	const step = -10 * time.Minute
	got, want := p.AfterStep(now, step), deadline.Add(step)
	for name, at := range map[string]time.Time{
		"deadline": got.Deadline, "baseline": got.Before.Read, "task": got.Tasks[0].UnchangedSince,
		"probe": got.Tasks[0].Probe.Started, "download": got.Node.Containerd.Downloads[0].Updated,
	} {
		if !at.Equal(want) {
			t.Errorf("%s at %s, not %s", name, at, want)
		}
	}
	if got.Time != now {
		t.Errorf("what the monotonic clock tells too is %s, not %s", got.Time, now)
	}
	if !got.DeletionRequested.IsZero() || got.Tasks[0].PID != 7 || got.Missing[Pulls] != "why" {
		t.Errorf("%+v", got)
	}
	if !p.Deadline.Equal(deadline) || !p.Tasks[0].UnchangedSince.Equal(deadline) || !probe.Started.Equal(deadline) {
		t.Error("the reading itself was changed")
	}
}
