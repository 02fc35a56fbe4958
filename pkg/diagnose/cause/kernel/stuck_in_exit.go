package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StuckInExit is a process that has ended as far as signals go, and whose last
// steps, closing its files, hang in the kernel.
var StuckInExit = &diagnose.Rule{
	Cause:  "StuckInExit",
	Needs:  stuckNeeds,
	Partly: stuckPartly,
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "an exiting process is stuck in the kernel",
		Message: "{where}process {pid} ({comm}) is exiting, but its thread {thread} is stuck: {why}",
		Seen: []string{
			"{asleep}",
			"Thread {thread} is inside do_exit, where SIGKILL has no effect",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The process has exited or has been killed, and the kernel closes what it had open. " +
			"One of these files cannot be closed, because what is behind it does not answer. " +
			"A task that exits takes no signals any more, so SIGKILL has no effect and leaves no trace; most often its state is S, as if it slept well. " +
			"The kubelet repeats the kill without end.",
		Evidence: []string{"The task has the flag PF_EXITING (stat, field 9, bit 0x4), its state is S or D, its kernel stack goes through do_exit, " +
			"and two readings three seconds or more apart (ten where a device or a server may just be slow, " +
			"forty-five where io_uring is waited for, sixty where the kernel waits for its own processors) show the same number of context switches. " +
			"The requests of io_uring are waited for before the flag is set. " +
			partlyLookedAt +
			"Not meant are the init of a PID namespace that waits for the others (zap_pid_ns_processes), a task that a debugger holds, and threads that wait for a core dump."},
		Remedy:   "Repair what the exit waits for; the process then exits immediately.",
		Danger:   "Do not force-delete: the process still holds its files and locks.",
		First:    "repair what the exit waits for; the process then exits",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	Check: func(p *fact.View) diagnose.Result { return diagnose.Found(stuckIn(p, exitStuck)...) },
}

// exitStuck reports whether a task sleeps inside do_exit, in something that only
// what it waits for can end. A core dump of its process is waited for in
// coredump_task_exit, before Linux 5.16 in exit_mm itself (kernel/exit.c).
func exitStuck(p *fact.View, t *evidence.Task) bool {
	return fact.Exits(t) && (t.State == evidence.Sleeping || t.State == evidence.Uninterruptible) && !t.CoreDumping &&
		fact.Through(t, "do_exit") && !fact.Through(t, fact.ZapPIDNS, "ptrace_stop", "coredump_task_exit") && t.Probe.Wchan != "exit_mm" &&
		t.Unchanged(p.Time) >= fact.Motionless(t)
}
