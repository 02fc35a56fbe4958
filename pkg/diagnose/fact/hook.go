package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PreStopHook returns the process of a container's preStop hook, nil when none is
// known to run: the only one that the shim has executed in the container since the
// deletion was asked for, under the hook's name. With two of them nobody can tell
// which is somebody's kubectl exec, and one that has a terminal is. A shell may have
// executed another program in its place by now, and people execute shells, so there
// any name will do, and byName is false.
func PreStopHook(p *evidence.Pod, c *evidence.Container) (hook *evidence.Task, byName bool) {
	shim := Shim(p)
	if shim == nil || c.Task.PID == 0 && (p.HostPID || p.ShareProcessNamespace) || c.ID == "" || c.PreStopProgram == "" || c.StopSignal == 0 {
		return nil, false
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Container != c.ID || !t.Leader() || t.PPID != shim.PID || t.PID == c.Task.PID || t.NamespaceInit() || t.State == evidence.Zombie ||
			t.Probe == nil || t.Probe.Started.IsZero() || t.Probe.Started.Before(p.DeletionRequested.Add(-clockSkew)) {
			continue
		}
		if hook != nil {
			return nil, false
		}
		hook = t
	}
	if hook == nil || hook.Probe.Terminal || hook.Probe.Started.Before(p.DeletionRequested) {
		return nil, false
	}
	if shells[c.PreStopProgram] {
		return hook, false
	}
	if !runs(hook, c.PreStopProgram) {
		return nil, false
	}
	return hook, true
}

// runs reports whether a process runs the program of that name: as its file, or as
// the script that its comm is cut from.
func runs(t *evidence.Task, program string) bool {
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	return t.Probe.Exe == program || t.Comm == program || len(t.Comm) == maxComm && strings.HasPrefix(program, t.Comm)
}
