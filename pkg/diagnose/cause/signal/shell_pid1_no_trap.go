package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of what to do about ShellPID1NoTrap: a shell that runs one program after the other, as in a loop, which exec
// would end; and one whose stop signal is not SIGTERM.
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
		Title: "PID 1 is a shell that does not forward signals",
		Message: "container {container}: PID 1, the shell {program} ({pid} on the node), has no trap for {signal}, so {unreached}. " +
			"{sigkill}",
		Meaning: "The runtime signals only the first process of a container, here a shell. " +
			"The shell does not forward the signal to the program that it started as a child. " +
			"Without a trap, the kernel does not even deliver it, because the shell is PID 1 of its namespace. " +
			"The program is killed in the middle of its work when the grace period is over. " +
			"A script that runs one program after the other, as in a loop, needs its own trap: exec would end the loop.",
		Evidence: []string{
			"PID 1 is a shell, and the conditions of SignalDroppedByPID1 hold. As there, it is proved or inferred.",
			"In busybox, one file is many programs. Its shell is the one that handles SIGINT and SIGCHLD and ignores SIGQUIT, whatever its script is called.",
			"The shell has a live child, or has had one that has exited.",
			"An earlier child was seen since the deletion. Or there were page faults of children that have exited (cminflt and cmajflt in /proc/PID/stat). " +
				"A loop may wait for long between two programs, as in read -t.",
			"The message does not name a child that was started after the deletion: the next reading may show another one.",
			"Not reported for a shell that has replaced itself with its program (exec, or bash -c with one command). " +
				"It is no longer a shell, and is judged as that program.",
		},
		Phrases: map[string][]diagnose.Choice{"unreached": {
			{Text: "{child} never receives it"},
			{Text: "none of its programs receives it"},
		}, "next": {
			{Variant: inTurn, Text: "For a fast next deletion, begin the script with {trap}. " +
				"The shell runs a trap only after its current command exits, so run long ones in the background: sleep 60 & wait"},
			{Text: "For a fast and clean next deletion, start the program with exec in the script, or use the exec form of ENTRYPOINT. " +
				"If the program has no handler for {signal}, put tini or dumb-init first as well. " +
				"Do not use them without exec: they end the shell, and the program gets SIGKILL immediately, before it can stop by itself"},
		}, "trap": {
			{Variant: notTERM, Text: "a trap for {signal} that exits"},
			{Text: "trap 'exit 143' TERM"},
		}, "first": {
			{Variant: inTurn, Text: "begin the script with {trap}. Run long commands as: cmd & wait"},
			{Text: "start {child} with exec in the script"},
			{Text: "start the program with exec in the script"},
		}},
		Seen: []string{
			"{program} (PID {pid} on the node) is PID 1 of its PID namespace, where the kernel drops signals without a handler",
			"{program} has no handler for {signal} (SigCgt) now, and had none before the deletion",
			"{child} (PID {childpid} on the node) is a child of the shell",
		},
		First: "nothing now; for the next deletion, {first}",
		Avoid: "force delete (no faster, pod untracked)",
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is killed{unasked}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
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
