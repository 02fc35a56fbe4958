package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of ProcessTraced: where the tracer holds the process.
const (
	familyHeld       = "Held"
	familyHeldAtExit = "HeldAtExit"
)

// whoseTracer is how to find whom to ask.
const whoseTracer = "on the node: {whosetracer}. Ask that owner "

// ProcessTraced is a process that its tracer has stopped and does not resume.
var ProcessTraced = &diagnose.Rule{
	Cause: "ProcessTraced",
	When:  diagnose.InGraceAndAfter,
	// A tracer can hold the sandbox's process, too, when it has been killed.
	Phases: append(slices.Clone(diagnose.WhileProcessesLive), diagnose.Sandbox),
	Doc: diagnose.Doc{
		Layer:   "signal",
		Title:   "a tracer holds a process in a ptrace stop",
		Who:     diagnose.ByNode,
		Message: "{where}{comm} (PID {pid} on the node) is {held}",
		Phrases: map[string][]diagnose.Choice{"held": {
			{Variant: familyHeldAtExit, Text: "held at exit by its tracer {tracer}. SIGKILL has no effect until the tracer lets go"},
			{Text: "stopped by its tracer {tracer} and cannot act on {sent}. Unless resumed, SIGKILL is due at {deadline}"},
		}, "sent": {{Text: "{signal}"}, {Text: "its stop signal"}}, "shows": {
			{Variant: familyHeldAtExit, Text: "It is held in do_exit, so the tracer has set PTRACE_O_TRACEEXIT"},
			{Text: "SIGKILL still ends it, unless the tracer has set PTRACE_O_TRACEEXIT"},
		}, "resumes": {
			{Variant: familyHeldAtExit, Text: "exits"},
			{Text: "continues immediately"},
		}, "release": {
			{Variant: diagnose.Essential, Text: "Do not end {tracer}: it serves other pods, or the whole node. " +
				"A program can make its parent its tracer (PTRACE_TRACEME): remove that from the program{reboot}"},
			{Text: "Ask the owner of {tracer} to detach it: the process then {resumes}. " +
				"If the owner agrees to end the tracer instead, on the node: {terminatetracer}. " +
				"If the tracer stays, ask the owner to stop the tracer's pod or service"},
		}, "reboot": {
			{Variant: familyHeldAtExit, Text: ". If the process must go now, ask the owners of the node's other pods. Then drain the node and reboot it"},
			{Text: ""},
		}, "first": {
			{Variant: diagnose.Essential, Text: "{selftraced}"},
			{Variant: familyHeldAtExit, Text: whoseTracer + "to detach it"},
			{Text: whoseTracer + "to detach it, or wait for SIGKILL"},
			{Text: "ask the tracer's owner to detach it"},
		}, "selftraced": {
			{Variant: familyHeldAtExit, Text: "ask the app owner to remove PTRACE_TRACEME from {program}, if called. " +
				"If the pod cannot wait, drain and reboot the node once the other pods' owners agree"},
			{Text: "wait for SIGKILL; for the next deletion, ask the app owner to remove PTRACE_TRACEME from {program}, if called"},
		}, "avoid": {
			{Variant: diagnose.Essential, Text: "ending the tracer (it serves other pods)"},
			{Variant: familyHeldAtExit, Text: "ending the tracer unasked (may trace others)"},
			{Text: "ending the tracer (may end {program} too)"},
		}, "exitkill": {
			{Variant: diagnose.Essential, Text: ""},
			{Variant: familyHeldAtExit, Text: ""},
			{Text: "Ending the tracer kills the process too if the tracer has set PTRACE_O_EXITKILL. "},
		}},
		Meaning: "A debugger or tracer (gdb, strace, delve, a profiler) has attached to the process with ptrace(2) and stopped it. " +
			"Signals stay pending until the tracer resumes the process.",
		Seen: []string{
			"A thread of process {pid} ({comm}) is in state t (ptrace stop), and its TracerPid is {tracerpid}",
			"It has not run for at least 3 seconds (two readings)",
			"{shows}",
		},
		First:  "{first}",
		Avoid:  "{avoid}",
		Remedy: "{release}.",
		Danger: "{exitkill}A force delete leaves the process and its tracer on the node with no API object tracking them. " +
			"Restarting containerd or the kubelet does not help.",
		Families: []diagnose.Family{
			{
				Name: familyHeld,
				Meaning: "The process is stopped in the middle of its work. " +
					"SIGKILL at the end of the grace period still kills it, unless the tracer has set PTRACE_O_TRACEEXIT.",
			},
			{
				Name: familyHeldAtExit,
				Meaning: "The process is exiting, and the tracer has set PTRACE_O_TRACEEXIT to be notified of that. " +
					"The process stays, even after SIGKILL, until the tracer resumes it or exits.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title: "Held at its exit", From: ofProcesses, Of: tracedThreads,
			Facts: slices.Concat(inStop, []diagnose.Fact[*evidence.Task]{
				{Says: "The thread is held in do_exit.", Is: diagnose.If(atExit), From: ofSuspects},
			}),
			Tell: tellHeldAtExit,
		},
		diagnose.By[*evidence.Task]{
			Title: "Held before its exit", From: ofProcesses, Partly: ofSuspects, Of: tracedFirst,
			Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
				{Says: "The process is the first one of a container, or the one that a small init such as tini runs."},
				{Says: "The deadline has not passed: SIGKILL ends such a process.", Pod: diagnose.IfPod(inGrace)},
			}, inStop, []diagnose.Fact[*evidence.Task]{
				{Says: "No thread of the process is held at its exit.", Is: diagnose.If(notHeldAtExit), From: ofSuspects},
			}),
			Tell: tellHeldBefore,
		},
	},
}

