package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A View is a reading as rules look at it: the evidence, and what follows from it, once for all of them, about those who
// end a pod, and about how far the word of the deletion has come.
type View struct {
	*evidence.Pod
	Actors
	Delivery Delivery
	Kill     Kill
	// Pressed reports whether the node is under pressure (UnderPressure).
	Pressed bool
	// StopErrors are what the kubelet has told of why it could not have the sandbox stopped, and SandboxStop is the last such failure
	// since the deletion (LastStop).
	StopErrors  []StopError
	SandboxStop *SandboxFailure
	hooks       map[[2]string]Hook // by name and ID: a container that was started again is there twice, under one name
}

// See returns the View of a reading.
func See(pod *evidence.Pod) *View {
	p := &View{Pod: pod, Pressed: pod.Node.Pressure == nil || pod.Starved(), hooks: make(map[[2]string]Hook)}
	p.StopErrors = stopErrors(p)
	p.SandboxStop = LastStop(p, p.StopErrors)
	p.Actors = Actors{kubelet(p), containerd(p), shim(p), runc(p), cni(p), csi(p)}
	p.Delivery.See(p)
	p.Kill.See(p)
	for i := range p.Containers {
		c := &p.Containers[i]
		p.hooks[[2]string{c.Name, c.ID}] = hookOf(p, c)
	}
	return p
}

// A Delivery is how far the word of the deletion has come.
type Delivery struct {
	// Likely reports whether nothing is seen that stands between the deletion and the stop signal.
	Likely bool
	// NoStopSeen reports whether the pod runs as if it had not been deleted, although the runtime works:
	// every container runs, by its status too, containerd and the shim respond, and no
	// runtime command is in progress.
	NoStopSeen bool
	// OutOfTouch reports whether the kubelet runs and the API server hears nothing from it.
	OutOfTouch bool
	// DeletionNotReceived reports whether a pod past its deadline continues to run because its kubelet has not received
	// the deletion. A kubelet that the API server has heard after the deletion has received it, and something
	// else holds the pod, unless another kubelet has been started since.
	DeletionNotReceived bool
	// LoopStalledBefore reports whether the kubelet has not read the deletion, because its main loop did nothing by then.
	LoopStalledBefore bool
	// NodeShuttingDown reports whether the kubelet ends its pods because the node shuts down: it gives them no more
	// time than is left for that (killPods, pkg/kubelet/nodeshutdown/nodeshutdown_manager.go), and may
	// have sent their stop signals before they were deleted.
	// A node that shuts down is no cause. The kubelet continues to stop and to delete pods that were deleted, so what
	// holds such a pod has a cause of its own. A pod that only the shutdown ends has no deletionTimestamp. nodeagent is
	// killed with the last group (system-node-critical), which does not wait for a pod that cannot be stopped: the
	// kubelet gives each pod one and a half times its grace period, or ten seconds (killPodNow). So a late pod is
	// reported for half of its grace period at most. A kubelet whose shutdown logind forgets, as when logind restarts,
	// reports it until it is restarted again.
	NodeShuttingDown bool
}

// See fills in what a reading shows.
func (d *Delivery) See(p *View) {
	d.NodeShuttingDown = p.Node.Ready != nil && p.Node.Ready.ShuttingDown
	d.Likely, d.NoStopSeen, d.OutOfTouch = delivered(p), untouched(p), outOfTouch(p)
	d.DeletionNotReceived = p.Overdue() >= KillLatency && !p.Mirror && d.OutOfTouch && d.NoStopSeen &&
		(!HeardAfter(p, p.DeletionRequested.Add(KillLatency)) || !HeardAfter(p, p.Node.Kubelet.Process.Probe.Started))
	d.LoopStalledBefore = unread(p)
}

// A Kill is what is known of when the kubelet has a pod killed.
type Kill struct {
	// Began is when the kubelet has begun to stop the pod, as far as is known: when its deletion was requested, or later.
	Began time.Time
	// At is when it has the pod killed: at the deadline, or later by as much as it has begun late. Latest says that it may be sooner:
	// whether it heard of the deletion when the node became Ready again, or before, is not known, nor what one that was started anew gives.
	At     time.Time
	Latest bool
	// Known reports whether the kubelet goes by the pod's deadline, as far as is
	// seen. One that was started anew since the deletion gives the whole grace period once
	// more, and keeps to the first of two deletions; and one that has begun late gives all of it.
	Known bool
	// Stayed reports whether the kubelet was there when the deletion was requested, as far as is seen.
	Stayed bool
	// Done reports whether the kubelet has had the time to have the pod killed: where it has begun late, as much more, and
	// where it goes by another deadline than is known, or has not begun by the pod's status, as long as Unknown gives it.
	Done bool
	// Late is how much later than at the deadline the kubelet may have the pod killed, and Still for how long the pod may stand
	// still before that: a kubelet that was started anew waits for the whole grace period again, as it does after a postStart
	// hook, or what else it was at before, and for programs that live when containerd was started anew. What waits so may have been
	// deleted hours before, and stands still for no longer than the grace period. Where nothing is left to kill, nobody waits: Late ends
	// with the last of these starts, and Still is 0.
	Late, Still time.Duration
}

