package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZombieHeldByTracer is a process that has ended and that its parent cannot
// reap, because a debugger traces it.
var ZombieHeldByTracer = &diagnose.Rule{
	Cause:  "ZombieHeldByTracer",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "an ended process that a debugger does not let go",
		Message: "{where}process {pid} ({comm}) has ended and is a zombie, but {tracer}{stopped} traces it and does not collect it, so that its parent cannot",
		Phrases: map[string][]diagnose.Choice{
			"stopped": {{Variant: diagnose.Stopped, Text: ", which is stopped,"}, {Text: ""}},
			"letgo": {
				{Variant: diagnose.Stopped, Text: "Let the tracer go on, on the node: {continuetracer}; or detach or quit it"},
				{Text: "Detach the tracer, or quit it"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end it: it serves other pods, or the whole node"},
				{Text: "Else, on the node: {terminatetracer}; when the tracer has exited, the shim gets its zombie immediately"},
			},
		},
		Meaning: "A process that is traced (strace, gdb, a profiler, a security agent) is reported to its tracer first when it ends, " +
			"and to its parent only after the tracer has waited for it or has ended itself. " +
			"The shim is the parent of the container's first process and never learns that it has ended.",
		Evidence: "The process is in state Z without a live thread, TracerPid in its status is not 0 and not its parent, and readings over " + fact.Process.String() +
			" show the same, or over three seconds where the tracer is stopped. " +
			"Without a tracer, a zombie is the business of its parent; with live threads it is ThreadStuckBehindZombieLeader or StuckInExit.",
		Remedy: "{letgo}. " +
			"{end}.",
		Danger: "A second SIGKILL to the zombie does nothing. " +
			"A force delete leaves the zombie, and the shim waits for it permanently. " +
			"When the tracer is a profiler or a security agent, it may trace other processes too, which its end stops or frees.",
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for i := range p.Tasks {
			t := &p.Tasks[i]
			if t.State != evidence.Zombie || t.TracerPID == 0 || t.TracerPID == t.PPID {
				continue
			}
			tracer, _ := fact.ByID(p, t.TracerPID)
			if t.Unchanged(p.Time) < fact.SlowProcess(p, tracer) || !fact.Ended(p, t.PID) || !awaited(p, t) || fact.NameIsLate(p, t) {
				continue
			}
			f := diagnose.Finding{Container: p.ContainerName(t), Confidence: diagnose.Proved, Objects: diagnose.Objects{
				Process: diagnose.ProcessOf(p, t), Tracer: diagnose.ProcessByID(p, t.TracerPID),
			}}
			if f.Objects.Tracer.State == evidence.Stopped {
				f.Variants = append(f.Variants, diagnose.Stopped)
			}
			if diagnose.EssentialByID(p, t.TracerPID) {
				f.Variants = append(f.Variants, diagnose.Essential)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}

// awaited reports whether the termination waits for the end of a task's process:
// it is the one that the shim waits for, or a member of a PID namespace that is
// coming to its end.
func awaited(p *fact.View, t *evidence.Task) bool {
	if t.NamespaceInit() && !fact.Foreign(p, t) {
		return true
	}
	if c, ok := p.Container(t.Container); ok && c.Task.PID == t.PID {
		return true
	}
	for i := range p.Tasks {
		if init := &p.Tasks[i]; init.Container == t.Container && fact.Through(init, fact.ZapPIDNS) {
			return true
		}
	}
	return false
}
