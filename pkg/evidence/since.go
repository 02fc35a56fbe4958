package evidence

import "time"

// Since carries over from an earlier reading of the same pod since when what is
// unchanged has been so. A nil earlier reading means that this is the first.
// Rules that claim that something is stuck rest on it: one reading shows a
// state, only two show that nothing moves.
func (p *Pod) Since(earlier *Pod) {
	var e Pod
	if earlier != nil && earlier.UID == p.UID {
		e = *earlier
	}
	since(p.Tasks, e.Tasks, p.Time)
	since(p.Parents, e.Parents, p.Time)
	since(p.Node.Blocked, e.Node.Blocked, p.Time)
	since(p.Node.Kubelet.Blocked, e.Node.Kubelet.Blocked, p.Time)
	sinceOne(p.Node.Kubelet.Process, e.Node.Kubelet.Process, p.Time)
	sinceOne(p.Node.Containerd.Process, e.Node.Containerd.Process, p.Time)
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
	if before != nil && !before.UnchangedSince.IsZero() && now.same(before) {
		now.UnchangedSince = before.UnchangedSince
	}
	if before != nil && !before.SignalsSince.IsZero() && now.sameSignals(before) {
		now.SignalsSince = before.SignalsSince
	}
}
