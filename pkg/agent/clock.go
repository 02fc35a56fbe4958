package agent

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// loaded is when this program began, for a clock that nobody can set. What has gone by since is taken from the same
// reading as the time of day: the program may be paused between two.
var loaded = time.Now()

// elapsed returns what has gone by since the program began, at a moment that was just read.
func (a *Agent) elapsed(now time.Time) time.Duration {
	if a.Elapsed != nil {
		return a.Elapsed(now)
	}
	return now.Sub(loaded)
}

// keepTime notices that the node's clock was set since the round before, and has what is known of the pods
// and of the node told by the clock as it is now: the times of later readings, and those that others write,
// are compared with it. A look that was given up keeps its case, and its times.
func (a *Agent) keepTime(now time.Time, elapsed time.Duration) {
	if a.Failures != nil && a.Failures.present == nil {
		a.Failures.present = a.present
	}
	a.mu.Lock()
	step := a.clock.Look(now, elapsed)
	a.deleted, a.again = append(a.deleted, a.again...), nil
	a.mu.Unlock()
	if step == 0 {
		return
	}
	a.Log.Warn("the node's clock jumped", "by", step.Round(time.Second))
	for uid, c := range a.Cases.All() {
		if !a.uses(uid) {
			c.AfterStep(now, step)
		}
	}
	for i := range a.deleted {
		a.deleted[i].seed = a.deleted[i].seed.AfterStep(now, step)
	}
	a.node = a.node.AfterStep(now, step)
	a.Before.afterStep(now, step)
	a.lastBegun = evidence.MomentAfterStep(a.lastBegun, now, step)
	if a.Failures != nil {
		a.Failures.afterStep(step)
	}
}

// present returns a time that the kubelet has written by the node's clock as it is now.
func (a *Agent) present(t time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.clock.Goes(now, a.elapsed(now))
	return a.clock.Present(t)
}

// clockSet reports whether the node's clock was set since the round began.
func (a *Agent) clockSet(now time.Time, elapsed time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clock.Step(now, elapsed) != 0
}
