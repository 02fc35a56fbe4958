package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// The variants of ChildIgnoresForwardedSignal besides ignoring it.
const (
	blocks = "Blocks"
	defers = "Defers"
)

// ChildIgnoresForwardedSignal is a program that does not act on the signal that
// the init above it forwards.
var ChildIgnoresForwardedSignal = &diagnose.Rule{
	Cause: "ChildIgnoresForwardedSignal",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the init's child does not act on the stop signal",
		Who:   diagnose.ByApp,
		Message: "container {container}: {comm} {forwards} {signal} to {child}, which {how}. " +
			"{killed}",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "how": {
			{Variant: blocks, Text: "{blocks} {signal} in every thread"},
			{Variant: defers, Text: "{runs} its trap only after its foreground command {foreground} {exits}"},
			{Text: "{ignores} it"},
		}, "shows": {
			{Variant: blocks, Text: "{signal} is blocked in every thread of {child} (SigBlk) and pending (ShdPnd)"},
			{Variant: defers, Text: "{child} (PID {childpid}) has a trap for {signal} (SigCgt) and sleeps in wait4"},
			{Text: "{child} (PID {childpid}) ignores {signal} now, and did before the deletion"},
		}, "still": {
			{Variant: blocks, Text: "No thread of {child} (PID {childpid}) has run for at least 3 seconds"},
			{Variant: pipeline, Text: "{foreground} (PID {foregroundpid}) was started before the deletion and writes to a filter"},
			{Variant: defers, Text: "{foreground} (PID {foregroundpid}) was started before the deletion and has no handler for {signal}"},
			{Text: "No process below {child} reacts to {signal} either"},
		}, "next": {
			{Variant: blocks, Text: "In {child}, let one thread take {signal} at all times, or unblock {signal} (pthread_sigmask) before the program is executed"},
			{Variant: pipeline, Text: pipelineOf("{foreground}")},
			{Variant: defers, Text: "For a fast next deletion, let the init send {signal} to the whole process group (tini -g, dumb-init without -c). " +
				"{signal} then ends {foreground}, and the trap runs. If the trap is not needed, start {foreground} with exec in the script"},
			{Variant: fixed, Text: "{child} has no setting for signals. If a script sets trap '' for {signal} before it starts {child}, remove that: " +
				"{signal} then ends it immediately"},
			{Text: "For a fast and clean next deletion, let {child} handle {signal}. " +
				"If a script sets trap '' for {signal} before it starts the program, remove that: a program inherits what its shell ignores"},
		}, "first": {
			{Variant: blocks, Text: "in the code of {child}, let one thread take {signal}, or unblock {signal} (pthread_sigmask)"},
			{Variant: pipeline, Text: asPipeline},
			{Variant: defers, Text: "use tini -g, or dumb-init without -c, as ENTRYPOINT of the image"},
			{Variant: fixed, Text: "remove what lets {child} ignore {signal}, such as trap '' in its script"},
			{Text: "let {child} " + notIgnored},
		}, "forwards": verb("forwards", "forwarded"), "ignores": verb("ignores", "ignored"), "blocks": verb("blocks", "blocked"),
			"runs": verb("runs", "could run"), "exits": verb("exits", "exited")},
		Meaning: "The container's first process is a small init, which does its part: it forwards the stop signal to the program that it runs. " +
			"The program does not act on the signal, and the init waits for the program.",
		Evidence: []string{
			"The first process is tini, docker-init, dumb-init or catatonit, and sleeps in sigwait.",
			"Two readings show one of the next three items of its oldest child.",
			"The child ignores the stop signal (SigIgn), and did before the deletion.",
			"Or the child blocks the signal (SigBlk) and leaves it pending (ShdPnd), as with StopSignalBlocked.",
			"Or the child is a shell with a trap, which waits for a program in its foreground. That program does not handle the signal.",
			"That the child ignores the signal is proved if it has not run since a reading from before the deletion. Otherwise it is inferred.",
			"Not reported for a child that ignores the signal while a process below it does not. " +
				"The init may send the signal to the whole process group, and a script may ignore it to outlive its program.",
			"Not reported under dumb-init if the child handles SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 or SIGWINCH: " +
				"dumb-init can send that instead (--rewrite).",
		},
		Seen: []string{
			"The first process of container {container} is {comm} (PID {pid} on the node)",
			"{shows}",
			"{still}",
		},
		First: "nothing now; for the next deletion, {first}",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is killed before it has acted on {signal}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range fact.Signalled(p) {
			deaf := fp.DeafChild(p)
			if deaf == nil {
				continue
			}
			f := diagnose.About(p, fp, diagnose.Proved)
			f.Objects.Child = diagnose.ProcessOf(p, deaf.Child)
			switch deaf.Why {
			case fact.Ignored:
				f.Confidence = confidence(p, deaf.Child, deaf.Why)
				if fact.Fixed(deaf.Child.Comm) {
					f.Variants = append(f.Variants, fixed)
				}
			case fact.Blocked:
				f.Variants = append(f.Variants, blocks)
			case fact.Caught:
				f.Variants = append(f.Variants, defers)
				if deaf.Piped {
					f.Variants = append(f.Variants, pipeline)
				}
				f.Objects.Foreground = diagnose.ProcessOf(p, deaf.Foreground)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
