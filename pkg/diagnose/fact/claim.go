package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

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

// claimRetry is how long the kubelet takes for an attempt at claims that a driver does not answer,
// and for the wait until the next one, with the time that its counts may be old.
const claimRetry = 80 * time.Second

// waitsForClaims reports whether the kubelet has to have claims of the pod unprepared before anything else.
func waitsForClaims(p *View) bool {
	return HoldsClaims(p) && !p.ContainersEnded() && len(AppTasks(p)) == 0
}

// PatienceWithClaims returns for how long a pod must have made no progress to be stuck without
// a known cause when its claims are to be released, as PatienceWithVolumes does of volumes; 0
// for other pods.
func PatienceWithClaims(p *View) time.Duration {
	if !waitsForClaims(p) {
		return 0
	}
	k := &p.Node.Kubelet
	switch {
	case k.VolumeCallsRead.IsZero(): // nobody may ask it
		return claimRetry
	case p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause, !FailsToUnprepare(p) && failedAttempt(p) != nil:
		return Retries // the next attempt tells
	}
	return untilCounted(p, ClaimTry.With(p)+p.Time.Sub(k.VolumeCallsRead))
}

// MayFailToUnprepare reports whether what the kubelet counts does not rule out that it fails to have claims of the pod
// unprepared: an attempt has failed, which may be another pod's, or the next one is yet to be counted.
func MayFailToUnprepare(p *View) bool {
	return waitsForClaims(p) && (failedAttempt(p) != nil || p.Node.Kubelet.VolumeCallsRead.Sub(countedSince(p)) < ClaimTry.With(p))
}

// failedAttempt returns the kubelet's last failed attempt at claims since the pod is at its present stage, nil when there was
// none lately.
func failedAttempt(p *View) *evidence.ClaimCall {
	return Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool { return c.Status == evidence.ClaimsFailed })
}

// FailsToUnprepare reports whether the kubelet fails to have claims of a pod of this node
// unprepared: attempts failed at least twice since the pod is at its present stage, or once
// because a driver did not answer in time, and lately. What the kubelet fails at while it cannot write its checkpoint
// does not count (CheckpointFails).
func FailsToUnprepare(p *View) bool {
	since := p.UnchangedSince
	for i := range p.Node.Kubelet.Shortages {
		switch s := &p.Node.Kubelet.Shortages[i]; {
		case s.Resource == evidence.Tasks, littleRoom(s):
		case s.Ended.IsZero():
			return false
		default:
			since = Latest(since, s.Ended)
		}
	}
	return Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
		return c.Status == evidence.ClaimsFailed && (c.RoseBefore.After(since) || c.Rose.After(since) && timedOut(p))
	}) != nil
}

func timedOut(p *View) bool {
	for i := range p.Claims {
		for _, d := range p.Claims[i].Drivers {
			if Claimed(p, evidence.NodeUnprepare, d.Name, func(c *evidence.ClaimCall) bool { return c.Status == evidence.CallTimedOut }) != nil {
				return true
			}
		}
	}
	return false
}

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

// OnlyOneUnprepares reports whether this was the only pod of the node that the kubelet could
// be having claims unprepared for, since it is at its present stage.
func OnlyOneUnprepares(p *View) bool {
	return p.Node.Unpreparing == 1 && !p.Node.UnpreparingUntil.After(p.UnchangedSince)
}
