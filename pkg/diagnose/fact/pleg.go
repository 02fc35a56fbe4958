package fact

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// relists is longer than a kubelet takes to say that its list is a fresh one again when containerd
// answers: it asks once a second, and writes its condition every ten.
const relists = 15 * time.Second

// repeats is less than a kubelet takes to say so a second time. What it says once may be of the past: one
// that was stopped, or whose node was, says so as it goes on, and has a new list a second later.
const repeats = 5 * time.Second

// PLEG returns what is known of the kubelet's pod lifecycle event generator when that has had no list of
// the node's containers for long, though containerd answers: what the kubelet says of it, after
// three minutes; or before that what the kubelet counts, where containerd's answer to nodeagent shows that there
// is none (TooLarge). nil when it has a list, or may have one by now.
func PLEG(p *View) *evidence.PLEG {
	r, c, k := p.Node.Ready, &p.Node.Containerd, &p.Node.Kubelet
	var g *evidence.PLEG
	switch {
	case r != nil && r.Status == "False" && r.PLEG != nil:
		if g = r.PLEG; g.Said.Sub(Latest(g.First, k.Process.Started())) < repeats {
			return nil
		}
	case k.Unlisted() && TooLarge(p) != "":
		g = &evidence.PLEG{Said: k.VolumeCallsRead, Active: k.Listed}
	default:
		return nil
	}
	if !g.Active.IsZero() && k.Process.Started().After(g.Active.Add(relists)) {
		return nil // another kubelet has said so; the one that is there has its first list to get
	}
	if c.AnsweringSince.IsZero() || g.Said.Sub(c.AnsweringSince) < relists || p.Time.Sub(g.Said) >= UnknownAfter || !kubeletThere(p) {
		return nil
	}
	return g
}

// TooLarge returns of what containerd has a list that is larger than the kubelet takes; "" when there is
// none, or that is not known.
func TooLarge(p *View) string {
	for _, l := range p.Node.Containerd.Lists {
		if l.Bytes > evidence.MaxList {
			return l.Of
		}
	}
	return ""
}

// Latest returns the later one of two times.
func Latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// kubeletThere reports whether the kubelet's process is there, and nobody has stopped it. It may be part
// of a program that is not known by its name.
func kubeletThere(p *View) bool {
	k := &p.Node.Kubelet
	if k.Process == nil {
		return k.LastSeen.IsZero()
	}
	return !Halted(k.Process)
}

// unread reports whether the kubelet has not read that the pod is deleted, because that was when its
// main loop did nothing already, and does nothing since: it tells of a list that is older than the
// deletion, so it was not started since. One that never had a list has read nothing since its start: its main loop
// begins with the first list (runtimeErrors, pkg/kubelet/runtime.go). Nor is it at work on the pod for another reason.
// The times of the two are compared with room for clocks that were not.
func unread(p *View) bool {
	g := PLEG(p)
	if g == nil {
		return false
	}
	since := g.Unhealthy
	if g.Active.IsZero() {
		since = p.Node.Kubelet.Process.Started()
	}
	return !since.IsZero() && p.DeletionRequested.Sub(since) >= KillLatency && len(p.KillFailures) == 0 &&
		!slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool { return c.Command == "kill" || c.Command == "delete" })
}
