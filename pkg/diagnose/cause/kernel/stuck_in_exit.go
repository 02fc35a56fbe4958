package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StuckInExit is a process that exits and takes no signals any more, and hangs in the kernel in one of its last steps, such as closing its files.
var StuckInExit = &diagnose.Rule{
	Cause:  "StuckInExit",
	Needs:  stuckNeeds,
	Partly: stuckPartly,
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
		Evidence: []string{
			"The task has the flag PF_EXITING (stat, field 9, bit 0x4). The kernel waits for io_uring requests before it sets the flag: " +
				"a task in that wait does not have it yet.",
			"Its state is S or D.",
			"Its kernel stack goes through do_exit.",
			"Two readings three seconds or more apart show the same number of context switches.",
			"The time between the readings is ten seconds where a device or a server may just be slow. It is forty-five where the task " +
				"waits for io_uring, and sixty where the kernel waits for its own processors (RCU).",
			partlyLookedAt,
			"Not reported for the init of a PID namespace that waits for the other processes (zap_pid_ns_processes). Nor for a task " +
				"that a debugger holds, or threads that wait for a core dump.",
		},
		Remedy: "Repair what the exit waits for; the process then exits immediately.",
		Danger: "Do not force-delete: the process still holds its files and locks.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	Check: func(p *fact.View) diagnose.Result { return diagnose.Found(stuckIn(p, exitStuck)...) },
}

// exitStuck reports whether a task sleeps inside do_exit in a wait that only what it waits for can end. A task waits for a core dump of its process
// in coredump_task_exit; before Linux 5.16 in exit_mm itself (kernel/exit.c).
func exitStuck(p *fact.View, t *evidence.Task) bool {
	return fact.Exits(t) && (t.State == evidence.Sleeping || t.State == evidence.Uninterruptible) && !t.CoreDumping &&
		fact.Through(t, "do_exit") && !fact.Through(t, fact.ZapPIDNS, "ptrace_stop", "coredump_task_exit") && t.Probe.Wchan != "exit_mm" &&
		t.Unchanged(p.Time) >= fact.Motionless(t)
}
