package evidence

import (
	"slices"
	"time"
)

// Since carries over, from an earlier reading of the same pod, the times since
// which things have not changed. A nil earlier reading means that this is the
// first. Rules that say that something is stuck rest on it: one reading shows a
// state, and only two show that nothing moves.
func (p *Pod) Since(earlier *Pod) {
	var e Pod
	if earlier != nil && earlier.UID == p.UID {
		e = *earlier
	}
	p.UnchangedSince = p.Time
	if !e.UnchangedSince.IsZero() && p.sameStage(&e) {
		p.UnchangedSince = e.UnchangedSince
	}
	since(p.Tasks, e.Tasks, p.Time)
	since(p.Parents, e.Parents, p.Time)
	since(p.Leftovers, e.Leftovers, p.Time)
	for i := range p.Cgroups {
		for j := range e.Cgroups {
			if p.Cgroups[i].Path == e.Cgroups[j].Path {
				p.Cgroups[i].CPU.since(e.Cgroups[j].CPU, p.Time, e.Time)
				p.Cgroups[i].Memory.since(e.Cgroups[j].Memory, p.Time, e.Time)
			}
		}
	}
}

func (c *CPU) since(e *CPU, now, before time.Time) {
	if c == nil || e == nil || c.UsedMicros < e.UsedMicros || !now.After(before) {
		return
	}
	c.RecentMillis = int64(float64(c.UsedMicros-e.UsedMicros) / 1000 / now.Sub(before).Seconds())
	throttled := func(periods, throttled uint64) bool {
		return c.Periods > periods && (c.Throttled-throttled)*4 >= (c.Periods-periods)*3
	}
	switch {
	case !e.ThrottledSince.IsZero() && throttled(e.SincePeriods, e.SinceThrottled):
		c.ThrottledSince, c.SincePeriods, c.SinceThrottled = e.ThrottledSince, e.SincePeriods, e.SinceThrottled
	case throttled(e.Periods, e.Throttled):
		c.ThrottledSince, c.SincePeriods, c.SinceThrottled = before, e.Periods, e.Throttled
	}
}

func (m *Memory) since(e *Memory, now, before time.Time) {
	if m == nil || e == nil || m.StalledMicros < e.StalledMicros {
		return
	}
	stalled := func(since time.Time, micros uint64) bool {
		lost := time.Duration(m.StalledMicros-micros) * time.Microsecond
		return lost > 0 && lost >= now.Sub(since)/2
	}
	switch {
	case !e.StalledSince.IsZero() && stalled(e.StalledSince, e.SinceStalled):
		m.StalledSince, m.SinceStalled = e.StalledSince, e.SinceStalled
	case stalled(before, e.StalledMicros):
		m.StalledSince, m.SinceStalled = before, e.StalledMicros
	}
}

// firstOf returns the time of the first of some readings in a row.
func firstOf(earlier, t time.Time) time.Time {
	if earlier.IsZero() {
		return t
	}
	return earlier
}

// sameStage reports whether two readings show the pod at the same stage of its
// termination. Its threads are not compared: a program may start and end threads
// without end and get nowhere.
func (p *Pod) sameStage(o *Pod) bool {
	return p.Phase == o.Phase && p.GracePeriodSeconds == o.GracePeriodSeconds &&
		len(p.Tasks) > 0 == (len(o.Tasks) > 0) && len(p.Mounts) == len(o.Mounts) &&
		slices.Equal(p.Finalizers, o.Finalizers) &&
		slices.EqualFunc(p.Cgroups, o.Cgroups, func(a, b Cgroup) bool { return a.Path == b.Path }) &&
		slices.EqualFunc(p.Containers, o.Containers, func(a, b Container) bool {
			return a.ID == b.ID && a.State == b.State && a.Task.Status == b.Task.Status
		})
}

// Since does for the node's part, which the pods of one round share, what
// Pod.Since does for a pod's own. t is the time of this reading.
func (n *Node) Since(earlier *Node, t time.Time) {
	var e Node
	if earlier != nil {
		e = *earlier
	}
	since(n.Blocked, e.Blocked, t)
	since(n.Kubelet.Blocked, e.Kubelet.Blocked, t)
	sinceOne(n.Kubelet.Process, e.Kubelet.Process, t)
	sinceOne(n.Containerd.Process, e.Containerd.Process, t)
}

func since(now, before []Task, t time.Time) {
	type key struct{ pid, tid int }
	seen := make(map[key]*Task, len(before))
	for i := range before {
		seen[key{before[i].PID, before[i].TID}] = &before[i]
	}
	for i := range now {
		sinceOne(&now[i], seen[key{now[i].PID, now[i].TID}], t)
	}
}

func sinceOne(now, before *Task, t time.Time) {
	if now == nil {
		return
	}
	now.UnchangedSince, now.SignalsSince = t, t
	if now.SharedPending != 0 {
		now.PendingSince = t
	}
	if before == nil {
		return
	}
	if now.SharedPending != 0 && now.SharedPending == before.SharedPending && now.PID == before.PID && now.TID == before.TID {
		now.PendingSince = firstOf(before.PendingSince, t)
	}
	if !before.UnchangedSince.IsZero() && now.same(before) {
		now.UnchangedSince = before.UnchangedSince
	}
	if !before.SignalsSince.IsZero() && now.sameSignals(before) {
		now.SignalsSince = before.SignalsSince
	}
}
