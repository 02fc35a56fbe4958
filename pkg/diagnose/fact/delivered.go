package fact

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Delivered reports whether nothing is seen that stands between the deletion of
// the pod and the stop signal of its containers. The signal itself leaves no trace
// in a process that drops, ignores or handles it, and the time that has passed
// proves nothing: the kubelet begins to stop a pod when it has got to know of the
// deletion and its worker for the pod is free. It is not while a container is
// being created or its image pulled, nor while a postStart hook runs
// (podWorkerLoop, pkg/kubelet/pod_workers.go). Then containerd and the shim have
// to do their part.
func Delivered(p *evidence.Pod) bool {
	if p.DeadlineUnsure {
		return false // when SIGKILL comes is not known
	}
	if p.StopAwaited {
		return false // its worker may be ending a container for its liveness probe, which nothing else shows
	}
	if (p.Gone || p.Overdue() < 0) && len(p.KillFailures) > 0 {
		return false // the runtime could not send it, and containerd does not try that twice
	}
	kubelet := &p.Node.Kubelet
	if t := kubelet.Process; t != nil && (Halted(t) || kubelet.Health != KubeletHealthy && t.State == evidence.Uninterruptible && t.Unchanged(p.Time) >= Stuck ||
		t.Probe != nil && t.Probe.Started.After(p.DeletionRequested.Add(-clockSkew-KillLatency))) { // it begins anew
		return false
	}
	if !ActsOnDeletions(p) {
		return false
	}
	// Where the kubelet is part of another program, as in k3s, only its health tells.
	if gone := kubelet.Process == nil && kubelet.Error == "" && !p.Node.Read.IsZero(); gone && kubelet.Health != KubeletHealthy {
		return false
	}
	if t := p.Node.Containerd.Process; t != nil && Halted(t) || p.Node.Containerd.Refused {
		return false
	}
	for _, s := range Shims(p) {
		if Halted(s) {
			return false
		}
	}
	for i := range p.Containers {
		if !p.Containers[i].Task.UnansweredSince.IsZero() {
			return false
		}
	}
	return !p.Mirror && !startsUp(p)
}

// ActsOnDeletions reports whether nothing is seen for which the kubelet may do nothing about any pod that is deleted.
func ActsOnDeletions(p *evidence.Pod) bool {
	kubelet := &p.Node.Kubelet
	if kubelet.Health != "" && kubelet.Health != KubeletHealthy || KubeletGone(p) || len(kubelet.Strangers) > 0 {
		return false // its main loop may be what hangs on a volume of a pod that is gone
	}
	r := p.Node.Ready
	return !r.Unheard() && (r == nil || r.PLEG == nil && !r.RuntimeDown) // else it may not have been told, or does nothing about it
}

// KubeletHealthy is what /healthz of the kubelet says when all is well.
const KubeletHealthy = "ok"

// Halted reports whether somebody has stopped a task, by a signal or as its tracer.
func Halted(t *evidence.Task) bool { return t.State == evidence.Stopped || t.State == evidence.Traced }

// startsUp reports whether a container of the pod is still to be started, or the
// kubelet has not got over its start: it writes that a container runs when the
// postStart hook has ended. When it has begun to stop the pod it calls a container that it could not
// create one that is being created (SyncTerminatingPod, pkg/kubelet/kubelet.go).
func startsUp(p *evidence.Pod) bool {
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
		case starts(p, c):
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
func triesAgain(p *evidence.Pod) bool {
	return slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		return slices.Contains([]string{"create", "start", "run"}, c.Command)
	})
}

// starts reports whether containerd runs a container of which the kubelet has not written
// that it runs: it does when it has completed the start, and before that the status is
// that of before, as of a container that is yet to run, or has ended and is started again
// (SyncPod, pkg/kubelet/kubelet.go).
func starts(p *evidence.Pod, c *evidence.Container) bool {
	return !p.Gone && c.State == evidence.StateRunning && (c.Waiting || c.Exit != nil)
}

// RuncV2 is the runtime whose shim names its sandbox in its command line, and whose
// containers have processes of the node's kernel: others may run a kernel of their own.
const RuncV2 = "io.containerd.runc.v2"

// Shim is the process that containerd runs for the pod, if it was found; of several the first.
func Shim(p *evidence.Pod) *evidence.Task {
	if all := Shims(p); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Shims are the processes that containerd runs for the pod, as far as they were found: one, or one
// for each container where the runtime is gVisor. A process of a pod may have the name, as one of
// docker's in a container.
func Shims(p *evidence.Pod) []*evidence.Task {
	var out []*evidence.Task
	for i := range p.Parents {
		if s := &p.Parents[i]; strings.HasPrefix(s.Comm, "containerd-shim") && !s.InPod() {
			out = append(out, s)
		}
	}
	return out
}
