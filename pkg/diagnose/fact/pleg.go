package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// relists is longer than a kubelet takes to say that its list is a fresh one again when containerd
// answers: it asks once a second, and writes its condition every ten.
const relists = 15 * time.Second

// PLEG returns what is known of the kubelet's pod lifecycle event generator when that has had no list of
// the node's containers for long, though containerd answers: what the kubelet says of it, after
// three minutes; or before that what the kubelet counts, where containerd's answer to nodeagent shows that there
// is none (TooLarge). nil when it has a list, or may have one by now.
func PLEG(p *evidence.Pod) *evidence.PLEG {
	r, c, k := p.Node.Ready, &p.Node.Containerd, &p.Node.Kubelet
	var g *evidence.PLEG
	switch {
	case r != nil && r.Status == "False" && r.PLEG != nil:
		g = r.PLEG
	case k.Unlisted() && TooLarge(p) != "":
		g = &evidence.PLEG{Said: k.VolumeCallsRead, Active: k.Listed}
	default:
		return nil
	}
	if c.AnsweringSince.IsZero() || g.Said.Sub(c.AnsweringSince) < relists || p.Time.Sub(g.Said) >= UnknownAfter || !kubeletThere(p) {
		return nil
	}
	return g
}

// TooLarge returns of what containerd has a list that is larger than the kubelet takes; "" when there is
// none, or that is not known.
func TooLarge(p *evidence.Pod) string {
	for _, l := range p.Node.Containerd.Lists {
		if l.Bytes > evidence.MaxList {
			return l.Of
		}
	}
	return ""
}

// kubeletThere reports whether the kubelet's process is there, and nobody has stopped it. It may be part
// of a program that is not known by its name.
func kubeletThere(p *evidence.Pod) bool {
	k := &p.Node.Kubelet
	if k.Process == nil {
		return k.LastSeen.IsZero()
	}
	return !Halted(k.Process)
}

// Unread reports whether the kubelet has not read that the pod is deleted, because that was when its
// main loop did nothing already, and does nothing since: it tells of a list that is older than the
// deletion, so it was not started since. The times of the two are compared with room for clocks that
// were not.
func Unread(p *evidence.Pod) bool {
	g := PLEG(p)
	return g != nil && !g.Unhealthy.IsZero() && p.DeletionRequested.Sub(g.Unhealthy) >= KillLatency
}
