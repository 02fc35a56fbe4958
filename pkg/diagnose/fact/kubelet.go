package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletBusyWithVolume returns a thread of the kubelet that is in state D,
// without moving, in a system call on one of the pod's volumes; of several the
// one that has been so for the longest time, because others join it. One that waits for a program
// that scans files is returned only where there is no other: no volume holds it.
func KubeletBusyWithVolume(p *View) *evidence.Task {
	var first *evidence.Task
	for i := range p.Node.Kubelet.Blocked {
		t := &p.Node.Kubelet.Blocked[i]
		switch {
		case !busyWithVolume(p, t):
		case first == nil, first.AwaitsScanner() && !t.AwaitsScanner():
			first = t
		case first.AwaitsScanner() == t.AwaitsScanner() && t.UnchangedSince.Before(first.UnchangedSince):
			first = t
		}
	}
	return first
}

// busyWithVolume reports whether a thread of the kubelet has not moved for a while on a path of one of the pod's volumes.
func busyWithVolume(p *View, t *evidence.Task) bool {
	return t.Probe != nil && t.Unchanged(p.Time) >= LeastStill && p.RuntimeUID != "" && strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/")
}

// CrashLoop is for how long a kubelet, or containerd, must not have stayed up to be said not to. Units start them
// again after ten seconds, or five (RestartSec), and who repairs one may do so more than once.
const CrashLoop = 3 * time.Minute

// OfNode returns for how long readings of the node prove what they have shown since
// then; 0 when they do not.
func OfNode(p *View, since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, p.Node.Time.Sub(since))
}

// Reconnects is how long a kubelet may take to get through again when its way to the API server
// is there again, as after a partition of the node: a dial that is under way gives up after thirty
// seconds (updateTransport, pkg/kubelet/certificate/transport.go).
const Reconnects = 30 * time.Second

// outOfTouch reports whether the kubelet runs and the API server hears nothing from it: neither
// has the node controller heard of it for its 50 seconds, nor has the kubelet corrected what that
// one has written then, as it does within ten seconds when it gets through. One that was stopped,
// starved or away has not been able to for as long as that.
func outOfTouch(p *View) bool {
	r := p.Node.Ready
	return r.Unheard() && min(r.Asked.Sub(r.Since), r.Asked.Sub(p.Node.Kubelet.SilentUntil)) >= Reconnects && kubeletWorks(p)
}

// MayReconnect returns since when a kubelet of which the API server hears nothing may be getting through again, or is not known to be
// there and to try; zero when it is heard, or is OutOfTouch.
func MayReconnect(p *View) time.Time {
	r := p.Node.Ready
	if !r.Unheard() || p.Delivery.OutOfTouch {
		return time.Time{}
	}
	switch k := &p.Node.Kubelet; {
	case p.Time.Sub(r.Since) >= FlapPatience:
		return r.Since // that it answers now and then is no sign of progress any more
	case !k.SilentSince.IsZero():
		return Latest(r.Since, k.SilentSince) // nor is that its silence goes on
	}
	return Latest(r.Since, p.Node.Kubelet.SilentUntil)
}

// kubeletWorks reports whether the kubelet's process has been there for a while, nothing keeps
// it from running, and its port shows that it does: one that completes a TLS handshake within
// seconds has what it needs for a request to the API server, however short of it the node is.
func kubeletWorks(p *View) bool {
	k := &p.Node.Kubelet
	t := k.Process
	switch {
	case t == nil, Halted(t), t.Probe == nil, t.Probe.Started.IsZero(), !k.Answers:
		return false
	case t.State == evidence.Uninterruptible && t.Unchanged(p.Time) >= LeastStill:
		return false
	}
	// One that was started anew while the API server heard nothing from the one before, either,
	// makes no difference: without valid credentials the kubelet exits every five minutes
	// (addCertRotation, pkg/kubelet/certificate/transport.go).
	return k.YoungSince.IsZero() || k.YoungSince.Sub(p.Node.Ready.Since) >= Reconnects
}

// lateness is longer than the API server hears nothing from a kubelet before the node controller
// makes it Unknown: node-monitor-grace-period, 50 seconds by default, and a round of five.
const lateness = 60 * time.Second

// HeardAfter reports whether the API server heard from the kubelet after a time, before it heard
// nothing any more. Where the node controller waits for longer than by default it may not have.
func HeardAfter(p *View, t time.Time) bool {
	return p.NodeTime(p.Node.Ready.Transition).Sub(t) > lateness
}

// untouched reports whether the pod runs as if nobody had asked for its end, though the runtime
// would do its part: a container runs, every one is as its status says, containerd and the shim answer, and no
// command of the runtime is under way.
func untouched(p *View) bool {
	if !RuntimeIdle(p) {
		return false
	}
	apps := 0
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case c.Kind != evidence.App, Rests(p, c):
		case c.State == evidence.StateRunning && c.Running && c.Exit == nil:
			apps++
		default:
			return false
		}
	}
	return apps > 0
}

// Rests reports whether a container does not run, and its status says that it had ended before the deletion, or that the kubelet waits before it
// starts it again.
func Rests(p *View, c *evidence.Container) bool {
	ended := c.Exit != nil && !c.Waiting && c.Exit.At.Before(p.DeletionRequested)
	return (c.ID == "" || c.State == evidence.StateExited) && !c.Running && (ended || c.BackedOff) &&
		!slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return c.ID != "" && t.Container == c.ID })
}

// RuntimeIdle reports whether containerd and the pod's shim answer and nothing is under way there
// about the pod, nor has the kubelet told that it has tried to stop it.
func RuntimeIdle(p *View) bool {
	c := &p.Node.Containerd
	return c.Error == "" && !c.Refused && c.UnansweredSince.IsZero() && !Missing(p, evidence.Shims) && len(p.RuntimeCommands) == 0 && len(p.KillFailures) == 0
}

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
