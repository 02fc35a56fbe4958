package fact

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// delivered reports whether nothing is seen that stands between the deletion of
// the pod and the stop signal of its containers. The signal itself leaves no trace
// in a process that drops, ignores or handles it, and the time that has passed
// proves nothing: the kubelet begins to stop a pod when it has got to know of the
// deletion and its worker for the pod is free. It is not while a container is
// being created or its image pulled, nor while a postStart hook runs
// (podWorkerLoop, pkg/kubelet/pod_workers.go). Then containerd and the shim have
// to do their part.
func delivered(p *View) bool {
	switch {
	case p.DeadlineUnsure:
		return false // when SIGKILL comes is not known
	case p.StopAwaited:
		return false // its worker may be ending a container for its liveness probe, which nothing else shows
	case (p.Gone || p.Overdue() < 0) && len(p.KillFailures) > 0:
		return false // the runtime could not send it, and containerd does not try that twice
	}
	return kubeletDelivers(p) && p.Containerd.State != Gone && p.Containerd.State != Stopped &&
		p.Shim.State != Stopped && p.Shim.State != Silent && !p.Mirror && !startsUp(p)
}

// kubeletDelivers reports whether nothing is seen that keeps the kubelet from it. One that was started anew begins anew.
func kubeletDelivers(p *View) bool {
	k := &p.Node.Kubelet
	if !p.Kubelet.ActsOnDeletions() || p.Kubelet.State == Stopped {
		return false
	}
	t := k.Process
	if t == nil {
		// Where the kubelet is part of another program, as in k3s, only its health tells.
		return k.Error != "" || p.Node.Read.IsZero() || k.Health == KubeletHealthy
	}
	return (k.Health == KubeletHealthy || t.State != evidence.Uninterruptible || t.Unchanged(p.Time) < LeastStill) &&
		(t.Probe == nil || !t.Probe.Started.After(p.DeletionRequested.Add(-ClockSkew-KillLatency)))
}

// startsUp reports whether a container of the pod is still to be started, or the
// kubelet has not got over its start: it writes that a container runs when the
// postStart hook has ended. When it has begun to stop the pod it calls a container that it could not
// create one that is being created (SyncTerminatingPod, pkg/kubelet/kubelet.go).
func startsUp(p *View) bool {
	if p.StopBegun {
		return false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == evidence.Init && c.State == evidence.StateRunning {
			return false // what comes after it is not started any more
		}
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		switch {
		case c.Kind != evidence.App && c.Kind != evidence.Sidecar:
		case Starts(p, c):
			return true
		case c.Exit != nil, c.BackedOff && !triesAgain(p):
		case c.ID == "", c.State == evidence.StateCreated:
			return true
		}
	}
	return false
}

// triesAgain reports whether the runtime is creating or starting a container of the pod: of one that could not be created
// the status stays the same while the kubelet tries again.
func triesAgain(p *View) bool {
	return slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		return slices.Contains([]string{"create", "start", "run"}, c.Command)
	})
}

// Starts reports whether containerd runs a container of which the kubelet has not written
// that it runs: it does when it has completed the start, and before that the status is
// that of before, as of a container that is yet to run, or has ended and is started again
// (SyncPod, pkg/kubelet/kubelet.go).
func Starts(p *View, c *evidence.Container) bool {
	return !p.Gone && c.State == evidence.StateRunning && (c.Waiting || c.Exit != nil)
}

// RuncV2 is the runtime whose shim names its sandbox in its command line, and whose
// containers have processes of the node's kernel: others may run a kernel of their own.
const RuncV2 = "io.containerd.runc.v2"

// firstShim is the process that containerd runs for the pod, if it was found; of several the first.
func firstShim(p *View) *evidence.Task {
	if all := Shims(p); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Shims are the processes that containerd runs for the pod, as far as they were found: one, or one
// for each container where the runtime is gVisor. A process of a pod may have the name, as one of
// docker's in a container.
func Shims(p *View) []*evidence.Task {
	var out []*evidence.Task
	for i := range p.Parents {
		if s := &p.Parents[i]; strings.HasPrefix(s.Comm, "containerd-shim") && !s.InPod() {
			out = append(out, s)
		}
	}
	return out
}