// inStop are the facts by which a thread with a tracer is in a ptrace stop, and does not leave it.
var inStop = []diagnose.Fact[*evidence.Task]{
	{Says: "TracerPid of a thread is the PID of the tracer (/proc/PID/task/TID/status)."},
	{Says: "The thread is in state t (ptrace stop). strace and similar tracers let a process run, and pass signals on.", Is: diagnose.If(inPtraceStop)},
	{Says: "Two readings, three seconds or more apart, show that the thread has not run.", Is: staysHeld},
}

func tracedThreads(p *fact.View) (out []*evidence.Task) {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.TracerPID != 0 {
			out = append(out, t)
		}
	}
	return out
}

// tracedFirst returns the threads with a tracer of the first processes, and of the programs that small inits run.
func tracedFirst(p *fact.View) (out []*evidence.Task) {
	for _, fp := range fact.FirstProcesses(p) {
		out = append(out, tracedOf(p, fp)...)
	}
	return out
}

func tracedOf(p *fact.View, fp fact.FirstProcess) []*evidence.Task {
	threads := slices.Clone(fp.Threads)
	if fp.ForwardsTo() != nil {
		threads = append(threads, asked(p, fp).Threads...)
	}
	return slices.DeleteFunc(threads, func(t *evidence.Task) bool { return t.TracerPID == 0 })
}

func inPtraceStop(_ *fact.View, t *evidence.Task) bool { return t.State == evidence.Traced }

func staysHeld(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.LeastStill)
}

func atExit(_ *fact.View, t *evidence.Task) bool { return fact.Through(t, "do_exit") }

func inGrace(p *fact.View) bool { return p.Overdue() < 0 }

func notHeldAtExit(p *fact.View, t *evidence.Task) bool {
	return !slices.ContainsFunc(tracedThreads(p), func(o *evidence.Task) bool {
		return o.PID == t.PID && inPtraceStop(p, o) && staysHeld(p, o).Yes() && atExit(p, o)
	})
}

func tellHeldAtExit(p *fact.View, held []*evidence.Task) (out []diagnose.Finding) {
	for _, t := range onePerProcess(held) {
		out = append(out, byTracer(p, t, diagnose.Finding{Container: p.ContainerName(t), Family: familyHeldAtExit, Confidence: diagnose.Proved}))
	}
	return out
}

func tellHeldBefore(p *fact.View, held []*evidence.Task) (out []diagnose.Finding) {
	held = onePerProcess(held)
	for _, fp := range fact.FirstProcesses(p) {
		for _, t := range tracedOf(p, fp) {
			if slices.Contains(held, t) {
				f := diagnose.About(p, fp, diagnose.Proved)
				f.Family = familyHeld
				out = append(out, byTracer(p, t, f))
			}
		}
	}
	return out
}

// onePerProcess returns the first of the threads of each process.
func onePerProcess(held []*evidence.Task) []*evidence.Task {
	seen := make(map[int]bool)
	return slices.DeleteFunc(slices.Clone(held), func(t *evidence.Task) bool {
		was := seen[t.PID]
		seen[t.PID] = true
		return was
	})
}

func byTracer(p *fact.View, t *evidence.Task, f diagnose.Finding) diagnose.Finding {
	f.Objects.Process, f.Objects.Tracer = diagnose.ProcessOf(p, t), diagnose.ProcessByID(p, t.TracerPID)
	if diagnose.EssentialByID(p, t.TracerPID) {
		f.Variants = append(f.Variants, diagnose.Essential)
	}
	return f
}
