package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The words of Go's runtime and of the C library for what a process is refused that has used up a
// limit: EAGAIN of clone(2), and EMFILE (errno(3)). A runtime that can be started and gets too few
// threads ends with words of its own.
const (
	noTask       = "resource temporarily unavailable"
	noThread     = "failed to create new os thread" // with the number of the error behind it
	noDescriptor = "too many open files"
)

// Exhausted returns which resource an error says is used up, "" for other errors. ENFILE is about the
// whole node and has other words ("too many open files in system").
func Exhausted(text string) string {
	text = strings.ToLower(text)
	switch {
	case strings.Contains(text, "fork/exec ") && strings.Contains(text, noTask), strings.Contains(text, noThread) && strings.Contains(text, "errno=11"):
		return evidence.Tasks
	case strings.Contains(text, noDescriptor) && !strings.Contains(text, noDescriptor+" in system"):
		return evidence.Descriptors
	}
	return ""
}

// CheckpointFails returns what the kubelet lacks so that it cannot write its checkpoint of resource claims, which it
// does for each pod when its containers have ended and before it says so, with claims or without
// (unprepareResources, pkg/kubelet/cm/dra/manager.go): attempts failed twice since it lacks that and since the pod is
// at its present stage. A kubelet that may open no file may also not tell what it counts; it is enough then that
// nothing has changed for long. nil when there is nothing of the kind, and when attempts succeed meanwhile, with which
// the kubelet writes it, too.
func CheckpointFails(p *View) *evidence.Shortage {
	if p.ContainersEnded() || len(AppTasks(p)) > 0 {
		return nil
	}
	for i := range p.Node.Kubelet.Shortages {
		s := &p.Node.Kubelet.Shortages[i]
		if !lacks(p, s) || writes(p, s) || LittleRoom(s) && driverFails(p, s) {
			continue
		}
		if Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
			return c.Status == evidence.ClaimsFailed && c.RoseBefore.After(p.UnchangedSince) && c.RoseBefore.After(s.Since)
		}) != nil || s.Resource == evidence.Descriptors && unwitnessed(p, s) {
			return s
		}
	}
	return nil
}

// writes reports whether the kubelet has had claims of a pod of this node unprepared since it lacks something, since the
// pod is at its present stage, and lately: it has written its checkpoint then.
func writes(p *View, s *evidence.Shortage) bool {
	return Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
		return c.Status == evidence.ClaimsSucceeded && c.Rose.After(s.Since)
	}) != nil
}

// checkpointSize is more than the kubelet's checkpoint of claims takes, in bytes.
const checkpointSize = 64 << 10

// LittleRoom reports whether a file system that is taken for full has room for the checkpoint.
func LittleRoom(s *evidence.Shortage) bool {
	return s.Resource == evidence.Space && s.Limit-s.Used >= checkpointSize
}

// driverFails reports whether attempts fail before the kubelet comes to its checkpoint: calls of a driver have failed
// since it lacks something, since the pod is at its present stage, and lately, or one of the pod's own is not there.
func driverFails(p *View, s *evidence.Shortage) bool {
	return slices.ContainsFunc(p.Node.Kubelet.ClaimCalls, func(c evidence.ClaimCall) bool {
		return c.Method == evidence.NodeUnprepare && c.Status != evidence.CallOK &&
			c.Rose.After(s.Since) && c.Rose.After(p.UnchangedSince) && p.Node.Time.Sub(c.Rose) < unprepareLasts
	}) || slices.ContainsFunc(p.Claims, func(c evidence.Claim) bool {
		return slices.ContainsFunc(c.Drivers, func(d evidence.ClaimDriver) bool { return d.Unregistered })
	})
}

// unwitnessed reports whether the kubelet has not told what it counts for as long as it has had no file to open, and
// nothing has become of a pod that is past its deadline meanwhile. One that answers on its port has opened a file for
// that: each question has a connection of its own.
func unwitnessed(p *View, s *evidence.Shortage) bool {
	silent := p.Node.Kubelet.SilentSince
	return !silent.IsZero() && p.Time.Sub(silent) >= SlowDevice && p.Node.Kubelet.VolumeCallsRead.Before(s.Since) && s.Lasted(p.Time) >= UnknownAfter &&
		p.Overdue() >= UnknownAfter && p.Time.Sub(p.UnchangedSince) >= UnknownAfter
}

// lacks reports whether the kubelet has lacked something in all readings for SlowDevice.
func lacks(p *View, s *evidence.Shortage) bool {
	return s.Resource != evidence.Tasks && s.Ended.IsZero() && !s.Since.IsZero() && s.Lasted(p.Time) >= SlowDevice
}

// unprepareLasts is for how long a failed attempt at claims is taken for one that will be made
// again: the kubelet tries anew ten to fifteen seconds after a failure (backOffPeriod,
// pkg/kubelet/pod_workers.go), gives a driver 45 seconds for its answer
// (defaultClientCallTimeout, pkg/kubelet/cm/dra/plugin/dra_plugin.go), and may be asked for its
// counts late.
const unprepareLasts = 2 * time.Minute

// HoldsClaims reports whether the kubelet has not had all resource claims of the pod
// unprepared, or that is not known.
func HoldsClaims(p *View) bool {
	return p.ResourceClaims > 0 && (Missing(p, evidence.Claims) || len(p.Claims) > 0)
}

// ClaimRetry is how long the kubelet takes for an attempt at claims that a driver does not answer,
// and for the wait until the next one, with the time that its counts may be old.
const ClaimRetry = 80 * time.Second

// Claimed returns what the kubelet counts of a method and driver of which more was counted
// since the pod is at its present stage, and lately: the one of these that rose last, nil when
// none did.
func Claimed(p *View, method, driver string, is func(*evidence.ClaimCall) bool) *evidence.ClaimCall {
	var last *evidence.ClaimCall
	for i := range p.Node.Kubelet.ClaimCalls {
		c := &p.Node.Kubelet.ClaimCalls[i]
		if c.Method == method && c.Driver == driver && c.Rose.After(p.UnchangedSince) && p.Node.Time.Sub(c.Rose) < unprepareLasts && is(c) &&
			(last == nil || c.Rose.After(last.Rose)) {
			last = c
		}
	}
	return last
}
