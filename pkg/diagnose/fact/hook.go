package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PreStopHook returns the process of a container's preStop hook, nil when none is
// known to run: the first that the shim has executed in the container since the
// deletion was asked for, under the hook's name. A shell may have executed another
// program in its place by now, so there any name will do, and byName is false;
// somebody's kubectl exec of the same moment would be taken for it.
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
		named := runs(t, c.PreStopProgram)
		if (named || shells[c.PreStopProgram]) && (hook == nil || t.Probe.Started.Before(hook.Probe.Started)) {
			hook, byName = t, named
		}
	}
	return hook, byName
}

// runs reports whether a process runs the program of that name: as its file, or as
// the script that its comm is cut from.
func runs(t *evidence.Task, program string) bool {
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	return t.Probe.Exe == program || t.Comm == program || len(t.Comm) == maxComm && strings.HasPrefix(program, t.Comm)
}
