package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StuckInExit is a process that exits and takes no signals any more, and hangs in the kernel in one of its last steps, such as closing its files.
var StuckInExit = &diagnose.Rule{
	Cause: "StuckInExit",
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "an exiting process is stuck in the kernel",
		Who:     diagnose.ByStorage,
		Message: "{where}{program} (PID {pid} on the node) cannot finish its exit: {why}",
		Seen: []string{
			"{asleep}",
			"{unless}",
			"Thread {thread} is inside do_exit, where SIGKILL has no effect",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The process has exited or has been killed, and the kernel closes what it had open. " +
			"One of these files cannot be closed, because what is behind it does not respond. " +
			"A task that exits takes no signals any more, so SIGKILL has no effect and leaves no trace. Its state is most often S, " +
			"as in a normal sleep. " +
			"The kubelet repeats the kill without end.",
		Remedy: "Repair what the exit waits for; the process then exits immediately.",
		Danger: "Do not force-delete: the process still holds its files and locks.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes}, Partly: stuckPartly,
		Of: exiting,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
			{Says: "The task has the flag PF_EXITING (stat, field 9, bit 0x4). The kernel waits for io_uring requests before it sets the flag: " +
				"a task in that wait does not have it yet."},
			{Says: "Its state is S or D.", Is: diagnose.If(sleeps)},
			{Says: "Its kernel stack goes through do_exit.", Is: diagnose.If(inExit), Partly: stuckPartly},
			{Says: "It does not wait for a core dump (CoreDumping in /proc/PID/status, coredump_task_exit, before Linux 5.16 exit_mm).",
				Is: diagnose.If(awaitsNoDump)},
			{Says: "It is not the init of a PID namespace that waits for the other processes (zap_pid_ns_processes).", Is: diagnose.If(zapsNone)},
			{Says: "No debugger holds it (ptrace_stop).", Is: diagnose.If(isNotTraced)},
		}, stuckFacts),
		Tell: tellStuck,
	},
}

// exiting returns the threads of the pod that exit.
func exiting(p *fact.View) []*evidence.Task {
	return slices.DeleteFunc(threads(p), func(t *evidence.Task) bool { return !fact.Exits(t) })
}

func inExit(_ *fact.View, t *evidence.Task) bool { return fact.Through(t, "do_exit") }

// awaitsNoDump reports whether a task does not wait for a core dump of its process. It does so in coredump_task_exit; before Linux 5.16 in exit_mm
// itself (kernel/exit.c).
func awaitsNoDump(_ *fact.View, t *evidence.Task) bool {
	return !t.CoreDumping && !fact.Through(t, "coredump_task_exit") && t.Probe.Wchan != "exit_mm"
}

func zapsNone(_ *fact.View, t *evidence.Task) bool { return !fact.Through(t, fact.ZapPIDNS) }

func isNotTraced(_ *fact.View, t *evidence.Task) bool { return !fact.Through(t, "ptrace_stop") }
