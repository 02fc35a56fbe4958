package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StopSignalIgnored is a first process that ignores its stop signal.
var StopSignalIgnored = &diagnose.Rule{
	Cause: "StopSignalIgnored",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the first process ignores the stop signal",
		Message: "container {container}: its first process {program} (PID {pid} on the node) ignores {signal}. " +
			"Unless it ends by itself, the pod waits for SIGKILL at {deadline}",
		Meaning: "The process has set the signal's action to ignore, or has inherited that: what a shell ignores with trap '' TERM, and what nohup ignores, " +
			"is ignored by every program that it starts. " +
			"An interactive shell ignores SIGTERM by itself, so a container with a shell on a terminal always uses up its grace period.",
		Evidence: "The stop signal's bit is in SigIgn of the first process in two readings, and was before the deletion, as with SignalDroppedByPID1; " +
			"and its first thread neither blocks the signal nor waits for signals with sigwait.",
		Remedy: "Nothing is broken: the pod terminates at {deadline}. " +
			"To make the next deletion fast, remove the trap '' or nohup before the program, or let it handle {signal}; for a shell on a terminal, end the shell, " +
			"or delete the pod with a short --grace-period.",
		Danger: "The program is ended by SIGKILL without having been asked to stop: it may lose what it has not written. " +
			"A force delete does not speed this up.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		return unheard(p, fact.Ignored, func(fact.FirstProcess) bool { return true })
	},
}
