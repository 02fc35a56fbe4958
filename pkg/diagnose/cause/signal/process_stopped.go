package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ProcessStopped is a container whose process, which has to react to the stop
// signal, is itself stopped (state T).
var ProcessStopped = &diagnose.Rule{
	Cause: "ProcessStopped",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the container's main process is stopped (state T)",
		Who:   diagnose.ByNode, Ends: true,
		Message: "container {container}: {program} (PID {pid} on the node) {stays}. {due}",
		Phrases: map[string][]diagnose.Choice{"stays": {
			{Variant: diagnose.Gone, Text: "was paused (SIGSTOP or similar) and could not act on {sent}"},
			{Text: "is paused (SIGSTOP or similar) and cannot act on {sent}"},
		}, "sent": {{Text: "{signal}"}, {Text: "its stop signal"}}, "killed": killed, "due": {
			{Variant: diagnose.Gone, Text: "{killed}"},
			{Text: "Unless resumed, {killed}"},
		}, "then": {
			{Variant: diagnose.Gone, Text: "Continue such a process before its pod is deleted: it can then handle {sent} and exit cleanly"},
			{Text: "If no backup, checkpoint or debugger needs it stopped any more, on the node: {continue}. " +
				"The process can then handle {sent} and exit cleanly. Otherwise it is killed at {deadline}"},
		}, "first": {
			{Variant: diagnose.Gone, Text: "nothing now; for the next deletion, ask the app owner which backup, checkpoint or debugger pauses {program}, " +
				"and have it resume first"},
			{Text: "can wait. If the app owner knows of no backup, checkpoint or debugger, on the node, as root: {continue}"},
		}, "avoid": {
			{Variant: diagnose.Gone, Text: ""},
			{Text: "resuming it during a backup (may ruin the copy)"},
		}},
		Meaning: "A person, a debugger, a checkpoint job or a backup job has sent SIGSTOP to the process. " +
			"Or its terminal has stopped it (SIGTSTP, SIGTTIN, SIGTTOU). " +
			"In a stopped process, all other signals stay pending, except SIGKILL and SIGCONT.",
		Seen: []string{
			"Process {pid} ({comm}) is in state T and has no tracer",
			"It has not run for at least 3 seconds (two readings)",
		},
		First:  "{first}",
		Avoid:  "{avoid}",
		Remedy: "Find out who stopped it: a person, a debugger, a checkpoint or a backup job. {then}.",
		Danger: "Do not continue it while a job still copies its data (backup, checkpoint): the copy may become inconsistent. " +
			"A force delete does not speed this up.",
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: facts{
			{Says: "The process is the container's first one, or the one that a small init such as tini runs."},
			killedIfGone,
			{
				Says: "It is in state T (State in /proc/PID/status). Processes in a frozen cgroup show other states.",
				Is:   diagnose.If(isStopped), Partly: ofSuspects,
			},
			{Says: "It has no tracer (TracerPid). With one it is ProcessTraced.", Is: diagnose.If(hasNoTracer), Partly: ofSuspects},
			{Says: "SIGKILL is not pending (SigPnd and ShdPnd).", Is: diagnose.If(notKilled), Partly: ofSuspects},
			{Says: "Two readings, three seconds or more apart, show that it has not run.", Is: staysStopped, Partly: ofSuspects},
		},
		Tell: diagnose.Each(tellStopped),
	},
}

// reacting is the process that has to react to the stop signal: the first one while it is stopped itself, else the one that a small init runs.
func reacting(fp fact.FirstProcess) *evidence.Task {
	if child := fp.ForwardsTo(); child != nil && fp.Leader.State != evidence.Stopped {
		return child
	}
	return fp.Leader
}

func isStopped(_ *fact.View, fp fact.FirstProcess) bool {
	return reacting(fp).State == evidence.Stopped
}

func hasNoTracer(_ *fact.View, fp fact.FirstProcess) bool { return reacting(fp).TracerPID == 0 }

func notKilled(_ *fact.View, fp fact.FirstProcess) bool { return !reacting(fp).Killed() }

func staysStopped(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	return untilGone(p, diagnose.Still(p, reacting(fp), fact.LeastStill))
}

func tellStopped(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Proved)
	if t := reacting(fp); t != fp.Leader {
		f.Objects.Process = diagnose.ProcessOf(p, t)
	}
	return f
}
