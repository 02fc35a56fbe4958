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
		Title: "the first process blocks the stop signal and does not take it",
		Message: "container {container}: its first process {program} (PID {pid} on the node) blocks {signal} in every thread and has not taken it since it was sent; it is still pending. " +
			"{sigkill}",
		Meaning: "All threads of the process have the signal in their mask of blocked signals, " +
			"so the kernel keeps it pending until one of them unblocks it or asks for it with sigwait or signalfd. " +
			"None does: the thread that should is missing, has ended, or is busy with something else. " +
			"A mask is inherited by every program that the process executes.",
		Evidence: "The stop signal's bit is in SigBlk of every thread and stays in ShdPnd, until half of the grace period is over; and no thread has run since soon after the deletion was asked for, or, of a pod that was first seen late, for half of the grace period. " +
			"A program that must not be interrupted for a while blocks the signal as well, and takes it afterwards. " +
			"Blocked without pending is healthy: programs that take signals with sigwait or signalfd block them.",
		Remedy: "{fine}. " +
			"In the program, let one thread take {signal} at all times, or reset the mask (pthread_sigmask) before the program is executed.",
		Danger: "The program is ended by SIGKILL without having taken the signal: it may lose what it has not written. " +
			"A force delete does not speed this up.",
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Found(unheard(p, fact.Blocked, func(fp fact.FirstProcess) bool {
			return fp.LeavesPending(p, fp.Container.StopSignal)
		})...)
	},
}
