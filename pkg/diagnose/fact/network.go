package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// How long a CNI plugin may take before it is said to hang, and on a node that is short
// of something. Plugins that work have been seen to wait half a minute for their
// daemon; the kubelet gives up on taking a network down after two minutes, and on setting one up
// after four.
const (
	pluginPatience        = time.Minute
	pluginPatienceStarved = 100 * time.Second
)

// PluginPatience returns how long a CNI plugin may take on the pod's node before it is said to hang.
func PluginPatience(p *View) time.Duration {
	if Starved(p) {
		return pluginPatienceStarved
	}
	return pluginPatience
}

// SetsUpNetwork reports whether a CNI plugin runs, and not only children of one, that sets up the
// pod's network. For one that has been killed, which containerd does when the kubelet has given up,
// the kubelet does not wait any more.
func SetsUpNetwork(p *View) bool {
	return slices.ContainsFunc(p.NetworkSetup, func(t evidence.Task) bool {
		return PluginLives(&t) && !slices.ContainsFunc(p.NetworkSetup, func(of evidence.Task) bool { return of.PID == t.PPID })
	})
}

// PluginLives reports whether nobody has ended a CNI plugin, nor has it ended.
func PluginLives(t *evidence.Task) bool {
	return t.State != evidence.Zombie && !t.Killed() && !t.WasKilled && !t.Exiting()
}

// NetworkTakenAway reports whether most of the pod's connections, two or more, have got no answer to what they have sent, for a
// quarter of the grace period or more. Peers that are gone look the same, and a single one may be a client's that has vanished.
func NetworkTakenAway(p *View) bool {
	c := p.Connections
	return c != nil && c.Unanswered > 1 && c.Unanswered*2 > c.All && !c.Since.IsZero() && p.Time.Sub(c.Since) >= max(Grace(p)/4, LeastStill)
}
