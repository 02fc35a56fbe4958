package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

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
	if k := &p.Node.Kubelet; !k.SilentSince.IsZero() {
		return Latest(r.Since, k.SilentSince) // that it goes on is no sign of progress
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
// would do its part: every container runs and is said to, containerd and the shim answer, and no
// command of the runtime is under way.
func untouched(p *View) bool {
	if !RuntimeIdle(p) {
		return false
	}
	apps := 0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == evidence.App {
			apps++
			if c.State != evidence.StateRunning || !c.Running || c.Exit != nil {
				return false
			}
		}
	}
	return apps > 0
}

// RuntimeIdle reports whether containerd and the pod's shim answer and nothing is under way there
// about the pod, nor has the kubelet told that it has tried to stop it.
func RuntimeIdle(p *View) bool {
	c := &p.Node.Containerd
	if c.Error != "" || c.Refused || !c.UnansweredSince.IsZero() || len(p.RuntimeCommands) > 0 || len(p.KillFailures) > 0 {
		return false
	}
	for i := range p.Containers {
		if !p.Containers[i].Task.UnansweredSince.IsZero() {
			return false
		}
	}
	return true
}
