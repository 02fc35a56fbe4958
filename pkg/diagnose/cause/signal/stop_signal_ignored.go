package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// aShell is the variant of StopSignalIgnored of a shell: it has a terminal, or its script has a trap.
const aShell = "Shell"

// StopSignalIgnored is a first process that ignores its stop signal.
var StopSignalIgnored = &diagnose.Rule{
	Cause: "StopSignalIgnored",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the first process ignores the stop signal",
		Message: "container {container}: its first process {program} (PID {pid} on the node) ignores {signal}. " +
			"{sigkill}",
		Meaning: "The process has set the signal's action to ignore, or has inherited that: what a shell ignores with trap '' TERM " +
			"is ignored by every program that it starts, unless that sets up a handler of its own. " +
			"An interactive shell ignores SIGTERM by itself, so a container with a shell on a terminal always uses up its grace period.",
		Evidence: "The stop signal's bit is in SigIgn of the first process in two readings, and was before the deletion, as with SignalDroppedByPID1; " +
			"and its first thread neither blocks the signal nor waits for signals with sigwait.",
		Phrases: map[string][]diagnose.Choice{"next": {
			{Variant: aShell, Text: "If the shell has a terminal, end it, or delete its pod with a short --grace-period. " +
				"If it runs a script with trap '' for {signal}, remove that, and start the program with exec in the script, to make the next deletion fast and clean"},
			{Text: "To make the next deletion fast and clean, let the program handle {signal}. " +
				"If a script has trap '' for it before it starts the program, remove that: what a shell ignores, its programs ignore as well"},
		}},
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is ended by SIGKILL{unasked}: it may lose what it has not written. " +
			"A force delete does not speed this up.",
	},
	Check: func(p *fact.View) diagnose.Result {
		of := func(shell bool) []diagnose.Finding {
			return unheard(p, fact.Ignored, func(fp fact.FirstProcess) bool { return fact.Shell(fp.Leader) == shell })
		}
		shells := of(true)
		for i := range shells {
			shells[i].Variants = append(shells[i].Variants, aShell)
		}
		return diagnose.Found(append(shells, of(false)...)...)
	},
}
