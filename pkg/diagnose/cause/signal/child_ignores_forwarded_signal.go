package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
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
	By: diagnose.Ways{
		diagnose.By[fact.FirstProcess]{
			Title: "The program ignores the signal", From: ofProcesses, Of: fact.FirstProcesses,
			Facts: slices.Concat(forwarded, ofChild(ignoring), facts{
				{Says: "No process below the program takes the signal. " +
					"The init may send it to the whole process group, and a script may ignore it to outlive its program.",
					Is: diagnose.If(heardNowhereBelow), From: ofSuspects},
				{Says: "The init is not dumb-init, or the program handles none of SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH: " +
					"dumb-init can send that instead (--rewrite).", Is: diagnose.If(isSentNoOther), From: ofSuspects},
			}),
			Tell: diagnose.Each(tellChildIgnores),
		},
		diagnose.By[fact.FirstProcess]{
			Title: "The program blocks the signal", From: ofProcesses, Of: fact.FirstProcesses,
			Facts: slices.Concat(forwarded, ofChild(pending)),
			Tell:  diagnose.Each(tellChildBlocks),
		},
		diagnose.By[fact.FirstProcess]{
			Title: "The program is a shell that defers its trap", From: ofProcesses, Of: fact.FirstProcesses,
			Facts: slices.Concat(forwarded, ofChild(deferring), facts{
				{Says: "The child in the foreground has no handler for the signal (SigCgt).", Is: diagnose.If(foregroundEnds), From: ofSuspects},
			}),
			Tell: diagnose.Each(tellChildDefers),
		},
	},
}

// forwarded are the facts by which a small init hands the stop signal to the program that it runs.
var forwarded = slices.Concat(heard, facts{
	{Says: "The first process is tini, docker-init, dumb-init or catatonit, and has a child. Its oldest child is the program.",
		Is: isInit, From: ofSuspects},
	{Says: "The init takes the signal: it sleeps in sigwait, or has a handler (SigCgt).", Is: shows(fact.Caught), From: ofSuspects},
}, ofChild(facts{
	{Says: "Two readings, three seconds or more apart, show that the program does the same with signals.", Is: settled, From: ofSuspects},
}))

// ofChild returns facts about the program that a small init runs.
func ofChild(of facts) facts {
	out := slices.Clone(of)
	for i := range out {
		if is := out[i].Is; is != nil {
			out[i].From = ofSuspects // which program that is
			out[i].Is = func(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
				if h := isInit(p, fp); !h.Yes() {
					return h
				}
				return is(p, asked(p, fp))
			}
		}
	}
	return out
}

func isInit(_ *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if fp.ForwardsUnread() {
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.Is(fp.ForwardsTo() != nil)
}

func heardNowhereBelow(p *fact.View, fp fact.FirstProcess) bool {
	return !fact.HeardBelow(p, asked(p, fp).Leader, fp.Container.StopSignal)
}

func isSentNoOther(p *fact.View, fp fact.FirstProcess) bool {
	return !fp.MayHandleAnother(asked(p, fp).Leader)
}

func foregroundEnds(p *fact.View, fp fact.FirstProcess) bool {
	front, _ := asked(p, fp).InFront()
	return front != nil && !front.Caught.Has(fp.Container.StopSignal)
}

// tellChild starts the finding about the program that a small init runs.
func tellChild(p *fact.View, fp fact.FirstProcess) (f diagnose.Finding, child fact.FirstProcess) {
	f, child = diagnose.About(p, fp, diagnose.Proved), asked(p, fp)
	f.Objects.Child = diagnose.ProcessOf(p, child.Leader)
	return f, child
}

func tellChildIgnores(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f, child := tellChild(p, fp)
	f.Confidence = confidence(p, child.Leader, fact.Ignored)
	if fact.Fixed(child.Leader.Comm) {
		f.Variants = append(f.Variants, fixed)
	}
	return f
}

func tellChildBlocks(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f, _ := tellChild(p, fp)
	f.Variants = append(f.Variants, blocks)
	return f
}

func tellChildDefers(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f, child := tellChild(p, fp)
	f.Variants = append(f.Variants, defers)
	front, _ := child.InFront()
	if program, role := child.Main(p); role == fact.Piped {
		front, f.Variants = program, append(f.Variants, pipeline)
	}
	f.Objects.Foreground = diagnose.ProcessOf(p, front)
	return f
}
