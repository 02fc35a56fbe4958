package fact

import "github.com/nodeagent-io/nodeagent/pkg/evidence"

// PluginLives reports whether nobody has ended a CNI plugin, nor has it ended.
func PluginLives(t *evidence.Task) bool {
	return t.State != evidence.Zombie && !t.Killed() && !t.WasKilled && !t.Exiting()
}
