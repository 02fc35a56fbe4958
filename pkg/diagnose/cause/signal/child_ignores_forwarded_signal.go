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

// ChildIgnoresForwardedSignal is a program that does not end by the signal that
// the init before it passes on.
var ChildIgnoresForwardedSignal = &diagnose.Rule{
	Cause: "ChildIgnoresForwardedSignal",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the program under tini or dumb-init does not take the signal that is passed on",
		Message: "container {container}: {comm} passes {signal} on to {child} (PID {childpid} on the node), which {how}. " +
			"{sigkill}",
		Phrases: map[string][]diagnose.Choice{"how": {
			{Variant: blocks, Text: "blocks it in every thread and has not taken it"},
			{Variant: defers, Text: "has a trap for it, but as a shell puts that off until {foreground} (PID {foregroundpid}) in its foreground has ended"},
			{Text: "ignores it"},
		}, "next": {
			{Variant: blocks, Text: "In {child}, let one thread take {signal} at all times, or reset the mask (pthread_sigmask) before the program is executed"},
			{Variant: defers, Text: "To make the next deletion fast, let the init send the signal to the whole process group (tini -g, dumb-init without -c): " +
				"{foreground} ends by it, and then the trap runs. If the trap is not needed, start {foreground} with exec in the script"},
			{Text: "To make the next deletion fast and clean, let {child} handle {signal}. " +
				"If a script has trap '' for it before it starts the program, remove that: what a shell ignores, its programs ignore as well"},
		}},
		Meaning: "The container has a small init as its first process, which does its part: it hands the stop signal to the program that it runs. " +
			"The program does not act on it, and the init waits for it.",
		Evidence: "The first process is tini, docker-init, dumb-init or catatonit and sleeps in sigwait. " +
			"Its oldest child ignores the stop signal and did before the deletion, or blocks it and leaves it pending as with StopSignalBlocked, " +
			"or is a shell with a trap that waits for a program in its foreground, which does not handle the signal; in two readings. " +
			"Of one that ignores the signal nothing is said while a process below it does not: the init may send the signal to the whole group, and a script ignores it to outlive its program. " +
			"Under dumb-init, which can pass on another signal (--rewrite), nothing is said of a program that handles one of those.",
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is ended by SIGKILL without having acted on the signal: it may lose what it has not written. " +
			"A force delete does not speed this up.",
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
			case fact.Blocked:
				f.Variants = append(f.Variants, blocks)
			case fact.Caught:
				f.Variants = append(f.Variants, defers)
				f.Objects.Foreground = diagnose.ProcessOf(p, deaf.Foreground)
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
