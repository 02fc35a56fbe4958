package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A HookState is how far a preStop hook has come, as far as is seen.
type HookState int

// How far it has come.
const (
	HookNone   HookState = iota // the container has none
	HookMayRun                  // it executes a program, and is not known to be over
	HookSleeps                  // the kubelet sleeps as it
	HookUntold                  // it asks a port, or is not known: no reading tells when it is over
	HookOver                    // it is over
)

// A Hook is what is known of a container's preStop hook.
type Hook struct {
	State HookState
	// Process is that of one that executes a program and is seen to run, nil for any other. ByName reports whether it is known by the program's name.
	Process *evidence.Task
	ByName  bool
	// SignalAt is when the container gets its stop signal, if nothing else is seen that stands before it: when the hook is over, and where there is
	// none when the deletion was requested, or the kubelet has begun. Zero where that is not known.
	SignalAt time.Time
	// Left is what it has left of the grace period: 0 where it is not over, or was never seen.
	Left time.Duration
}

// Past reports whether no hook stands before the stop signal any more.
func (h Hook) Past() bool { return h.State == HookNone || h.State == HookOver }

// Hook returns what is known of the preStop hook of one of the pod's containers.
func (p *View) Hook(c *evidence.Container) Hook { return p.hooks[[2]string{c.Name, c.ID}] }

// hookOf decides what a container's preStop hook does. A sleep of the kubelet begins when that begins to stop the pod, which may be late, and one
// that does not know such hooks sends the stop signal without it. A hook that executes a program is over when nothing that may be its process is left
// (evidence.Pod.MayBeHooks), and it would have been started by now, or was seen and the kubelet has begun to stop the pod. The program may be the one
// that the hook has asked to end.
func hookOf(p *View, c *evidence.Container) Hook {
	if !c.PreStop {
		return Hook{SignalAt: p.Kill.Began}
	}
	h, over, seen := Hook{State: HookUntold}, false, !c.HookSeen.IsZero()
	switch {
	case c.PreStopSleep > 0:
		h.State, h.SignalAt = HookSleeps, p.Kill.Began.Add(time.Duration(c.PreStopSleep)*time.Second)
		over, seen = p.Time.Sub(h.SignalAt) >= hookDoubt(p, c, KillLatency), true
	case c.PreStopProgram != "":
		h.State, h.SignalAt = HookMayRun, c.HookOver
		h.Process, h.ByName = hookProcess(p, c)
		delay := HookDelay.With(p)
		if seen {
			delay = HookDelay.Told(p)
		}
		over = !c.HookOver.IsZero() && (p.Time.Sub(p.Kill.Began) >= hookDoubt(p, c, delay) || p.StopBegun && seen)
	}
	if over {
		h.State = HookOver
		if seen {
			h.Left = min(max(p.Kill.At.Sub(h.SignalAt), MinimumGrace), Grace(p)).Round(time.Second)
		}
	}
	return h
}

// hookProcess returns the process of a container's preStop hook, nil when none is known to run: the only one that the shim has executed in the
// container when it may be a hook (evidence.Pod.MayBeHook), since the deletion was asked for, under the hook's name. With two of them nobody can tell
// which is somebody's kubectl exec. A shell may have executed another program in its place by now, and people execute shells, so there any name will
// do, and byName is false.
func hookProcess(p *View, c *evidence.Container) (hook *evidence.Task, byName bool) {
	if c.Task.PID == 0 && (p.HostPID || p.ShareProcessNamespace) || c.StopSignal == 0 {
		return nil, false
	}
	hook = only(executed(p, c, c.Task.PID), func(t *evidence.Task) bool { return !t.Started().IsZero() && p.MayBeHook(t) })
	shell := shells[c.PreStopProgram]
	if hook == nil || hook.Started().Before(p.DeletionRequested) || !shell && !runs(hook, c.PreStopProgram) {
		return nil, false
	}
	return hook, !shell
}

