package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PreStopHook returns the process of a container's preStop hook, nil when none is
// known to run: the only one that the shim has executed in the container since the
// deletion was asked for, under the hook's name. With two of them nobody can tell
// which is somebody's kubectl exec, and one that has a terminal is. A shell may have
// executed another program in its place by now, and people execute shells, so there
// any name will do, and byName is false. What is executed later than the kubelet begins is another thing.
func PreStopHook(p *View, c *evidence.Container) (hook *evidence.Task, byName bool) {
	if c.Task.PID == 0 && (p.HostPID || p.ShareProcessNamespace) || c.PreStopProgram == "" || c.StopSignal == 0 {
		return nil, false
	}
	hook = only(executed(p, c, c.Task.PID), func(t *evidence.Task) bool {
		began := t.Started()
		return !began.IsZero() && !began.Before(p.DeletionRequested.Add(-ClockSkew)) && !began.After(p.HooksBegunBy()) && !t.Probe.Terminal
	})
	if hook == nil || hook.Started().Before(p.DeletionRequested) {
		return nil, false
	}
	shell := shells[c.PreStopProgram]
	if !shell && !runs(hook, c.PreStopProgram) {
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

// runs reports whether a process runs the program of that name: as its file, or as
// the script that its comm is cut from.
func runs(t *evidence.Task, program string) bool {
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	return t.Probe.Exe == program || t.Comm == program || len(t.Comm) == maxComm && strings.HasPrefix(program, t.Comm)
}

// MinimumGrace is what the kubelet leaves a program at the least after its preStop hook, as long as
// the pod's grace period is (minimumGracePeriodInSeconds, pkg/kubelet/kuberuntime).
const MinimumGrace = 2 * time.Second

// HookOver reports whether the preStop hook of a container is over, and since when the container has had
// its stop signal then. A sleep of the kubelet begins when that begins to stop the pod, which may be late, and one
// that does not know such hooks sends the stop signal without it. A hook that executes a program is over when
// nothing that may be its process is left, and it would have been started by now, or was seen and the kubelet has begun to
// stop the pod. Of a hook that asks a port, and where processes do not tell, it is not known. The program may be the
// one that the hook has asked to end.
func HookOver(p *View, c *evidence.Container) (since time.Time, over bool) {
	began := p.Kill.Began
	switch {
	case c.PreStopSleep > 0:
		since = began.Add(time.Duration(c.PreStopSleep) * time.Second)
		return since, p.Time.Sub(since) >= hookDoubt(p, c, KillLatency)
	case c.PreStopProgram == "", c.HookOver.IsZero():
		return time.Time{}, false
	}
	delay := HookDelay.With(p)
	if !c.HookSeen.IsZero() {
		delay = HookDelay.Told(p)
	}
	return c.HookOver, p.Time.Sub(began) >= hookDoubt(p, c, delay) || p.StopBegun && !c.HookSeen.IsZero()
}

// hookDoubt returns by how much a hook may have begun later than the kubelet seems to have begun to stop the pod. That a
// container was ended by SIGKILL shows when: one grace period before.
func hookDoubt(p *View, c *evidence.Container, most time.Duration) time.Duration {
	if !p.Gone || c.Exit == nil {
		return most
	}
	return min(most, max(c.Exit.At.Sub(p.Kill.At), 0)+LeastStill)
}

// HookOverOrNone reports whether no preStop hook of a container stands before its stop signal any more.
func HookOverOrNone(p *View, c *evidence.Container) bool {
	if !c.PreStop {
		return true
	}
	_, over := HookOver(p, c)
	return over
}

// HookMayHaveAsked reports whether the preStop hook of a container may have asked its program to end, as nginx -s quit and
// pkill do, so that it ends without its stop signal, and in time. A sleep has asked nobody.
func HookMayHaveAsked(c *evidence.Container) bool {
	return c.PreStop && c.PreStopSleep == 0 && !c.PreStopOnlySleeps
}

// SignalSince returns since when a container has had its stop signal, if nothing is seen that stands before it: since its
// preStop hook is over, else since the request for deletion, or since the kubelet has begun.
func SignalSince(p *View, c *evidence.Container) time.Time {
	if c.PreStop {
		since, _ := HookOver(p, c)
		return since
	}
	return p.Kill.Began
}

// HookLeft returns what the preStop hook of a container has left of the grace period, 0 where there is none.
func HookLeft(p *View, c *evidence.Container) time.Duration {
	since, over := HookOver(p, c)
	if !c.PreStop || !over || c.PreStopSleep == 0 && c.HookSeen.IsZero() {
		return 0 // nor where the hook was never seen
	}
	return min(max(p.Kill.At.Sub(since), MinimumGrace), Grace(p)).Round(time.Second)
}

// ProbeTimeout is for how long a request must have had no answer, to be no probe's: of a pod with a
// probe that may take as long, the requests of the hooks are not looked for.
const ProbeTimeout = 5 * time.Second
