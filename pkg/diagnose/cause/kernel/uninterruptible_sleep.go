package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// UninterruptibleSleep is a killed task that the kernel cannot end.
var UninterruptibleSleep = &diagnose.Rule{
	Cause:  "UninterruptibleSleep",
	Needs:  stuckNeeds,
	Partly: stuckPartly,
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
		Evidence: []string{
			"SIGKILL is pending in the thread (SigPnd, bit 0x100), and its state is D.",
			"Two readings three seconds or more apart show the same state and the same number of context switches.",
			"The time between the readings is ten seconds where a device, a daemon or a reachable server may just be slow. It is " +
				"forty-five where the thread waits for io_uring, and sixty where the kernel waits for its own processors (RCU).",
			"State D alone proves nothing: many such waits end at SIGKILL, and I/O that progresses switches context.",
			partlyLookedAt,
			"Threads of gVisor: the same without the SIGKILL, ten seconds after the deadline or later. One that waits for a FUSE daemon " +
				"is not seen: it sleeps in state S until it gets a signal.",
			"The file system is found from the blocked system call: the mount ID of its file descriptor (fdinfo), looked up in the " +
				"task's mountinfo.",
			"A file system that only a path or the kernel stack suggests is named if it shows a reason of its own: unanswered requests, " +
				"a device that completes nothing, or another task that waits for it.",
			"Unanswered requests to an NFS or SMB server count only if its connection is not well either.",
		},
		Remedy: "Repair what the thread waits for; it then exits.",
		Danger: "Do not force-delete: the process is alive and may hold volumes and devices.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Found(stuckIn(p, func(p *fact.View, t *evidence.Task) bool {
			return fact.HeldUnderGVisor(p, t) || fact.Unkillable(p, t) && !fact.BehindZombieLeader(p, t) && !notYetInTheWay(p, t)
		})...)
	},
}
