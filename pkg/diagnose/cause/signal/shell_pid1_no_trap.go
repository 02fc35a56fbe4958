package signal

import (
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
			"and {unreached}. " +
			"Unless the shell ends by itself, the pod waits for SIGKILL at {deadline}",
		Meaning: "The runtime signals only the first process of a container. " +
			"A shell that started the program as a child does not pass the signal on, and without a trap the kernel does not even deliver it, " +
			"because the shell is PID 1 of its namespace. " +
			"The program is killed in the middle of its work when the grace period is over.",
		Evidence: "As SignalDroppedByPID1, and PID 1 is a shell with a live child, or with one that has ended: " +
			"it was seen since the deletion, or there were page faults of ended children (cminflt and cmajflt in /proc/PID/stat), " +
			"since a loop may wait for long between two programs, as in read -t. " +
			"A child that was started after the deletion is not named: the next reading shows another one. " +
			"A shell that has replaced itself with its program (exec, or bash -c with one command) is not a shell any more and is judged as that program.",
		Phrases: map[string][]diagnose.Choice{"unreached": {
			{Text: "the program it runs, {child} (PID {childpid}), never gets it"},
			{Text: "no program that it runs gets it"},
		}},
		Remedy: "Nothing is broken: the pod terminates at {deadline}. " +
			"To make the next deletion fast and clean, start the program with exec in the script, use the exec form of ENTRYPOINT, or put tini or dumb-init before the program.",
		Danger: "The program is ended by SIGKILL without having been asked to stop: it may lose what it has not written. " +
			"A force delete does not help: the kubelet still waits the pod's own grace period.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		lasting := unheard(p, fact.Dropped, func(fp fact.FirstProcess) bool { return fp.ShellOverChild() && !fp.RunsInTurn(p) })
		inTurn := unheard(p, fact.Dropped, func(fp fact.FirstProcess) bool { return fp.ShellBetween() || fp.RunsInTurn(p) })
		for i := range inTurn {
			inTurn[i].Objects.Child = nil
		}
		return append(lasting, inTurn...)
	},
}