// OnlySleeps reports whether a preStop hook that runs waits for nothing but time: it is sleep(1), or a shell over one that has
// run for half of the hook's time, and so is none of a loop.
func OnlySleeps(p *View, c *evidence.Container, hook *evidence.Task) bool {
	if c.PreStopOnlySleeps || hook.Comm == "sleep" {
		return true
	}
	below := Assemble(p, c, hook).living()
	return Shell(hook) && len(below) == 1 && below[0].Comm == "sleep" && !below[0].Started().IsZero() &&
		2*p.Time.Sub(below[0].Started()) >= p.Time.Sub(hook.Started())
}

// executed returns the processes that the shim has started in a container and that live, but for its first one.
func executed(p *View, c *evidence.Container, first int) []*evidence.Task {
	shim := firstShim(p)
	if shim == nil || c.ID == "" {
		return nil
	}
	var out []*evidence.Task
	for i := range p.Tasks {
		t := &p.Tasks[i]
		lives := t.State != evidence.Zombie && t.State != evidence.Dead
		if lives && t.Container == c.ID && t.Leader() && t.PPID == shim.PID && t.PID != first && !t.NamespaceInit() {
			out = append(out, t)
		}
	}
	return out
}

// only returns the one task that is so; nil when none is, or several are.
func only(tasks []*evidence.Task, is func(*evidence.Task) bool) *evidence.Task {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t *evidence.Task) bool { return !is(t) })
	if len(tasks) != 1 {
		return nil
	}
	return tasks[0]
}

// PostStartHook returns the process of a container's postStart hook, nil when none is
// known to run: the only one that the shim has executed in the container soon after its
// first process was started, under the hook's name, before the deletion was asked for. The
// kubelet must still be at it: it has not written that the container runs, and has started
// nothing since. sure reports whether it can be nothing else: no container is left whose
// start the kubelet may be at instead, while somebody has executed the hook's program, and
// the kubelet and containerd are known to run since before. With hostPID what a hook has
// left in the background becomes the shim's child as well (find_new_reaper, kernel/exit.c),
// so it never is sure, and nothing is known to run when a container is left or the hook is a
// shell. What runc executes leads a session, and so a group, of its own (setsid,
// libcontainer/nsenter/nsexec.c), and what a shell runs in the background does not.
func PostStartHook(p *View, c *evidence.Container) (hook *evidence.Task, sure bool) {
	if c.PostStartProgram == "" || !starts(p, c) || c.Task.PID == 0 && (p.HostPID || p.ShareProcessNamespace) {
		return nil, false
	}
	first := firstLeader(p, c)
	if first.Started().IsZero() {
		return nil, false
	}
	all := executed(p, c, first.PID)
	if slices.ContainsFunc(all, func(t *evidence.Task) bool { return t.Started().IsZero() }) {
		return nil, false // it may be the hook
	}
	until := first.Started().Add(HookBegins.Told(p)) // what people execute there comes later
	hook = only(all, func(t *evidence.Task) bool {
		return !t.Probe.Terminal && t.Probe.Group == t.PID && !t.Started().Before(first.Started()) && !t.Started().After(until)
	})
	if hook == nil || !hook.Started().Before(p.DeletionRequested.Add(ClockSkew)) || !kubeletWaitsFor(p, c, hook) {
		return nil, false
	}
	shell, last := shells[c.PostStartProgram], nothingLeftToStart(p, c)
	if !shell && !runs(hook, c.PostStartProgram) || p.HostPID && (shell || !last) {
		return nil, false
	}
	return hook, !p.HostPID && last && sinceBefore(p)
}

