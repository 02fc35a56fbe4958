package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// aShell is the variant of StopSignalIgnored for a shell, which has a terminal, or a script with a trap.
const aShell = "Shell"

// StopSignalIgnored is a first process that ignores its stop signal.
var StopSignalIgnored = &diagnose.Rule{
	Cause: "StopSignalIgnored",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the first process ignores the stop signal",
		Who:   diagnose.ByApp,
		Message: "container {container}: {program} {ignores} {signal}. " +
			"{killed}",
		Meaning: "The process has set the signal's action to ignore (SIG_IGN), or has inherited that. " +
			"What a shell ignores with trap '' TERM is ignored by every program that it starts, unless the program sets up its own handler. " +
			"An interactive shell ignores SIGTERM by itself, so a container with a shell on a terminal always uses up its grace period.",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "ignores": verb("ignores", "ignored"), "next": {
			{Variant: aShell, Text: "If the shell has a terminal, exit it, or delete its pod with a short --grace-period. " +
				"If it runs a script, remove its trap '' for {signal}. For a fast and clean next deletion, start the program with exec in the script"},
			{Variant: fixed, Text: "{program} has no setting for signals. If a script sets trap '' for {signal} before it starts {program}, remove that. " +
				"Run {program} under an init such as tini as well: {signal} then ends it immediately"},
			{Text: "For a fast and clean next deletion, let the program handle {signal}. " +
				"If a script sets trap '' for {signal} before it starts the program, remove that: a program inherits what its shell ignores"},
		}, "first": {
			{Variant: aShell, Text: "{shell}"},
			{Variant: fixed, Text: "nothing now; for the next deletion, run {program} under an init (tini). " +
				"If its script sets trap '' for {signal}, remove that"},
			{Text: "nothing now; for the next deletion, let {program} " + notIgnored},
		}, "shell": {
			{Variant: diagnose.Gone, Text: "nothing now; for the next deletion, exit {program} first if it is your terminal, " +
				"or remove trap '' for {signal} from its script"},
			{Text: "if {program} is your terminal, exit it. If it runs a script, remove trap '' for {signal} before the next deletion"},
		}},
		Seen:  []string{"Process {pid} ({comm}) ignores {signal} now, and did before the deletion"},
		First: "{first}",
		Avoid: avoidForce,
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is killed{unasked}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	By: diagnose.By[fact.FirstProcess]{
		From:  ofProcesses,
		Of:    fact.FirstProcesses,
		Facts: slices.Concat(inTime, ignoring, facts{noMismatch}),
		Tell:  diagnose.Each(tellIgnored),
	},
}

// ignoring are the facts by which a process ignores the stop signal, and did before the deletion. The kernel drops it only if the leader, which it
// is sent to, neither blocks it nor waits for it (sig_ignored, kernel/signal.c).
var ignoring = slices.Concat(facts{
	{Says: "The stop signal's bit is in SigIgn of the process. Or the signal is SIGCHLD or SIGWINCH without a handler, and the process is not PID 1. " +
		"The first thread does not block the signal, and does not wait for signals with sigwait.", Is: shows(fact.Ignored), From: ofSuspects},
}, sameBefore)

func tellIgnored(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	switch {
	case fact.Shell(fp.Leader):
		return tell(p, fp, fact.Ignored, aShell)
	case fact.Fixed(fp.Leader.Comm):
		return tell(p, fp, fact.Ignored, fixed)
	}
	return tell(p, fp, fact.Ignored)
}
