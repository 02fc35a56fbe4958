package agent

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The agent must not take from a node that is short of processors. Rounds are so far
// apart that they take no more than a tenth of a processor, and of a node on which tasks
// wait for one less: from pressedFrom on (evidence.Pressure, in percent of the time),
// down to a thirtieth from pressedFully on. What costs next to nothing goes on at the
// usual pace, so that what is to be seen within a grace period is.
const (
	pressedFrom  = 20
	pressedFully = 60
	ease         = 10
	pressed      = 30
)

// A pace is the time between two rounds.
type pace struct {
	period time.Duration
	next   time.Time     // when the next round over all pods may begin; zero for now
	cost   time.Duration // CPU time since the last one began
}

// full takes note of a round over all pods that began at the time t. Its cost stands
// in p.
func (p *pace) full(t time.Time, shortest, longest time.Duration, pressure *evidence.Pressure) {
	p.period = nextPeriod(p.period, shortest, longest, pressure, p.cost)
	p.next, p.cost = t.Add(p.period-shortest/2), 0 // the ticker is not exact
}

// nextPeriod returns the time between the start of a round, which cost so much CPU time,
// and the next one. It at most doubles from round to round, so that one expensive round
// is not taken for a habit.
func nextPeriod(before, shortest, longest time.Duration, pressure *evidence.Pressure, cost time.Duration) time.Duration {
	share := float64(ease)
	if pressure != nil {
		share += min(max((pressure.CPU-pressedFrom)/(pressedFully-pressedFrom), 0), 1) * (pressed - ease)
	}
	want := time.Duration(float64(cost) * share)
	return max(min(want, longest, 2*before), shortest)
}

// closes reports whether the pod is at its deadline, within two of the shortest periods,
// and the last reading of it, nil for none, is nearly as old: what ends then, a second
// or a few after the deadline, has to be seen shortly before. All times are by the
// node's clock.
func closes(deadline, now time.Time, last *evidence.Pod, shortest time.Duration) bool {
	return deadline.Sub(now).Abs() <= 2*shortest && (last == nil || now.Sub(last.Time) > 3*shortest/2)
}

// fleeting reports whether the last reading of a pod, nearly as old as the shortest period,
// showed a command that is soon ended by who has started it: whether it hangs each time is seen
// only of one that two readings show.
func fleeting(now time.Time, last *evidence.Pod, shortest time.Duration) bool {
	return last != nil && last.Deleting() && now.Sub(last.Time) > shortest/2
}
