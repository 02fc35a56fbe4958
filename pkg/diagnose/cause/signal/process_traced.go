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

// ProcessTraced is a process that its tracer has stopped and does not let go on.
var ProcessTraced = &diagnose.Rule{
	Cause: "ProcessTraced",
	When:  diagnose.InGraceAndAfter,
	// A tracer can hold the sandbox's process, too, when it has been killed.
	Phases: append(slices.Clone(diagnose.WhileProcessesLive), diagnose.Sandbox),
	Needs:  fact.SignalSources,
	Doc: diagnose.Doc{
		Layer:   "signal",
		Title:   "a tracer has stopped a process and does not let it go on",
		Message: "{where}process {comm} (PID {pid} on the node) is held by its tracer {tracer}{held}",
		Phrases: map[string][]diagnose.Choice{"held": {
			{Variant: familyHeldAtExit, Text: ": it has ended or been killed, and the tracer, which has asked to be told of its exit, does not let it go. SIGKILL does not help"},
			{Text: " in a stop, so it cannot react to {sent}. Unless the tracer lets it go on, the pod waits for SIGKILL at {deadline}"},
		}, "sent": {{Text: "{signal}"}, {Text: "its stop signal"}}, "release": {
			{Variant: diagnose.Essential, Text: "Do not end {tracer}: it serves other pods, or the whole node. " +
				"A program can make its parent its tracer by itself (PTRACE_TRACEME): let it not do that"},
			{Text: "Let the tracer detach, else end it: {tracer}. The process continues immediately"},
		}},
		Meaning: "A debugger or tracer (gdb, strace, delve, a profiler) has attached to the process with ptrace(2) and stopped it. " +
			"Signals wait until the tracer lets it go on.",
		Evidence: "A thread of the process is in state t, with the tracer's PID in TracerPid, and two readings three seconds or more apart show that it has not run. " +
			"A process that is traced and runs is not held up: strace and the like pass signals on.",
		Remedy: "{release}.",
		Danger: "A force delete leaves the process and its tracer on the node, unseen. " +
			"Restarting containerd or the kubelet does not help.",
		Families: []diagnose.Family{
			{
				Name: familyHeld,
				Meaning: "The process is stopped in the middle of its work. " +
					"SIGKILL at the end of the grace period ends it all the same, unless the tracer has asked to be told of its exit.",
			},
			{
				Name: familyHeldAtExit,
				Meaning: "The process is at its end, and the tracer has asked to be told of its exit (PTRACE_O_TRACEEXIT). " +
					"The process stays, also after SIGKILL, until the tracer lets it go on or ends.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		seen := make(map[int]bool)
		var out []diagnose.Finding
		add := func(f diagnose.Finding, t *evidence.Task) {
			if seen[t.PID] {
				return
			}
			seen[t.PID] = true
			f.Objects.Process, f.Objects.Tracer = diagnose.ProcessOf(p, t), diagnose.ProcessByID(p, t.TracerPID)
			if diagnose.EssentialByID(p, t.TracerPID) {
				f.Variants = append(f.Variants, diagnose.Essential)
			}
			out = append(out, f)
		}
		for i := range p.Tasks {
			if t := &p.Tasks[i]; heldByTracer(p, t) && fact.Through(t, "do_exit") {
				add(diagnose.Finding{Container: p.ContainerName(t), Family: familyHeldAtExit, Confidence: diagnose.Proved}, t)
			}
		}
		if p.Overdue() >= 0 {
			return diagnose.Found(out...) // SIGKILL ends the other kind
		}
		for _, fp := range fact.FirstProcesses(p) {
			threads := fp.Threads
			if child := fp.ForwardsTo(); child != nil {
				threads = append(threads, fact.Assemble(p, fp.Container, child).Threads...)
			}
			for _, t := range threads {
				if heldByTracer(p, t) {
					f := diagnose.About(p, fp, diagnose.Proved)
					f.Family = familyHeld
					add(f, t)
				}
			}
		}
		return diagnose.Found(out...)
	},
}

// heldByTracer reports whether the task is in a ptrace stop and does not leave
// it.
func heldByTracer(p *fact.View, t *evidence.Task) bool {
	return t.State == evidence.Traced && t.TracerPID != 0 && t.Unchanged(p.Time) >= fact.LeastStill
}
