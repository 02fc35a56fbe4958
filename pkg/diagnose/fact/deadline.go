package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// DeadlineKnown reports whether the kubelet goes by the pod's deadline, as far as is
// seen. One that was started anew since the deletion gives the whole grace period once
// more, and keeps to the first of two deletions; and one that has begun late gives all of it.
func DeadlineKnown(p *evidence.Pod) bool {
	return !p.DeadlineUnsure && beganAnew(p) == 0 && beganLate(p) <= KillLatency
}

// KilledByNow reports whether the kubelet has had the time to have a pod killed: where it has begun late, as much more, and
// where it goes by another deadline than is known, or has not begun by the pod's status, as long as Unknown gives it.
func KilledByNow(p *evidence.Pod) bool {
	switch late := beganLate(p); {
	case p.Mirror:
		return false
	case len(p.Plugins) > 0 && len(AppTasks(p)) == 0 && p.Overdue() >= KillLatency:
		return true // its network is taken down, which comes after that
	case DeadlineKnown(p) && !p.StopAwaited && p.Overdue() >= KillLatency:
		return true
	case late > KillLatency && !p.DeadlineUnsure && KubeletStayed(p) && p.Overdue() >= late+2*KillLatency: // between two readings
		return true
	}
	return p.Overdue() >= PatienceWithUnknown(p)
}

// KilledAt returns when the kubelet has a pod killed: at its deadline, or later by as much as it has begun late.
func KilledAt(p *evidence.Pod) time.Time {
	if late := beganLate(p); late > KillLatency {
		return p.Deadline.Add(late)
	}
	return p.Deadline
}

// Hastened reports whether the kubelet ends its pods because the node shuts down: it gives them no more
// time than is left for that (killPods, pkg/kubelet/nodeshutdown/nodeshutdown_manager.go), and may
// have sent their stop signals before they were deleted.
func Hastened(p *evidence.Pod) bool { return p.Node.Ready != nil && p.Node.Ready.ShuttingDown }

// KubeletStayed reports whether the kubelet was there when the deletion was requested, as far
// as is seen.
func KubeletStayed(p *evidence.Pod) bool { return beganAnew(p) == 0 }

// beganAnew returns how long after the request for deletion the kubelet was started; 0
// when it was there before, or that is not known.
func beganAnew(p *evidence.Pod) time.Duration {
	t := p.Node.Kubelet.Process
	if t == nil || t.Probe == nil || t.Probe.Started.IsZero() {
		return 0
	}
	return max(0, t.Probe.Started.Sub(p.DeletionRequested))
}

// askedAnew returns how long after the request for deletion containerd was started, or first asked by this agent, while
// a program of the pod lives: the end of containerd ends the kubelet's request to stop a container, and the next one has
// the whole grace period. What has been killed waits for none.
func askedAnew(p *evidence.Pod) time.Duration {
	since := p.Node.Containerd.ConnectedSince
	if since.IsZero() || !slices.ContainsFunc(AppTasks(p), func(t *evidence.Task) bool { return !Dying(t) }) {
		return 0
	}
	return max(0, since.Sub(p.DeletionRequested))
}

// beganLate returns how long after the request for deletion the kubelet had not begun to stop the pod, which it
// has by now: it completes first what it is at, such as to end a container for its liveness probe, with the whole
// grace period, and to start it again.
func beganLate(p *evidence.Pod) time.Duration {
	if !p.StopBegun || p.StopAwaitedUntil.IsZero() {
		return 0
	}
	return max(0, p.StopAwaitedUntil.Sub(p.DeletionRequested))
}
