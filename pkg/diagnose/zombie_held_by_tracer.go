package diagnose

import (
	"strconv"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZombieHeldByTracer is a process that has ended and that its parent cannot
// reap, because a debugger traces it.
var ZombieHeldByTracer = &Rule{
	Cause:  "ZombieHeldByTracer",
	Phases: []Phase{StopSignal, Kill, Runtime, Sandbox},
	Needs:  []evidence.Source{evidence.Processes},
	Doc: Doc{
		Layer:   "kernel",
		Title:   "an ended process that a debugger does not let go",
		Message: "{where}process {process} ({comm}) has ended and is a zombie, but {tracer}{stopped} traces it and does not collect it, so that its parent cannot",
		Phrases: map[string]string{"stopped": ""},
		Meaning: "A process that is traced (strace, gdb, a profiler, a security agent) is reported to its tracer first when it ends, and to its parent only after the tracer has waited for it or has ended itself. " +
			"The shim is the parent of the container's first process and never learns that it has ended.",
		Evidence: "The process is in state Z without a live thread, TracerPid in its status is not 0 and not its parent, and two readings three seconds or more apart show the same. " +
			"Without a tracer, a zombie is the business of its parent; with live threads it is ThreadStuckBehindZombieLeader or StuckInExit.",
		Remedy: "Let the debugger go on: kill -CONT {tracerpid} on the node if it is stopped, or detach or quit it. Else kill {tracerpid}: when the tracer ends, the shim gets its zombie at once.",
		Danger: "A second SIGKILL to the zombie does nothing. A force delete leaves the zombie, and the shim waits for it for ever. When the tracer is a profiler or a security agent, it may trace other processes too, which its end stops or frees.",
	},
	Check: func(p *evidence.Pod) []Finding {
		var out []Finding
		for i := range p.Tasks {
			t := &p.Tasks[i]
			if t.State != evidence.Zombie || t.TracerPID == 0 || t.TracerPID == t.PPID || t.Unchanged(p.Time) < Stuck ||
				!ended(p, t.PID) || !awaited(p, t) || nameIsLate(p, t) {
				continue
			}
			f := Finding{Container: p.ContainerName(t), Confidence: Proved, Values: map[string]string{
				"where": inContainer(p.ContainerName(t)), "process": strconv.Itoa(t.PID), "comm": t.Comm,
				"tracer": who(p, t.TracerPID), "tracerpid": strconv.Itoa(t.TracerPID), "stopped": "",
			}}
			if tracer, _ := byID(p, t.TracerPID); tracer != nil {
				f.Values["stopped"] = stoppedToo(tracer)
			}
			out = append(out, f)
		}
		return out
	},
}

// ended says that of a process only zombies are left.
func ended(p *evidence.Pod, pid int) bool {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.PID == pid && t.State != evidence.Zombie && t.State != evidence.Dead {
			return false
		}
	}
	return true
}

// awaited says that the termination waits for the end of a task's process: it is
// the one that the shim waits for, or a member of a PID namespace that is
// coming to its end.
func awaited(p *evidence.Pod, t *evidence.Task) bool {
	if t.NamespaceInit() && !foreign(p, t) {
		return true
	}
	if c, ok := p.Container(t.Container); ok && c.Task.PID == t.PID {
		return true
	}
	for i := range p.Tasks {
		if init := &p.Tasks[i]; init.Container == t.Container && through(init, zapPIDNS) {
			return true
		}
	}
	return false
}

// byID finds a task by the number that another one knows it by, its parent's
// or its tracer's, and says whether it is one of the pod's.
func byID(p *evidence.Pod, pid int) (t *evidence.Task, inside bool) {
	for i := range p.Tasks {
		if p.Tasks[i].TID == pid {
			return &p.Tasks[i], true
		}
	}
	for i := range p.Parents {
		if p.Parents[i].TID == pid {
			return &p.Parents[i], false
		}
	}
	return nil, false
}

// stoppedToo says that a process that should act is stopped itself.
func stoppedToo(t *evidence.Task) string {
	if t.State == evidence.Stopped {
		return ", which is stopped,"
	}
	return ""
}

// nameIsLate says that the container of a process is not known yet. One that has
// ended is in no control group any more: its container is the one whose shim names
// it, and a shim that is late is asked again.
func nameIsLate(p *evidence.Pod, t *evidence.Task) bool {
	_, late := p.Missing[evidence.Shims]
	return late && p.ContainerName(t) == ""
}

// inContainer starts a message about a container.
func inContainer(name string) string {
	if name == "" {
		return ""
	}
	return "container " + name + ": "
}
