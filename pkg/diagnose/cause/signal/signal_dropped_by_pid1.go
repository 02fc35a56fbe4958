package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// wrapper is the variant of SignalDroppedByPID1 for a process that runs another program, as npm and conda run do. If the
// process exits, the kernel kills that program.
const wrapper = "Wrapper"

// SignalDroppedByPID1 is a first process without a handler for its stop signal.
var SignalDroppedByPID1 = &diagnose.Rule{
	Cause: "SignalDroppedByPID1",
	When:  diagnose.InGrace,
	Needs: fact.SignalSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "PID 1 has no handler for the stop signal",
		Message: "container {container}: PID 1, {program} ({pid} on the node), has no handler for {signal}, so the kernel drops it. " +
			"{sigkill}",
		Meaning: "The first process of a container is PID 1 of its PID namespace. " +
			"The kernel delivers to PID 1 only those signals for which it has installed a handler. " +
			"The default action, which would end any other process, does not apply to PID 1. " +
			"The stop signal leaves no trace, and the pod uses up its whole grace period every time it is deleted. " +
			"Under an init such as tini, the default action applies: it ends the process, and with it everything that the process has started.",
		Evidence: []string{
			"The last number of NSpid in /proc/PID/status is 1.",
			"In two readings, the stop signal's bit is in none of SigCgt, SigIgn and SigBlk. " +
				"The stop signal is the container's own (lifecycle.stopSignal), else the image's STOPSIGNAL, else SIGTERM.",
			"A shell blocks all signals while it starts a program: that does not count. " +
				"A shell that runs a program, or has ever run one, is ShellPID1NoTrap.",
			"PID 1 does not sleep in sigwait. A program that does, such as tini, shows no bit either: its system call tells it apart.",
			"A reading from before the deletion shows the same. Without one, it is not reported: " +
				"a handler can remove itself, and a program that was asked to stop then shows no bit either.",
			"It is proved if the process has not run since that reading. " +
				"Otherwise it must have shown the same for 20 seconds up to then, and for as long as the reading is old. Then it is inferred.",
			"A container with a preStop hook is judged when the hook is over. A sleep of the kubelet is over ten seconds after its time.",
			"A hook that runs a program is over when nothing is left that was executed in the container with the deletion. " +
				"At the earliest, that is " + fact.HookDelay.String() + " after the deletion.",
			"Not reported before the pod is gone if the hook runs anything but sleep(1): it may have asked the program to exit.",
			"Not reported if the preStop hook sends a request to a port, or if the pod shares a PID namespace. " +
				"Not reported for another runtime than runc's shim, such as gVisor.",
		},
		Phrases: map[string][]diagnose.Choice{"next": {
			{Variant: wrapper, Text: "For a fast and clean next deletion, let {program} handle {signal} and pass it on to {child} (PID {childpid} on the node). " +
				"Or start {child} directly, with exec in a script or the exec form of ENTRYPOINT. " +
				"Do not put tini or dumb-init before {program}: they end it, and {child} gets SIGKILL immediately"},
			{Text: "For a fast and clean next deletion, let the program handle {signal}. " +
				"To make it fast only, run the program under an init such as tini or dumb-init, or set shareProcessNamespace: true. {signal} " +
				"then ends it immediately, without cleanup"},
		}, "first": {
			{Variant: wrapper, Text: "let {program} forward {signal} to {child}, or start {child} directly (exec)"},
			{Text: "let {program} handle {signal}"},
		}, "avoid": {
			{Variant: wrapper, Text: "tini before {program} ({child} then gets SIGKILL immediately)"},
			{Text: "force delete (no faster, pod untracked)"},
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
	Check: func(p *fact.View) diagnose.Result {
		out := unheard(p, fact.Dropped, func(fp fact.FirstProcess) bool { return !fp.ShellOverChild() && !fp.ShellBetween() })
		for i := range out {
			if c := out[i].Objects.Child; c != nil && !fact.Sideshow(c.Comm) {
				out[i].Variants = append(out[i].Variants, wrapper)
			}
		}
		return diagnose.Found(out...)
	},
}
