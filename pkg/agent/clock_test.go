package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What was read before the node's clock was set is compared with what is read after.
func TestKeepTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		start := time.Now()
		b.set([]*corev1.Pod{terminating("a", start, 30)})
		b.Before.pods = map[string]*baselines{"a": {last: &evidence.Baseline{Read: start.Round(0)}}}
		b.Failures = &Failures{Node: "n", Ask: func(context.Context, string, types.UID) ([]eventsv1.Event, error) { return nil, nil }}
		b.round(t.Context())
		b.Failures.pulls = map[types.UID]answer{"a": {pulls: []evidence.Pull{{Since: start.Add(-time.Minute)}}}}
		c := b.Cases.Open("a")
		before := *c.Last
		if b.clockSet(time.Now(), time.Since(loaded)) {
			t.Error("set, and nobody has")
		}
		const step = -10 * time.Minute
		wall, elapsed := time.Now().Round(0).Add(step), time.Since(loaded)
		if !b.clockSet(wall, elapsed) {
			t.Error("a look in a round that began before the step is believed")
		}
		b.keepTime(wall, elapsed)
		if b.clockSet(wall, elapsed) {
			t.Error("no look is believed any more")
		}
		if !c.Last.Deadline.Equal(before.Deadline.Add(step)) || !c.Last.UnchangedSince.Equal(before.UnchangedSince.Add(step)) {
			t.Errorf("deadline %s, unchanged since %s; before %s, %s", c.Last.Deadline, c.Last.UnchangedSince, before.Deadline, before.UnchangedSince)
		}
		if got := b.Before.Of("a", start.Add(step+evidence.BaselineMargin)); got == nil {
			t.Error("what was read before the deletion looks later than that")
		}
		// The kubelet has told this before.
		told := start.Add(-time.Minute)
		if got := b.Failures.present(told); !got.Equal(told.Add(step)) {
			t.Errorf("what was told at %s was told at %s", told, got)
		}
		if got := b.Failures.pulls["a"].pulls[0].Since; !got.Equal(told.Add(step)) {
			t.Errorf("the pull began at %s, not %s", got, told.Add(step))
		}
		if c.Last.Deadline.IsZero() || b.node == nil {
			t.Error("nothing was read")
		}
	})
}

// What the kubelet tells in a round that takes long is no time to come, by which it would be from before the clock was set back.
func TestPresentInALongRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		now := time.Now()
		b.clock.Look(now.Add(time.Hour), now.Sub(loaded))
		b.keepTime(now, now.Sub(loaded))
		time.Sleep(time.Minute)
		if told := time.Now().Round(0).Add(-time.Second); !b.present(told).Equal(told) {
			t.Errorf("what was told at %s was told at %s", told, b.present(told))
		}
	})
}

// What the monotonic clock tells too is right already, and keeps that.
func TestMonotonicAfterStep(t *testing.T) {
	now := time.Now()
	p := &evidence.Pod{Time: now, Deadline: now.Round(0)}
	if got := p.AfterStep(now, time.Hour); got.Time != now || !got.Deadline.Equal(now.Add(time.Hour)) {
		t.Errorf("read at %s, deadline %s; set forward by an hour at %s", got.Time, got.Deadline, now)
	}
}
