package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ShellPID1NoTrap is a shell as first process that keeps the stop signal from
// the program it runs.
var ShellPID1NoTrap = &diagnose.Rule{
	Cause: "ShellPID1NoTrap",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "a shell as PID 1 keeps the stop signal from the program it runs",
		Message: "container {container}: the shell {program} is PID 1 of the container (PID {pid} on the node) and has no trap for {signal}, so the kernel drops the signal, " +
			"and the program it runs, {child} (PID {childpid}), never gets it. " +
			"Unless that ends by itself, the pod waits for SIGKILL at {deadline}",
		Meaning: "The runtime signals only the first process of a container. " +
			"A shell that started the program as a child does not pass the signal on, and without a trap the kernel does not even deliver it, " +
			"because the shell is PID 1 of its namespace. " +
			"The program is killed in the middle of its work when the grace period is over.",
		Evidence: "As SignalDroppedByPID1, and PID 1 is a shell with a live child. " +
			"A shell that has replaced itself with its program (exec, or bash -c with one command) is not a shell any more and is judged as that program.",
		Remedy: "Nothing is broken: the pod terminates at {deadline}. " +
			"To make the next deletion fast and clean, start the program with exec in the script, use the exec form of ENTRYPOINT, or put tini or dumb-init before the program.",
		Danger: "The program is ended by SIGKILL without having been asked to stop: it may lose what it has not written. " +
			"A force delete does not help: the kubelet still waits the pod's own grace period.",
	},
	Undecided: func(p *evidence.Pod) bool {
		return p.Overdue() < 0 && slices.ContainsFunc(fact.FirstProcesses(p), fact.FirstProcess.ShellBetween)
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		return unheard(p, fact.Dropped, fact.FirstProcess.ShellOverChild)
	},
}
