package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ShellPID1TrapDeferred is a shell as first process whose trap waits for the
// program that it runs in the foreground.
var ShellPID1TrapDeferred = &diagnose.Rule{
	Cause: "ShellPID1TrapDeferred",
	When:  diagnose.InGrace,
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
	By: diagnose.By[fact.FirstProcess]{
		From:  ofProcesses,
		Of:    fact.FirstProcesses,
		Facts: slices.Concat(heard, deferring, facts{{Says: "Under dash and busybox it is proved. Under bash it is inferred."}}),
		Tell:  diagnose.Each(tellDeferred),
	},
}

// deferring are the facts by which a shell puts its trap off until the program in its foreground has ended (fact.FirstProcess.Foreground).
var deferring = facts{
	{Says: "The process is a shell.", Is: diagnose.If(isShell), From: ofSuspects},
	{Says: "The stop signal is in its SigCgt.", Is: shows(fact.Caught), From: ofSuspects},
	{Says: "It sleeps in wait4.", Is: sleepsInWait4, From: ofSuspects},
	{Says: "It has started no child since the deletion: such a child may be the trap at work.", Is: startedNone, From: ofSuspects},
	{Says: "It has a child in its own process group that does not ignore SIGINT (SigIgn). A child in the background is started with SIGINT ignored.",
		Is: diagnose.If(hasForeground), From: ofSuspects},
	{Says: "dash and busybox wait for the background in another system call. bash uses wait4 for both: under bash, the next two items must hold too."},
	{Says: "Under bash, a child that catches SIGINT or SIGQUIT counts only if it is Java, or Python without a handler for SIGTERM. " +
		"These keep SIGINT ignored if they were started so."},
	{Says: "Under bash, the child must be the last one started, because what bash starts for >(program) looks the same. " +
		"A child that reads does not count if another child may be in the background."},
	{Says: "bash with a trap for EXIT has handlers for all signals that would end it, and may run that trap immediately. " +
		"Then the child must be the only one, and one that the stop signal would have ended."},
	{Says: "The child has run for as long as is left of the grace period, and for twice as long as the shell before it. " +
		"Otherwise the shell may be in a loop, and run its trap soon.", Is: outlasts, From: ofSuspects},
}

func sleepsInWait4(_ *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if sh := fp.Leader.Probe; sh == nil || sh.Syscall == "" {
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.Is(fp.SleepsInWait4())
}

func startedNone(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	if slices.ContainsFunc(fp.Children, func(t *evidence.Task) bool { return t.Started().IsZero() }) {
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.Is(!fp.MayHaveStarted(p))
}

func hasForeground(_ *fact.View, fp fact.FirstProcess) bool {
	child, _ := fp.InFront()
	return child != nil
}

func outlasts(p *fact.View, fp fact.FirstProcess) diagnose.Holding {
	child, _ := fp.InFront()
	if child == nil {
		return diagnose.Is(false)
	}
	return untilGone(p, diagnose.Lasted(p, child.Started(), fp.Outlasts(p, child), diagnose.Slow))
}

func tellDeferred(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	f := diagnose.About(p, fp, diagnose.Inferred)
	child, proved := fp.InFront()
	if proved {
		f.Confidence = diagnose.Proved
	}
	if _, role := fp.Main(p); role == fact.Piped {
		f.Variants = append(f.Variants, pipeline) // its first program was found
	} else {
		f.Objects.Child = diagnose.ProcessOf(p, child)
	}
	return f
}