// PostStartLeft returns the oldest process that a container's postStart hook, which has ended,
// seems to have left running; nil for none. containerd waits until nobody holds the hook's
// output (drain_exec_sync_io_timeout of its CRI plugin is without end by default), and the
// kubelet waits for containerd. It is an orphan, of which the first process of the PID
// namespace has become the parent, in a group of which the leader is gone. Some of what the
// program itself has left may look so; that the kubelet is at something, with nothing left to
// start, tells that there is a hook.
func PostStartLeft(p *View, c *evidence.Container) *evidence.Task {
	first := firstLeader(p, c)
	if c.PostStartProgram == "" || !starts(p, c) || p.HostPID || p.ShareProcessNamespace || first == nil || !nothingLeftToStart(p, c) || !sinceBefore(p) ||
		mayRunHook(p, c, first) {
		return nil
	}
	var oldest *evidence.Task
	for i := range p.Tasks {
		t := &p.Tasks[i]
		ofContainer := t.Container == c.ID && t.Leader() && t.PPID == first.PID && t.State != evidence.Zombie
		if ofContainer && orphaned(p, t) && t.Started().Before(p.DeletionRequested) && kubeletWaitsFor(p, c, t) && (oldest == nil || older(t, oldest)) {
			oldest = t
		}
	}
	return oldest
}

// mayRunHook reports whether a process of a container may be a hook, because it is not known to be no child of the shim.
func mayRunHook(p *View, c *evidence.Container, first *evidence.Task) bool {
	shim := firstShim(p)
	return slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.Container == c.ID && t.Leader() && t.PID != first.PID && (shim == nil || t.PPID == shim.PID)
	})
}

// orphaned reports whether the leader of a process's group is gone.
func orphaned(p *View, t *evidence.Task) bool {
	return !t.Started().IsZero() && t.Probe.Group != 0 && !slices.ContainsFunc(p.Tasks, func(o evidence.Task) bool { return o.PID == t.Probe.Group })
}

// kubeletWaitsFor reports whether nothing shows that the kubelet has gone on since it
// executed a hook, or since the container's first process was started: it starts one container
// after the other (SyncPod, pkg/kubelet/kuberuntime/kuberuntime_manager.go), one that was started
// anew knows nothing of the hook, and the end of containerd ends the request, after which the
// kubelet gives the container a grace period.
func kubeletWaitsFor(p *View, c *evidence.Container, hook *evidence.Task) bool {
	k := &p.Node.Kubelet
	if p.Kubelet.State == Gone || k.Process != nil && k.Process.Probe != nil && k.Process.Probe.Started.After(hook.Probe.Started) {
		return false
	}
	if since := p.Node.Containerd.ConnectedSince; since.After(hook.Probe.Started) && p.Time.Sub(since) < Grace(p)+UnknownAfter {
		return false
	}
	for i := range p.Containers {
		o := &p.Containers[i]
		if o.ID == c.ID || o.Kind == evidence.Sandbox || o.State != evidence.StateRunning {
			continue
		}
		if first := firstLeader(p, o); first == nil || first.Probe == nil || first.Probe.Started.After(hook.Probe.Started) {
			return false
		}
	}
	return true
}

// sinceBefore reports whether it is known since when the kubelet and containerd run, so that
// kubeletWaitsFor would have noticed a start of them.
func sinceBefore(p *View) bool {
	t := p.Node.Kubelet.Process
	return !t.Started().IsZero() && !p.Node.Containerd.ConnectedSince.IsZero()
}

// nothingLeftToStart reports whether all containers of the pod but this one run, so that
// the kubelet cannot be busy with the start of another one.
func nothingLeftToStart(p *View, c *evidence.Container) bool {
	for i := range p.Containers {
		o := &p.Containers[i]
		if o.ID != c.ID && (o.Kind == evidence.App || o.Kind == evidence.Sidecar) && o.State != evidence.StateRunning {
			return false
		}
	}
	return true
}

// runs reports whether a process runs the program of that name: as its file, or as
// the script that its comm is cut from.
func runs(t *evidence.Task, program string) bool {
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	return t.Probe.Exe == program || t.Comm == program || len(t.Comm) == maxComm && strings.HasPrefix(program, t.Comm)
}

// MinimumGrace is what the kubelet leaves a program at the least after its preStop hook, as long as
// the pod's grace period is (minimumGracePeriodInSeconds, pkg/kubelet/kuberuntime).
const MinimumGrace = 2 * time.Second

