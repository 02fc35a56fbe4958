package kernel

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ThreadStuckBehindZombieLeader is an unkillable thread of a process whose first thread is a zombie. ps shows only the zombie.
var ThreadStuckBehindZombieLeader = &diagnose.Rule{
	Cause: "ThreadStuckBehindZombieLeader",
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
		Remedy: "Repair what the thread waits for; it then exits, and the zombie is reaped.",
		Danger: "Do not restart the shim or containerd because of the zombie: they are not at fault. " +
			"Do not force-delete: the thread is alive and may hold volumes and devices.",
		First: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack may name a driver or file system: ask its owner. " +
			"If unclear: see Fix",
		Avoid:    "restarting containerd or its shim (no help)",
		Phrases:  unkillablePhrases,
		Families: unkillableFamilies,
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes}, Partly: stuckPartly,
		Of: besideZombies,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Task]{
			{Says: "The leader of the process, its first thread, is in state Z, and more than one thread is left. " +
				"A zombie with one thread is one that its parent or its tracer does not collect.", Is: diagnose.If(fact.BehindZombieLeader)},
			{Says: "The thread, one of the others, is in state D.", Is: diagnose.If(uninterruptible)},
			{Says: "SIGKILL is pending in it.", Is: killPending},
		}, asleepFacts, stuckFacts),
		Tell: tellStuck,
	},
}

// besideZombies returns the other threads of processes whose leader is in state Z.
func besideZombies(p *fact.View) (out []*evidence.Task) {
	for _, z := range zombies(p) {
		for _, t := range threads(p) {
			if z.Leader() && t.PID == z.PID && t != z {
				out = append(out, t)
			}
		}
	}
	return out
}
