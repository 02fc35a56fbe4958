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
