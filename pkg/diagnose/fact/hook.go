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
	hook = only(Executed(p, c, c.Task.PID), func(t *evidence.Task) bool { return !t.Started().IsZero() && p.MayBeHook(t) })
	shell := shells[c.PreStopProgram]
	if hook == nil || hook.Started().Before(p.DeletionRequested) || !shell && !Runs(hook, c.PreStopProgram) {
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

// Executed returns the processes that the shim has started in a container and that live, but for its first one.
func Executed(p *View, c *evidence.Container, first int) []*evidence.Task {
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

// Runs reports whether a process runs the program of that name: as its file, or as
// the script that its comm is cut from.
func Runs(t *evidence.Task, program string) bool {
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
