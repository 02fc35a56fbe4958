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
		Message: "{where}{stays}: {why}",
		Seen: []string{
			"{asleep}",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The thread sleeps inside the kernel in a wait that no signal ends, not even SIGKILL. " +
			"The container's processes do not exit until it returns, so the kubelet repeats the kill without end. " +
			"The same holds for a process that somebody of the node has put into the pod's control group: when all else is done, the kubelet kills what is there, and waits until the group is empty (Destroy, pkg/kubelet/cm/pod_container_manager_linux.go). " +
			"Under gVisor nobody kills the thread itself: it is one of the program that is the kernel of the pod's containers (runsc-sandbox in ps -ef), or of one that opens files for it (runsc-gofer), and works for a program of a container. " +
			"SIGKILL to the container is delivered inside of gVisor, and the program ends when the thread has returned.",
		Evidence: []string{"SIGKILL is pending in the thread (SigPnd, bit 0x100), its state is D, and two readings three seconds or more apart (ten where a device, " +
			"a daemon or a server that can be reached may just be slow, sixty where the kernel waits for its own processors or for io_uring) show the same state and the same number of " +
			"context switches. " +
			"State D alone proves nothing: many such waits end at SIGKILL, and I/O that progresses switches context. " +
			partlyLookedAt +
			"Of gVisor's threads the same is asked but for the SIGKILL, ten seconds after the deadline or later. " +
			"One of them that waits for a FUSE daemon is not seen: it sleeps in state S as long as no signal has come to it. " +
			"The file system is found from the blocked system call: its file descriptor's mount ID in fdinfo, in the task's mountinfo. " +
			"One that only a path or the kernel stack suggests is named when it shows a reason of its own: requests without an answer (of NFS and SMB only where the connection is not well either), a device that completes nothing, another task that waits for it."},
		Remedy:   "Repair what the thread waits for; it then exits.",
		Danger:   "Do not force-delete: the process is alive and may hold volumes and devices.",
		First:    "repair what the thread waits for; it then exits",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Found(stuckIn(p, func(p *fact.View, t *evidence.Task) bool {
			return fact.HeldUnderGVisor(p, t) || fact.Unkillable(p, t) && !fact.BehindZombieLeader(p, t) && !notYetInTheWay(p, t)
		})...)
	},
}