// hookDoubt returns by how much a hook may have begun later than the kubelet seems to have begun to stop the pod. That a
// container was ended by SIGKILL shows when: one grace period before.
func hookDoubt(p *View, c *evidence.Container, most time.Duration) time.Duration {
	if !p.Gone || c.Exit == nil {
		return most
	}
	return min(most, max(c.Exit.At.Sub(p.Kill.At), 0)+LeastStill)
}

// HookMayHaveAsked reports whether the preStop hook of a container may have asked its program to end, as nginx -s quit and
// pkill do, so that it ends without its stop signal, and in time. A sleep has asked nobody.
func HookMayHaveAsked(c *evidence.Container) bool {
	return c.PreStop && c.PreStopSleep == 0 && !c.PreStopOnlySleeps
}

// ProbeTimeout is for how long a request must have had no answer, to be no probe's: of a pod with a
// probe that may take as long, the requests of the hooks are not looked for.
const ProbeTimeout = 5 * time.Second

// PostStartSleep returns until when the kubelet sleeps, at the least, as the postStart hook of a
// container, and the container's first process; nil when it is not known to. The sleep begins when
// the container has been started, and nothing but the end of the kubelet ends it before its time
// (runSleepHandler, pkg/kubelet/lifecycle/handlers.go). It is never sure: a kubelet before 1.30 does not
// know such hooks, and one that had no answer from containerd to the start runs none.
func PostStartSleep(p *View, c *evidence.Container) (first *evidence.Task, until time.Time) {
	if first = startedBy(p, c); first == nil {
		return nil, time.Time{}
	}
	if until = sleepsUntil(p, c, first); until.IsZero() {
		return nil, until
	}
	return first, until
}

// sleepsUntil returns when a sleep of the kubelet ends as the postStart hook of a container with that first process; zero when it has
// ended, or there is none.
func sleepsUntil(p *View, c *evidence.Container, first *evidence.Task) time.Time {
	until := first.Probe.Started.Add(time.Duration(c.PostStartSleep) * time.Second)
	if c.PostStartSleep == 0 || !p.Time.Before(until) {
		return time.Time{}
	}
	return until
}

// MaySleep returns until when the kubelet may sleep as the postStart hook of a container, though containerd may have been started
// since the sleep began; zero when it does not.
func MaySleep(p *View, c *evidence.Container) (until time.Time) {
	first := firstLeader(p, c)
	if !starts(p, c) || first.Started().IsZero() || !p.Node.Containerd.ConnectedSince.After(first.Probe.Started) {
		return time.Time{}
	}
	return sleepsUntil(p, c, first)
}

// PostStartRequest returns the kubelet's request to a port of the pod that is the postStart hook of a
// container and has had no answer; nil when none is known. The kubelet waits for it without a limit:
// its client has none for hooks (NewMainKubelet, pkg/kubelet/kubelet.go). A connection that cannot be
// made is another thing: the kernel gives it up after two minutes (net.ipv4.tcp_syn_retries). It is never
// sure: a hook or a probe of any other pod may name this pod's address as its host.
func PostStartRequest(p *View, c *evidence.Container) *evidence.Request {
	if c.PostStartPort == 0 || startedBy(p, c) == nil {
		return nil
	}
	var request *evidence.Request
	for i := range p.Requests {
		r := &p.Requests[i]
		switch {
		case r.Port != c.PostStartPort:
		case request != nil:
			return nil // one of them is another's
		default:
			request = r
		}
	}
	if request == nil || request.State != evidence.Established || p.Time.Sub(request.Since) < ProbeTimeout {
		return nil
	}
	return request
}

// startedBy returns the first process of a container of which the kubelet has not completed the
// start, as far as is seen; nil when it has, or that is not known.
func startedBy(p *View, c *evidence.Container) *evidence.Task {
	if k := p.Node.Kubelet.Process; c.ID == "" || !starts(p, c) || k != nil && Halted(k) {
		return nil
	}
	first := firstLeader(p, c)
	if first.Started().IsZero() || !kubeletWaitsFor(p, c, first) {
		return nil
	}
	return first
}