// See fills in what a reading shows.
func (k *Kill) See(p *View) {
	anew, late, heard := beganAnew(p), beganLate(p), heardAgain(p)
	k.Began = p.DeletionRequested.Add(late)
	k.Latest = max(heard, anew) > KillLatency
	k.At, k.Stayed, k.Known = p.Deadline, anew == 0, !p.DeadlineUnsure && anew == 0 && late <= KillLatency
	if after := max(late, heard, anew); after > KillLatency {
		k.At = p.Deadline.Add(after)
	}
	k.Late = max(anew, askedAnew(p), late, heard)
	left := leftToKill(p)
	if left {
		k.Still = min(k.Late, Grace(p))
	} else {
		k.Late = max(0, k.Late-Grace(p))
	}
	// When the kubelet was through with a start is known from Kubernetes 1.34 on.
	mayStart := startsUp(p) || left && p.StopAwaitedUntil.IsZero()
	if mayStart && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.PostStart }) {
		k.Late, k.Still = k.Late+Grace(p), k.Still+Grace(p)
	}
	k.Done = k.hadTime(p)
}

// hadTime reports whether the kubelet has had the time to have the pod killed, by what else is known of the Kill.
func (k *Kill) hadTime(p *View) bool {
	if p.Mirror {
		return false
	}
	overdue, late := p.Overdue(), beganLate(p)
	switch {
	case len(p.Plugins) > 0 && len(AppTasks(p)) == 0 && overdue >= KillLatency: // its network is taken down, which comes after that
		return true
	case k.Known && !k.Latest && !p.StopAwaited && overdue >= KillLatency:
		return true
	case late > KillLatency && !p.DeadlineUnsure && k.Stayed && overdue >= late+2*KillLatency: // between two readings
		return true
	}
	return overdue >= k.Late+StepPatience(p)
}

// leftToKill reports whether a program of the pod may live that has not been killed: only for such a one does the kubelet wait. Those in a kernel
// of their own are not seen.
func leftToKill(p *View) bool {
	if Missing(p, evidence.Processes) {
		return !p.ContainersEnded()
	}
	if slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.State == evidence.StateRunning && Sandboxed(&c) }) {
		return true
	}
	return slices.ContainsFunc(AppTasks(p), func(t *evidence.Task) bool { return !Dying(t) })
}

// beganAnew returns how long after the request for deletion the kubelet was started; 0
// when it was there before, or that is not known.
func beganAnew(p *View) time.Duration {
	t := p.Node.Kubelet.Process
	if t.Started().IsZero() {
		return 0
	}
	return max(0, t.Probe.Started.Sub(p.DeletionRequested))
}

// askedAnew returns how long after the request for deletion containerd was started, or first asked by this agent, while
// a program of the pod lives: the end of containerd ends the kubelet's request to stop a container, and the next one has
// the whole grace period. What has been killed waits for none.
func askedAnew(p *View) time.Duration {
	since := p.Node.Containerd.ConnectedSince
	if since.IsZero() || !leftToKill(p) {
		return 0
	}
	return max(0, since.Sub(p.DeletionRequested))
}

// beganLate returns how long after the request for deletion the kubelet had not begun to stop the pod, which it
// has by now: it completes first what it is at, such as to end a container for its liveness probe, with the whole
// grace period, and to start it again.
func beganLate(p *View) time.Duration {
	if !p.StopBegun || p.StopAwaitedUntil.IsZero() {
		return 0
	}
	return max(0, p.StopAwaitedUntil.Sub(p.DeletionRequested))
}

// heardAgain returns how long after the request for deletion the node became Ready again, as when its kubelet got through to the API server
// again: it may have heard of the deletion only then, and gives the whole grace period. 0 where the pod's status says when it began (Kubernetes
// 1.34 and later), and where the node has been Ready since before.
func heardAgain(p *View) time.Duration {
	r := p.Node.Ready
	if r == nil || r.Status != "True" || r.Transition.IsZero() || p.StopBegun || p.StopAwaited {
		return 0
	}
	return max(0, p.NodeTime(r.Transition).Sub(p.DeletionRequested))
}

// SignalSources are what tells the fate of a stop signal: the processes and their
// masks, the containers and their stop signals, and what the suspects wait in.
var SignalSources = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects}

// Missing reports whether any of the sources could not be read.
func Missing(p *View, sources ...evidence.Source) bool {
	for _, s := range sources {
		if _, ok := p.Missing[s]; ok {
			return true
		}
	}
	return false
}
