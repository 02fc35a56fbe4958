package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// wrapper is the variant of SignalDroppedByPID1 of a process that runs another program, as npm and conda run do: its end
// would be the end of that.
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
			"The kernel delivers to PID 1 only those signals for which it has installed a handler; the default action, which would end any other process, does not apply to it. " +
			"The stop signal leaves no trace, and the pod uses up its whole grace period every time it is deleted. " +
			"Under an init such as tini the default action applies and ends the process, and with it all that it has started.",
		Evidence: []string{"The last number of NSpid in /proc/PID/status is 1, and the stop signal's bit is in none of SigCgt, SigIgn and SigBlk, in two readings; that a shell blocks all signals while it starts a program does not count. " +
			"It was so before the deletion, too: a handler can remove itself, and the program that it asked to stop then shows no bit either. " +
			"So the process has not run since a reading from before the deletion, or showed the same from then back for at least 20 seconds, and as long as the reading is old: then it is inferred. " +
			"Without such a reading nothing is said. " +
			"The stop signal is the container's own, else the image's STOPSIGNAL, else SIGTERM. " +
			"A program that sleeps in sigwait, as tini does, shows no bit either: the system call that PID 1 sleeps in tells it apart. " +
			"A shell that runs a program, or has ever run one, is ShellPID1NoTrap. " +
			"Containers with a preStop hook are judged when that is over: a sleep of the kubelet ten seconds after its time, " +
			"and a program when nothing that was executed in the container with the deletion is left, " +
			fact.HookDelay.String() + " after the deletion. " +
			"Behind one that executes anything else than sleep(1) it is said only when the pod is gone: it may have asked the program to end. " +
			"Nothing is said of one with a hook that asks a port; " +
			"nor of pods that share a PID namespace, nor what another runtime than runc's shim runs, such as gVisor."},
		Phrases: map[string][]diagnose.Choice{"next": {
			{Variant: wrapper, Text: "For a fast and clean next deletion, let {program} handle {signal} and pass it on to {child} (PID {childpid} on the node). " +
				"Or start {child} directly, with exec in a script or the exec form of ENTRYPOINT. " +
				"Do not put tini or dumb-init before {program}: they end it, and {child} gets SIGKILL immediately"},
			{Text: "For a fast and clean next deletion, let the program handle {signal}. " +
				"To make it fast only, run the program under an init such as tini or dumb-init, or set shareProcessNamespace: true. {signal} then ends it immediately, without cleanup"},
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
