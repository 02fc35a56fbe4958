package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// UninterruptibleSleep is a killed task that the kernel cannot end.
var UninterruptibleSleep = &diagnose.Rule{
	Cause: "UninterruptibleSleep",
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a killed thread is stuck in D state (uninterruptible sleep)",
		Who:     diagnose.ByStorage,
		Message: "{where}{stays}: {why}",
		Seen: []string{
			"{asleep}",
			"{pending}",
			"{unless}",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The thread sleeps inside the kernel in a wait that no signal ends, not even SIGKILL. " +
			"The container's processes do not exit until it returns, so the kubelet repeats the kill without end.\n\n" +
			"The same holds for a process of the node that was put into the pod's cgroup. When all else is done, the kubelet kills " +
			"what is there. " +
			"Then it waits until the cgroup is empty (Destroy, pkg/kubelet/cm/pod_container_manager_linux.go).\n\n" +
			"Under gVisor the thread itself gets no SIGKILL. It belongs to the program that is the kernel of the pod's containers " +
			"(runsc-sandbox in ps -ef). " +
			"Or it belongs to one that opens files for it (runsc-gofer). It works for a program of a container. " +
			"SIGKILL to the container is delivered inside gVisor, and the program ends when the thread has returned.",
		Remedy: "Repair what the thread waits for; it then exits.",
		Danger: "Do not force-delete: the process is alive and may hold volumes and devices.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes}, Partly: stuckPartly,
		Of: inStateD,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
			{Says: "SIGKILL is pending in the thread (SigPnd, bit 0x100), and its state is D. " +
				"A thread of gVisor gets none: its state is D ten seconds after the deadline or later.",
				Is: killPendingOrGVisor, Partly: []evidence.Source{evidence.Containers}},
			{Says: "State D alone proves nothing: many such waits end at SIGKILL, and I/O that progresses switches context."},
			{Says: "A thread of gVisor that waits for a FUSE daemon is not seen: it sleeps in state S until it gets a signal."},
			{Says: "If it is a thread of gVisor: it does not wait for a fanotify permission listener, which is FileScannerNotAnswering.",
				Is: diagnose.If(awaitsNoScanner)},
			{Says: "If it is a thread of gVisor: it is not frozen (__refrigerator).", Is: diagnose.If(isNotInFreezer)},
			{Says: "If SIGKILL is pending: the leader of the process, its first thread, is no zombie, which is ThreadStuckBehindZombieLeader.",
				Is: diagnose.If(isNotBehindZombie)},
			{Says: "If it is a process of the node that was put into the pod's cgroup: the containers have ended, and no volume is left.",
				Is: diagnose.IfLater(inTheWay, diagnose.Slow), From: cgroups},
		}, asleepFacts, stuckFacts, []diagnose.Fact[*evidence.Task]{
			{Says: "The file system is found from the blocked system call: the mount ID of its file descriptor (fdinfo), looked up in the " +
				"task's mountinfo."},
			{Says: "A file system that only a path or the kernel stack suggests is named if it shows a reason of its own: unanswered requests, " +
				"a device that completes nothing, or another task that waits for it."},
			{Says: "Unanswered requests to an NFS or SMB server count only if its connection is not well either."},
		}),
		Tell: tellStuck,
	},
}

// inStateD returns the threads of the pod in state D.
func inStateD(p *fact.View) []*evidence.Task {
	return slices.DeleteFunc(threads(p), func(t *evidence.Task) bool { return !uninterruptible(p, t) })
}

func killPendingOrGVisor(p *fact.View, t *evidence.Task) diagnose.Holding {
	if fact.OfGVisor(p, t) {
		return killDue(p, t)
	}
	return killPending(p, t)
}

// awaitsNoScanner, isNotInFreezer and isNotBehindZombie ask only one kind of threads: those of gVisor are the ones without SIGKILL
// (fact.HeldUnderGVisor).
func awaitsNoScanner(_ *fact.View, t *evidence.Task) bool { return t.Killed() || !t.AwaitsScanner() }

func isNotInFreezer(_ *fact.View, t *evidence.Task) bool {
	return t.Killed() || !fact.Through(t, "__refrigerator")
}

func isNotBehindZombie(p *fact.View, t *evidence.Task) bool {
	return !t.Killed() || !fact.BehindZombieLeader(p, t)
}
