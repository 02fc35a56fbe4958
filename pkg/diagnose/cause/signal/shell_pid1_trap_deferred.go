package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// ShellPID1TrapDeferred is a shell as first process whose trap waits for the
// program that it runs in the foreground.
var ShellPID1TrapDeferred = &diagnose.Rule{
	Cause: "ShellPID1TrapDeferred",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "a shell as PID 1 defers its trap",
		Message: "container {container}: the shell {program} (PID {pid} on the node) runs its {signal} trap only after " +
			"its foreground command {child} exits. " +
			"{unended}",
		Phrases: map[string][]diagnose.Choice{"unended": {
			{Variant: diagnose.Gone, Text: "{sigkill}"},
			{Text: "Unless {child} exits, the container is killed at the deadline ({deadline}){behind}"},
		}},
		Meaning: "A shell takes a signal while it waits for a program in its foreground, and runs the trap only after that program has ended (POSIX, Shell Command Language, " +
			"Signals and Error Handling). " +
			"The program itself does not get the signal, because the runtime signals the first process of a container only. " +
			"So the script that looks as if it handled the signal does not.",
		Evidence: []string{"PID 1 is a shell, the stop signal is in its SigCgt, it sleeps in wait4, " +
			"and it has a child in its own process group that was there before the deletion and does not ignore SIGINT: " +
			"a child in the background is started with that ignored. " +
			"dash and busybox wait for the background in another system call. bash does not, so under it a child that catches SIGINT or SIGQUIT counts only if it is Java, or Python without a handler for SIGTERM, " +
			"which keep SIGINT ignored when they were started so; and only if bash has started no other one after it, because what it starts for >(program) looks the same, or such a program reads and another child may be in the background. " +
			"bash with a trap for EXIT has handlers for all signals that would end it, and may run that trap immediately: " +
			"there the child must be the only one, and one that the stop signal would have ended. " +
			"Nothing is said when a child was started since the deletion, which may be the trap at work; " +
			"nor when a child in the foreground has run for a shorter time than is left of the grace period, or for less than twice the time that the shell had run before it: " +
			"the shell may be in a loop and run its trap soon."},
		Seen: []string{
			"{program} has a trap for {signal} (SigCgt) and sleeps in wait4",
			"{child} (PID {childpid} on the node) was started before the deletion",
			"The runtime sends {signal} only to the first process of the container",
		},
		First: "nothing now; for the next deletion: program & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid",
		Avoid: "force delete (no faster, pod untracked)",
		Remedy: "{fine}. " +
			"For a fast and clean next deletion, run the program in the background and wait for it: program & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid. " +
			"If the trap is not needed, start the program with exec.",
		Danger: "The program is killed{unasked}, and the trap never runs: unwritten data of both may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range fact.Signalled(p) {
			if fp.Receives(fp.Container.StopSignal) != fact.Caught {
				continue
			}
			child, proved := fp.Foreground(p)
			if child == nil {
				continue
			}
			confidence := diagnose.Inferred
			if proved {
				confidence = diagnose.Proved
			}
			f := diagnose.About(p, fp, confidence)
			f.Objects.Child = diagnose.ProcessOf(p, child)
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
