package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// StopSignalBlocked is a first process that blocks its stop signal and never
// takes it.
var StopSignalBlocked = &diagnose.Rule{
	Cause: "StopSignalBlocked",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the first process blocks the stop signal",
		Who:   diagnose.ByApp,
		Message: "container {container}: every thread of {program} {blocks} {signal}, which {is} still pending. " +
			"{killed}",
		Meaning: "All threads of the process block the signal. " +
			"The kernel keeps it pending until one of them unblocks it, or takes it with sigwait or signalfd. " +
			"None does: the thread that should is missing, has exited, or is busy with something else. " +
			"Every program that the process executes inherits the mask of blocked signals.",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "blocks": verb("blocks", "blocked"), "is": verb("is", "was")},
		Seen: []string{
			"{signal} is blocked in every thread of process {pid} (SigBlk) and pending (ShdPnd)",
			"No thread of it has run for at least 3 seconds (two readings)",
		},
		First: "nothing now; for the next deletion, in the code of {program}, let one thread take {signal}, or unblock {signal} (pthread_sigmask)",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"In {program}, let one thread take {signal} at all times, or unblock {signal} (pthread_sigmask) before the program is executed.",
		Danger: "The program is killed before it has taken {signal}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	By: diagnose.By[fact.FirstProcess]{
		From:  ofProcesses,
		Of:    fact.FirstProcesses,
		Facts: slices.Concat(inTime, pending),
		Tell:  diagnose.Each(tellBlocked),
	},
}

func tellBlocked(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	return tell(p, fp, fact.Blocked)
}
