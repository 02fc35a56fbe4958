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
		Title: "a shell as PID 1 puts its trap off until the program it runs has ended",
		Message: "container {container}: the shell {program} (PID {pid} on the node) has a trap for {signal}, but it runs traps only when the program in its foreground has ended, " +
			"and {child} (PID {childpid}){untold} still runs. " +
			"{unended}",
		Phrases: map[string][]diagnose.Choice{"untold": {
			{Variant: diagnose.AskedByHook, Text: ""},
			{Text: ", which nobody has told to stop,"},
		}, "unended": {
			{Variant: diagnose.Gone, Text: "{sigkill}"},
			{Text: "Unless that ends by itself, the pod waits for SIGKILL at {deadline}{behind}"},
		}},
		Meaning: "A shell takes a signal while it waits for a program in its foreground, and runs the trap only after that program has ended (POSIX, Shell Command Language, " +
			"Signals and Error Handling). " +
			"The program itself does not get the signal, because the runtime signals the first process of a container only. " +
			"So the script that looks as if it handled the signal does not.",
		Evidence: "PID 1 is a shell, the stop signal is in its SigCgt, it sleeps in wait4, " +
			"and it has a child in its own process group that was there before the deletion and does not ignore SIGINT: " +
			"a child in the background is started with that ignored. " +
			"dash and busybox wait for the background in another system call. bash does not, so under it a child that catches SIGINT or SIGQUIT counts only if it is Java, or Python without a handler for SIGTERM, " +
			"which keep SIGINT ignored when they were started so; and only if bash has started no other one after it, because what it starts for >(program) looks the same, or such a program reads and another child may be in the background. " +
			"bash with a trap for EXIT has handlers for all signals that would end it, and may run that trap immediately: " +
			"there the child must be the only one, and one that the stop signal would have ended. " +
			"Nothing is said when a child was started since the deletion, which may be the trap at work; " +
			"nor when a child in the foreground has run for a shorter time than is left of the grace period, or for less than twice the time that the shell had run before it: " +
			"the shell may be in a loop and run its trap soon.",
		Remedy: "{fine}. " +
			"To make the next deletion fast and clean, run the program in the background and wait for it: program & pid=$!; trap 'kill -TERM $pid' TERM; wait $pid; wait $pid. " +
			"If the trap is not needed, start the program with exec.",
		Danger: "The program is ended by SIGKILL{unasked}, and the trap never runs: what either should have written is lost. " +
			"A force delete does not speed this up.",
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
