package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZombieHeldByTracer is a process that has exited and that its parent cannot reap, because a debugger traces it.
var ZombieHeldByTracer = &diagnose.Rule{
	Cause:  "ZombieHeldByTracer",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox},
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a zombie that its tracer has not reaped",
		Who:     diagnose.ByNode,
		Message: "{where}{comm} (PID {pid} on the node) is a zombie: its tracer {tracer}{stopped} has not collected its exit, so its parent cannot",
		Seen: []string{
			"Process {pid} is in state Z with no live thread",
			"TracerPid in /proc/{pid}/status is {tracerpid}, which is not its parent",
		},
		First: "{free}",
		Avoid: "{spare}",
		Phrases: map[string][]diagnose.Choice{
			"stopped": {{Variant: diagnose.Stopped, Text: ", which is paused,"}, {Text: ""}},
			"free": {
				{Variant: diagnose.Stopped, Text: "on the node: {whosetracer}. If that owner agrees, as root: " +
					"{continuetracer}"},
				{Variant: diagnose.Essential, Text: "on the node: {whosetracer}. " +
					"Ask that owner to detach it from the zombie"},
				{Text: "on the node: {whosetracer}. Ask that owner to quit it. If it has no owner: Fix"},
			},
			"letgo": {
				{Variant: diagnose.Stopped, Text: "Continue the tracer, on the node: {continuetracer}; or quit it, or let it detach"},
				{Variant: diagnose.Essential, Text: "Find out why the tracer does not reap it, or let it detach"},
				{Text: "Ask the owner of {tracer} to quit it (gdb: quit, strace: Ctrl-C) or to let it detach"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end it: it serves other pods or the whole node"},
				{Text: "If that does not help, on the node: {terminatetracer}; once the tracer has exited, the parent can reap the zombie"},
			},
			"spare": {{Variant: diagnose.Essential, Text: "ending {tracer} (serves other pods)"}, {Text: "killing the tracer unasked (may trace others)"}},
		},
		Meaning: "When a traced process exits (strace, gdb, a profiler, a security agent), the kernel reports that to its tracer first. " +
			"The parent learns of it only after the tracer has waited for the process or has exited itself. " +
			"The shim is the parent of the container's first process, and never learns that it has exited.",
		Remedy: "{letgo}. " +
			"{end}.",
		Danger: "A tracer that is a profiler or a security agent may trace other processes too: its exit stops or frees them. " +
			"Another SIGKILL to the zombie has no effect. " +
			"A force delete leaves the zombie, and the shim waits for it permanently.",
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes},
		Of:   zombies,
		Facts: []diagnose.Fact[*evidence.Task]{
			{Says: "TracerPid in the status of the zombie (state Z) is not 0, and not its parent.", Is: diagnose.If(heldByTracer)},
			{Says: "No thread of the process lives. With live threads it is ThreadStuckBehindZombieLeader or StuckInExit.", Is: diagnose.If(ended)},
			{
				Says: "The termination waits for it: it is the first process of a container, or of a PID namespace, or a member of a PID namespace " +
					"whose first process exits.",
				Is: diagnose.If(awaited), Partly: []evidence.Source{evidence.Containers, evidence.Shims, evidence.Suspects},
			},
			{
				Says: "It has exited for certain: its name and its state were read at the same time.",
				Is:   diagnose.If(nameIsInTime), Partly: []evidence.Source{evidence.Shims},
			},
			{Says: "Readings over " + fact.Process.String() + " show the same. Three seconds are enough where the tracer is stopped.", Is: heldForLong},
		},
		Tell: diagnose.Each(tellHeld),
	},
}

// zombies returns the processes of the pod in state Z.
func zombies(p *fact.View) (out []*evidence.Task) {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.State == evidence.Zombie {
			out = append(out, t)
		}
	}
	return out
}

func heldByTracer(_ *fact.View, t *evidence.Task) bool {
	return t.TracerPID != 0 && t.TracerPID != t.PPID
}

func ended(p *fact.View, t *evidence.Task) bool { return fact.Ended(p, t.PID) }

// nameIsInTime reports whether the container of a process is known, or is not going to be. One
// that has ended is in no control group any more: its container is the one whose
// shim names it, and a shim that is late is asked again.
func nameIsInTime(p *fact.View, t *evidence.Task) bool {
	return !fact.Missing(p, evidence.Shims) || p.ContainerName(t) != ""
}

func heldForLong(p *fact.View, t *evidence.Task) diagnose.Holding {
	tracer, _ := fact.ByID(p, t.TracerPID)
	return diagnose.Still(p, t, fact.SlowProcess(p, tracer))
}

func tellHeld(p *fact.View, t *evidence.Task) diagnose.Finding {
	f := diagnose.Finding{Container: p.ContainerName(t), Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Process: diagnose.ProcessOf(p, t), Tracer: diagnose.ProcessByID(p, t.TracerPID),
	}}
	if f.Objects.Tracer.State == evidence.Stopped {
		f.Variants = append(f.Variants, diagnose.Stopped)
	}
	if diagnose.EssentialByID(p, t.TracerPID) {
		f.Variants = append(f.Variants, diagnose.Essential)
	}
	return f
}

// awaited reports whether the termination waits for the end of a task's process: the shim waits for it, or it is a member of a PID namespace whose
// first process exits.
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
