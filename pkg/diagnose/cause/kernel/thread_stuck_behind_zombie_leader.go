package kernel

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ThreadStuckBehindZombieLeader is an unkillable thread of a process whose first thread is a zombie. ps shows only the zombie.
var ThreadStuckBehindZombieLeader = &diagnose.Rule{
	Cause:  "ThreadStuckBehindZombieLeader",
	Needs:  stuckNeeds,
	Partly: stuckPartly,
	Doc: diagnose.Doc{
		Layer:   "kernel",
		Title:   "a zombie has a live thread stuck in D state",
		Who:     diagnose.ByStorage,
		Message: "{where}{program} (PID {pid} on the node) looks like a zombie, but SIGKILL cannot end its thread in D state: {why}",
		Seen: []string{
			"{asleep}",
			"{pending}",
			"{unless}",
			"Process {pid} is in state Z with a live thread: its parent cannot reap it yet, so the shim and containerd are not at fault",
			"{fstype} is mounted at {point}{about}",
			"Threads of the kernel hang on device {device} too",
			"In addition, {threads} of this pod cannot exit",
		},
		Meaning: "The first thread of the process has exited and shows as a zombie. Another thread sleeps inside the kernel in a wait " +
			"that no signal ends. " +
			"The process cannot be reaped before its last thread has exited, so the shim waits permanently. ps shows only the " +
			"zombie, without the thread that holds it.",
		Evidence: []string{
			"The leader of the process, its first thread, is in state Z, and more than one thread is left.",
			"One of these threads has SIGKILL pending and is in state D.",
			"That thread did not run between two readings three seconds or more apart.",
			"The time between the readings is forty-five seconds where the thread waits for io_uring, and sixty where the kernel waits " +
				"for its own processors (RCU).",
			partlyLookedAt,
			"Not reported for a zombie with one thread: its parent or its tracer does not reap it.",
		},
		Remedy: "Repair what the thread waits for; it then exits, and the zombie is reaped.",
		Danger: "Do not restart the shim or containerd because of the zombie: they are not at fault. " +
			"Do not force-delete: the thread is alive and may hold volumes and devices.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Avoid:    "restarting containerd or its shim (no help)",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Found(stuckIn(p, func(p *fact.View, t *evidence.Task) bool {
			return fact.Unkillable(p, t) && fact.BehindZombieLeader(p, t)
		})...)
	},
}
