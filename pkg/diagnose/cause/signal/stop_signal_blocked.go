package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// StopSignalBlocked is a first process that blocks its stop signal and never
// takes it.
var StopSignalBlocked = &diagnose.Rule{
	Cause: "StopSignalBlocked",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
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
		Evidence: []string{
			"The stop signal's bit is in SigBlk of every thread of the first process.",
			"It stays in ShdPnd until half of the grace period is over. " +
				"A program that must not be interrupted for a while also blocks the signal, and takes it afterwards.",
			"The threads have not run since soon after the deletion was requested. If the pod was first seen late, " +
				"they have not run for half of the grace period.",
			"Not reported if the signal is blocked and not pending: programs that take signals with sigwait or signalfd block them.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Found(unheard(p, fact.Blocked, func(fp fact.FirstProcess) ([]string, bool) {
			return nil, fp.LeavesPending(p, fp.Container.StopSignal)
		})...)
	},
}
