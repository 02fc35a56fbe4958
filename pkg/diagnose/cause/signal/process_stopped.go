package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ProcessStopped is a container of which the process that has to react to the
// stop signal is stopped by another one.
var ProcessStopped = &diagnose.Rule{
	Cause: "ProcessStopped",
	When:  diagnose.InGrace,
	Needs: []evidence.Source{evidence.Processes, evidence.Containers},
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the first process is stopped by SIGSTOP",
		Message: "container {container}: its process {program} (PID {pid} on the node) is stopped by a signal such as SIGSTOP and runs nothing, so it cannot react to {signal}. " +
			"{uncontinued}",
		Phrases: map[string][]diagnose.Choice{"uncontinued": {
			{Variant: diagnose.Gone, Text: "{sigkill}"},
			{Text: "Unless somebody continues it, the pod waits for SIGKILL at {deadline}{behind}"},
		}, "then": {
			{Variant: diagnose.Gone, Text: "Continue such a process before its pod is deleted: it then takes its stop signal and exits properly"},
			{Text: "When nobody is at work any more, on the node: {continue}; the process then takes the {signal} that waits for it and exits properly. " +
				"Else the pod terminates at {deadline}"},
		}},
		Meaning: "Somebody has sent SIGSTOP to the process (a person, a debugger, a checkpoint or backup job), or it was stopped by its terminal (SIGTSTP, SIGTTIN, SIGTTOU). " +
			"A stopped process keeps all other signals pending, except SIGKILL and SIGCONT.",
		Evidence: "The process is the container's first one, or the one that a small init such as tini runs. " +
			"Its state is T with no tracer, and two readings three seconds or more apart show that it has not run. " +
			"With a tracer it is ProcessTraced; frozen cgroups show other states.",
		Remedy: "Find out who stopped it. {then}.",
		Danger: "A job that takes a consistent copy of its data may have stopped it, and still be at work. " +
			"A force delete does not speed this up.",
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range fact.FirstProcesses(p) {
			t := fp.Leader
			if child := fp.ForwardsTo(); child != nil && t.State != evidence.Stopped {
				t = child
			}
			if t.State != evidence.Stopped || t.TracerPID != 0 || t.Killed() || t.Unchanged(p.Time) < fact.LeastStill {
				continue
			}
			f := diagnose.About(p, fp, diagnose.Proved)
			if t != fp.Leader {
				f.Objects.Process = diagnose.ProcessOf(p, t)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
