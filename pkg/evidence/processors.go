package evidence

import "time"

// Processors is how the kubelet has fared with the processors of its node for a while, and who has used them. It is read
// while a pod is past its deadline that the kubelet has not begun to stop.
type Processors struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Ran and Waited are for how long the kubelet's threads, all together, have run, and have been able to run and had no
	// processor (/proc/PID/schedstat, Documentation/scheduler/sched-stats.rst). Both are 0 where the kernel does not tell.
	Ran    time.Duration `json:"ran,omitempty"`
	Waited time.Duration `json:"waited,omitempty"`
	// Group is the path of the kubelet's control group, or of one above it, below the top, that was throttled most, Millis its quota in
	// thousandths of a processor, and Periods and Throttled are as in CPU. "" where none has a quota.
	Group     string `json:"group,omitempty"`
	Millis    int64  `json:"millis,omitempty"`
	Periods   uint64 `json:"periods,omitempty"`
	Throttled uint64 `json:"throttled,omitempty"`
	// Users are the pods and the other control groups that have used most, at most maxUsers, those with the most first.
	Users []ProcessorUser `json:"users,omitempty"`
}

// A ProcessorUser is a pod, or what systemd calls a unit, and how much of the processors it has used.
type ProcessorUser struct {
	// Pod is namespace/name of a pod, PodUID its UID, and Group the path of another control group.
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUID,omitempty"`
	Group  string `json:"group,omitempty"`
	// Own says that it is the kubelet's own control group: what others in it have used.
	Own    bool  `json:"own,omitempty"`
	Millis int64 `json:"millis"` // thousandths of a processor
}

// Starves reports whether the kubelet has had next to nothing of the processors though it could have run: its threads, all together,
// have waited for as long as the time was, and 20 times as long as they have run. Three times as long is no more than a busy node: what takes
// 2 ms alone takes 4 there.
func (p *Processors) Starves() bool {
	return p != nil && p.Waited >= p.Until.Sub(p.Since) && p.Waited >= 20*p.Ran && p.Waited > 0
}

// IsThrottled reports whether the quota of a control group has stopped the kubelet in at least three of four periods.
func (p *Processors) IsThrottled() bool {
	return p != nil && p.Periods > 0 && p.Throttled*4 >= p.Periods*3
}
