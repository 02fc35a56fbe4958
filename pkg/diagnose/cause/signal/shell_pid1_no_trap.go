package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of what to do about ShellPID1NoTrap: a shell that is there for what it runs one after the other, which exec
// would end, and one whose stop signal is not SIGTERM.
const (
	inTurn  = "InTurn"
	notTERM = "NotTERM"
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
			"{sigkill}",
		Meaning: "The runtime signals only the first process of a container. " +
			"A shell that started the program as a child does not pass the signal on, and without a trap the kernel does not even deliver it, " +
			"because the shell is PID 1 of its namespace. " +
			"The program is killed in the middle of its work when the grace period is over. " +
			"A script that runs one program after the other, as in a loop, needs a trap of its own: exec would end the loop.",
		Evidence: "As SignalDroppedByPID1, and PID 1 is a shell with a live child, or with one that has ended: " +
			"it was seen since the deletion, or there were page faults of ended children (cminflt and cmajflt in /proc/PID/stat), " +
			"since a loop may wait for long between two programs, as in read -t. " +
			"A child that was started after the deletion is not named: the next reading shows another one. " +
			"Of busybox, which is many programs, the shell is the one that handles SIGINT and SIGCHLD and ignores SIGQUIT, whatever its script is called. " +
			"A shell that has replaced itself with its program (exec, or bash -c with one command) is not a shell any more and is judged as that program.",
		Phrases: map[string][]diagnose.Choice{"unreached": {
			{Text: "the program it runs, {child} (PID {childpid}), never gets it"},
			{Text: "no program that it runs gets it"},
		}, "next": {
			{Variant: inTurn, Text: "To make the next deletion fast, put {trap} as the script's first line: the shell runs it when the present command has ended. " +
				"Run what takes long, such as sleep, in the background: sleep 60 & wait"},
			{Text: "To make the next deletion fast and clean, start the program with exec in the script, or use the exec form of ENTRYPOINT. " +
				"If it has no handler for {signal}, put tini or dumb-init first as well. " +
				"Without exec, they end the shell, and the program gets SIGKILL immediately, before it can stop by itself"},
		}, "trap": {
			{Variant: notTERM, Text: "a trap for {signal} that exits"},
			{Text: "trap 'exit 143' TERM"},
		}},
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is ended by SIGKILL{unasked}: it may lose what it has not written. " +
			"A force delete does not help: the kubelet still waits the pod's own grace period.",
	},
	Check: func(p *fact.View) diagnose.Result {
		lasting := unheard(p, fact.Dropped, func(fp fact.FirstProcess) bool { return fp.ShellOverChild() && !fp.RunsInTurn(p) })
		for i := range lasting {
			if fact.Sideshow(lasting[i].Objects.Child.Comm) {
				lasting[i].Variants = append(lasting[i].Variants, inTurn)
			}
		}
		changing := unheard(p, fact.Dropped, func(fp fact.FirstProcess) bool { return fp.ShellBetween() || fp.RunsInTurn(p) })
		for i := range changing {
			changing[i].Objects.Child = nil
			changing[i].Variants = append(changing[i].Variants, inTurn)
		}
		out := append(lasting, changing...)
		for i := range out {
			if out[i].Objects.Signal != evidence.SIGTERM.String() {
				out[i].Variants = append(out[i].Variants, notTERM)
			}
		}
		return diagnose.Found(out...)
	},
}
