package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// StuckInExec is a process that hangs on its way from one program to the next.
var StuckInExec = &diagnose.Rule{
	Cause: "StuckInExec",
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a killed process is stuck inside execve",
		Who:     diagnose.ByStorage,
		Message: "{where}{comm} (PID {pid} on the node) is stuck while starting a program (execve), where SIGKILL cannot end it: {why}",
		Seen: []string{
			"{asleep}",
			"{unless}",
			"Process {pid} is past the point of no return in execve: its old program is gone, and SIGKILL takes effect only after it",
			"{unreadable}",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The process was executing another program (execve). The old program is gone already. " +
			"Before the new one starts, the kernel closes the files marked close-on-exec, and waits for the old program's asynchronous I/O (AIO). " +
			"One of these does not end, because what is behind it does not respond. " +
			"While the process holds its exec_update_lock, reads of its stat, wchan, stack or links in /proc wait too: ps, top and " +
			"runc hang on it. It always holds the lock while it waits for AIO. While it closes files it does not on some kernels, such as " +
			"6.1.192 and 6.12.117.",
		Remedy: "Check whether the servers and FUSE daemons of the pod's volumes respond, and repair the one that does not. The process then exits by its SIGKILL. " +
			"To inspect it, read only status and comm in /proc/{pid}: ps and lsof may hang.",
		Danger: "Do not run ps, top, pidof or lsof in loops on this node: each one may hang until it is killed. " +
			"Do not force-delete: the process is alive and holds its files.",
		First: "kubectl describe pod lists the volumes. Ask the owners of their servers and FUSE daemons to restore " +
			"any that is down. If none: see Fix",
		Avoid:    "ps, top, pidof, lsof in loops (each may hang)",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes}, Partly: stuckPartly,
		Of: threads,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
			{Says: "The kernel stack of the task goes through begin_new_exec, and not through de_thread, a wait that SIGKILL ends. " +
				"Or the read of stat, wchan, stack or syscall in /proc/PID did not return, while the read of status did. It is then " +
				"inferred.", Is: diagnose.If(inExec), Partly: stuckPartly},
			{Says: "The task sleeps: its state is S or D.", Is: diagnose.If(sleeps)},
			{Says: "SIGKILL is pending, or ten seconds overdue.", Is: killDue},
		}, stuckFacts),
		Tell: tellInExec,
	},
}

func inExec(_ *fact.View, t *evidence.Task) bool { return fact.InExec(t) }

func tellInExec(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	out := tellStuck(p, found)
	for i := range out {
		if out[i].Objects.Thread.Function == "" {
			// No family: its remedy would tell the reader to read the same files.
			out[i].Family, out[i].Confidence = "", diagnose.Inferred
			out[i].Variants = append(out[i].Variants, variantUnreadable)
		}
	}
	return out
}
