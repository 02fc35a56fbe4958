package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// ShellPID1NoTrap is a shell as first process that keeps the stop signal from
// the program it runs.
var ShellPID1NoTrap = &diagnose.Rule{
	Cause: "ShellPID1NoTrap",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "PID 1 is a shell that does not forward signals",
		Who:   diagnose.ByApp,
		Message: "container {container}: PID 1, the shell {program}, {has} no trap for {signal}, so {unreached}. " +
			"{killed}",
		Meaning: "The runtime signals only the first process of a container, here a shell. " +
			"The shell does not forward the signal to the program that it started as a child. " +
			"Without a trap, the kernel does not even deliver it, because the shell is PID 1 of its namespace. " +
			"The program is killed in the middle of its work when the grace period is over. " +
			"A script that runs one program after the other, as in a loop, needs its own trap: exec would end the loop. " +
			"In a pipeline, as in PROGRAM | tee FILE, exec and traps do not help: the shell remains and waits for the filter.",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "has": verb("has", "had"), "receives": verb("receives", "received"), "unreached": {
			{Text: "{child} never {receives} it"},
			{Text: "none of its programs {receives} it"},
		}, "next": {
			{Variant: pipeline, Text: pipelineOf("{child}")},
			{Variant: daemon, Text: "The script's last command only keeps the container running. " +
				"For a fast and clean next deletion, start the daemon in the foreground instead, with exec at the end of the script. " +
				"Do not put tini or dumb-init before the script: they end the shell, and the daemon gets SIGKILL immediately"},
			{Variant: jobs, Text: "For a fast and clean next deletion, let the script pass {signal} on to each program that it starts. " +
				"For two programs: {passes}. exec would leave the others to SIGKILL"},
			{Variant: inTurn, Text: "For a fast next deletion, begin the script with {trap}. " +
				"The shell runs a trap only after its current command exits, so sleep in the background: sleep 60 & wait. " +
				"A command in the background gets SIGKILL when the trap exits: leave those in the foreground that must complete"},
			{Text: "For a fast and clean next deletion, start the program with exec in the script, or use the exec form of ENTRYPOINT. " +
				"If the program has no handler for {signal}, put tini or dumb-init first as well. " +
				"Do not use them without exec: they end the shell, and the program gets SIGKILL immediately, before it can stop by itself"},
		}, "passes": {
			{Variant: notTERM, Text: "trap it, send it to the number of each program ($!), and wait for them again"},
			{Text: "a & A=$!; b & B=$!; trap 'kill -TERM $A $B' TERM; wait $A $B; wait $A $B"},
		}, "init": {
			{Variant: notTERM, Text: ""},
			{Text: " (exec tini -- PROGRAM if it has no handler)"},
		}, "trap": {
			{Variant: notTERM, Text: "a trap for {signal} that exits"},
			{Text: "trap 'exit 143' TERM"},
		}, "first": {
			{Variant: pipeline, Text: asPipeline},
			{Variant: daemon, Text: "start {child} in the foreground, with exec at the end of the script"},
			{Variant: daemon, Text: "start the daemon in the foreground, with exec at the end of the script"},
			{Variant: jobs, Text: "pass {signal} on in the script: {passes}" + endsWait},
			{Variant: inTurn, Text: "begin the script with {trap}. Run sleeps as: sleep 60 & wait"},
			{Text: "start {child} with exec in the script{init}"},
			{Text: "start the program with exec in the script{init}"},
		}},
		Seen: []string{
			"{program} (PID {pid} on the node) is PID 1 of its PID namespace, where the kernel drops signals without a handler",
			"{program} has no handler for {signal} (SigCgt) now, and had none before the deletion",
			"{child} (PID {childpid} on the node) runs below the shell",
		},
		First: "nothing now; for the next deletion, {first}",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is killed{unasked}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: slices.Concat(dropped, facts{
			{Says: "It is a shell. One that has replaced itself with its program (exec, or bash -c with one command) is judged as that program.",
				Is: diagnose.If(isShell), From: ofSuspects},
			{Says: "In busybox, one file is many programs. " +
				"Its shell is the one that handles SIGINT and SIGCHLD and ignores SIGQUIT, whatever its script is called."},
			{Says: "The shell has a live child, or has had one that has exited.", Is: diagnose.If(runsPrograms), From: ofSuspects},
			{Says: "An earlier child was seen since the deletion. " +
				"Or there were page faults of children that have exited (cminflt and cmajflt in /proc/PID/stat). " +
				"A loop may wait for long between two programs, as in read -t."},
			{Says: "The message names the youngest subprocess in the shell's process group that does not ignore SIGINT. " +
				"A daemon has left that group, and what a script starts in the background ignores SIGINT."},
			{Says: "If that is a shell too, or only waits for a subprocess of its own, that one is named."},
			{Says: "Programs such as sleep and tail are not named, nor is one that was started after the deletion: the next reading may show another one. " +
				"Nor one that has run for less than twice as long as all that was before it. The script may be a loop, or a job of several steps."},
			{Says: "No program is named either if the script runs others in its background."},
			{Says: "It is a pipeline if the last two subprocesses were started together, and the younger one is a filter (tee) or sleeps in read."},
		}),
		Tell: diagnose.Each(tellNoTrap),
	},
}

func isShell(_ *fact.View, fp fact.FirstProcess) bool { return fact.Shell(fp.Leader) }

// runsPrograms reports whether the program is not the first process itself.
func runsPrograms(p *fact.View, fp fact.FirstProcess) bool {
	_, role := fp.Main(p)
	return role != fact.Itself
}

func tellNoTrap(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	_, role := fp.Main(p)
	variant := map[fact.Role]string{fact.Piped: pipeline, fact.Daemon: daemon, fact.InTurn: inTurn, fact.Several: jobs}[role]
	return tell(p, fp, fact.Dropped, variantsOf(fp, variant)...)
}
