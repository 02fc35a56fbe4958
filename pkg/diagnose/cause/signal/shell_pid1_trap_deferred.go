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
		Who:   diagnose.ByApp,
		Message: "container {container}: the shell {program} {runs} its {signal} trap only after " +
			"its foreground command {child} {exits}. " +
			"{killed}",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "runs": verb("runs", "could run"), "exits": verb("exits", "exited"), "first": {
			{Variant: pipeline, Text: asPipeline},
			{Text: inBackground},
		}, "next": {
			{Variant: pipeline, Text: pipelineOf("{child}")},
			{Text: "For a fast and clean next deletion, run the program in the background and wait for it: program & pid=$!; trap 'kill -TERM " +
				"$pid' TERM; wait $pid; wait $pid. " +
				"If the trap is not needed, start the program with exec"},
		}},
		Meaning: "A shell that waits for a program in its foreground takes a signal, but runs the trap only after that program has exited " +
			"(POSIX, Shell Command Language, Signals and Error Handling). " +
			"The program itself does not get the signal, because the runtime signals only the first process of a container. " +
			"The script looks as if it handled the signal, but it does not.",
		Evidence: []string{
			"PID 1 is a shell that sleeps in wait4. The stop signal is in its SigCgt.",
			"It has a child in its own process group that was started before the deletion.",
			"This child does not ignore SIGINT (SigIgn). A child in the background is started with SIGINT ignored.",
			"Under dash and busybox it is proved: they wait for the background in another system call. " +
				"bash uses wait4 for both: under bash it is inferred, and the next two items must hold too.",
			"Under bash, a child that catches SIGINT or SIGQUIT counts only if it is Java, or Python without a handler for SIGTERM. " +
				"These keep SIGINT ignored if they were started so.",
			"Under bash, the child must be the last one started, because what bash starts for >(program) looks the same. " +
				"A child that reads does not count if another child may be in the background.",
			"bash with a trap for EXIT has handlers for all signals that would end it, and may run that trap immediately. " +
				"Then the child must be the only one, and one that the stop signal would have ended.",
			"Not reported if a child was started since the deletion: that may be the trap at work.",
			"Not reported if the child has run for less time than is left of the grace period: the shell may be in a loop, and run its trap soon.",
			"Not reported, for the same reason, if the child has run for less than twice as long as the shell had run before it.",
		},
		Seen: []string{
			"{program} (PID {pid} on the node) has a trap for {signal} (SigCgt) and sleeps in wait4",
			"{child} (PID {childpid} on the node) was started before the deletion",
			"The runtime sends {signal} only to the first process of the container",
		},
		First: "nothing now; for the next deletion, {first}",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"{next}.",
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
			if _, role := fp.Main(p); role == fact.Piped {
				f.Variants = append(f.Variants, pipeline) // its first program was found
			} else {
				f.Objects.Child = diagnose.ProcessOf(p, child)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
