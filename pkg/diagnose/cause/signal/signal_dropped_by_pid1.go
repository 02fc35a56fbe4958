package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// SignalDroppedByPID1 is a first process without a handler for its stop signal.
var SignalDroppedByPID1 = &diagnose.Rule{
	Cause: "SignalDroppedByPID1",
	When:  diagnose.InGrace,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "PID 1 has no handler for the stop signal",
		Who:   diagnose.ByApp,
		Message: "container {container}: PID 1, {program}, {has} no handler for {signal}, so the kernel {drops} it. " +
			"{killed}",
		Meaning: "The first process of a container is PID 1 of its PID namespace. " +
			"The kernel delivers to PID 1 only those signals for which it has installed a handler. " +
			"The default action, which would end any other process, does not apply to PID 1. " +
			"The stop signal leaves no trace, and the pod uses up its whole grace period every time it is deleted. " +
			"Under an init such as tini, the default action applies: it ends the process, and with it everything that the process has started. " +
			"Programs such as sleep, tail, cat and cron have no setting by which they handle it.",
		Phrases: map[string][]diagnose.Choice{"killed": killed, "has": verb("has", "had"), "drops": verb("drops", "dropped"), "next": {
			{Variant: wrapper, Text: "For a fast and clean next deletion, let {program} handle {signal} and pass it on to {child} (PID {childpid} on the node). " +
				"Or start {child} directly, with exec in a script or the exec form of ENTRYPOINT. " +
				"Do not put tini or dumb-init before {program}: they end it, and {child} gets SIGKILL immediately"},
			{Variant: daemon, Text: "{program} only keeps the container running. For a fast and clean next deletion, start {child} in the foreground, " +
				"with exec at the end of the script and without {program}. {child} is then PID 1, and must handle {signal}. " +
				"Do not put tini or dumb-init before {program}: they end it, and {child} gets SIGKILL immediately"},
			{Variant: daemon, Text: "{program} only keeps the container running. For a fast and clean next deletion, start the program that serves in the " +
				"foreground, with exec at the end of the script and without {program}. It is then PID 1, and must handle {signal}. " +
				"Do not put tini or dumb-init before {program}: they end it, and the others get SIGKILL immediately"},
			{Variant: harmless, Text: "{signal} ends no program that has no handler for it, under an init neither. " +
				"Set STOPSIGNAL of the image to SIGTERM, and run the program under an init such as tini or dumb-init: SIGTERM then ends it immediately"},
			{Variant: fixed, Text: "{program} has no setting for signals. For a fast next deletion, run it under an init such as tini or dumb-init, " +
				"or set shareProcessNamespace: true: {signal} then ends it immediately. {only}" +
				"Or delete such a pod with a short --grace-period. If {program} comes with a product, as in a CI agent, ask its vendor"},
			{Text: "For a fast and clean next deletion, let the program handle {signal}. " +
				"To make it fast only, run the program under an init such as tini or dumb-init, or set shareProcessNamespace: true. {signal} " +
				"then ends it immediately, without cleanup. What it has started gets SIGKILL, with an init and without"},
		}, "only": {
			{Variant: notTERM, Text: ""},
			{Text: "If it only keeps the container running, run this instead: sh -c 'trap exit TERM; sleep infinity & wait'. "},
		}, "first": {
			{Variant: wrapper, Text: "start {child} directly (exec), or let {program} forward {signal} to it"},
			{Variant: daemon, Text: "start {child} in the foreground, with exec and without {program}"},
			{Variant: daemon, Text: "start the program that serves in the foreground, with exec and without {program}"},
			{Variant: harmless, Text: "set STOPSIGNAL of the image to SIGTERM, and run {program} under an init (tini)"},
			{Variant: fixed, Text: "run {program} under an init (tini), or delete such a pod with a short --grace-period"},
			{Text: "let {program} handle {signal}, or run it under an init (tini)"},
		}, "avoid": {
			{Variant: wrapper, Text: "tini before {program} ({child} gets SIGKILL)"},
			{Variant: daemon, Text: "tini before {program} (the others get SIGKILL)"},
			{Text: avoidForce},
		}},
		Seen: []string{
			"{program} (PID {pid} on the node) is PID 1 of its PID namespace (NSpid)",
			"It has no handler for {signal} (SigCgt) now, and had none before the deletion",
		},
		First: "nothing now; for the next deletion, {first}",
		Avoid: "{avoid}",
		Remedy: "{fine}. " +
			"{next}.",
		Danger: "The program is killed{unasked}: unwritten data may be lost. " +
			"A force delete does not speed this up: the kubelet still waits the grace period, with no API object tracking the pod.",
		Quiet: true,
	},
	By: diagnose.By[fact.FirstProcess]{
		From: ofProcesses,
		Of:   fact.FirstProcesses,
		Facts: slices.Concat(dropped, facts{
			{Says: "It is no shell that runs a program, or has ever run one. With such a shell it is ShellPID1NoTrap.",
				Is: diagnose.If(isProgram), From: ofSuspects},
			{Says: "A subprocess is named as the program if it is the only one and PID 1 sleeps in wait4 or waitid. " +
				"The same holds for the only subprocess of npm, npx, yarn, pnpm and conda."},
			{Says: "It is also named if a script has replaced itself with sleep, tail or cat, and no other subprocess is a program that serves."},
			{Says: "In all other cases PID 1 is the program, and what it has started helps it."},
		}),
		Tell: diagnose.Each(tellDropped),
	},
}

// isProgram reports whether the first process is the program, or no shell.
func isProgram(p *fact.View, fp fact.FirstProcess) bool {
	_, role := fp.Main(p)
	return role == fact.Itself || !fact.Shell(fp.Leader)
}

func tellDropped(p *fact.View, fp fact.FirstProcess) diagnose.Finding {
	variant := ""
	_, role := fp.Main(p)
	switch {
	case role == fact.Awaited:
		variant = wrapper
	case role == fact.Daemon:
		variant = daemon
	case fact.Fixed(fp.Leader.Comm):
		variant = fixed
	}
	return tell(p, fp, fact.Dropped, variantsOf(fp, variant)...)
}
