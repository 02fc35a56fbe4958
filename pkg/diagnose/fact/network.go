package fact

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// SetsUpNetwork reports whether a CNI plugin runs, and not only children of one, that sets up the
// pod's network. For one that has been killed, which containerd does when the kubelet has given up,
// the kubelet does not wait any more.
func SetsUpNetwork(p *evidence.Pod) bool {
	return slices.ContainsFunc(p.NetworkSetup, func(t evidence.Task) bool {
		return PluginLives(&t) && !slices.ContainsFunc(p.NetworkSetup, func(of evidence.Task) bool { return of.PID == t.PPID })
	})
}

// PluginLives reports whether nobody has ended a CNI plugin, nor has it ended.
func PluginLives(t *evidence.Task) bool {
	return t.State != evidence.Zombie && !t.Killed() && !t.WasKilled && !t.Exiting()
}
