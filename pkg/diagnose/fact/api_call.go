package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The kubelet asks the API server again after ten seconds for what was refused
// (syncPeriod, pkg/kubelet/status/status_manager.go), and is asked for its counts every
// ten seconds or, by an agent under pressure, some more. What has not been counted for
// refusalLasts has ended. Trouble of the API server is remembered for longer: it comes and
// goes.
const (
	refusalLasts = time.Minute
	troubleLasts = 2 * time.Minute
)

// RefusedByAPI returns the kubelet's requests of a method that the API server refuses:
// more were counted at least twice since the pod is at its present stage, and lately. It
// is nil when there are none, or another program's requests may be counted with them, or
// the API server is in trouble: what fails then comes to an end with that.
func RefusedByAPI(p *View, method string) *evidence.APICall {
	return goesOn(p, method, (*evidence.APICall).Refused, (*evidence.APICall).Trouble)
}

// StoppedByWebhook returns the kubelet's requests of a method that end with an error of the API
// server's own (500), counted as those are, where a webhook that it cannot call has lately stopped
// nodeagent's own update of the pod's status. Other trouble silences it.
func StoppedByWebhook(p *View, method string) *evidence.APICall {
	if r := OwnRefusal(p); r == nil || !r.Uncalled || !r.At.After(p.UnchangedSince) {
		return nil
	}
	internal := func(c *evidence.APICall) bool { return c.Code == "500" }
	return goesOn(p, method, internal, func(c *evidence.APICall) bool { return c.Trouble() && !internal(c) })
}

// goesOn returns the kubelet's last requests of a method that have ended so: counted at least twice
// since the pod is at its present stage, and lately. It is nil where some have ended lately
// in a way that silences it.
func goesOn(p *View, method string, so, silences func(*evidence.APICall) bool) *evidence.APICall {
	k := &p.Node.Kubelet
	if k.Process == nil || k.Process.Comm != "kubelet" {
		return nil // k3s and MicroK8s run controllers in the same process
	}
	var last *evidence.APICall
	for i := range k.APICalls {
		c := &k.APICalls[i]
		if !c.Rose.After(p.UnchangedSince) {
			continue
		}
		lasts := p.Node.Time.Sub(c.Rose)
		if silences(c) && lasts < troubleLasts {
			return nil
		}
		if c.Method == method && so(c) && c.RoseBefore.After(p.UnchangedSince) && lasts < refusalLasts &&
			(last == nil || c.Rose.After(last.Rose)) {
			last = c
		}
	}
	return last
}

// ownRefusalLasts is for how long a refusal is taken to go on: nodeagent tries again after five
// minutes at the latest (pkg/verdict).
const ownRefusalLasts = 6 * time.Minute

// OwnRefusal returns who refuses nodeagent's own update of the pod's status; nil for nobody.
func OwnRefusal(p *View) *evidence.Refusal {
	if p.Refusal == nil || p.Time.Sub(p.Refusal.At) > ownRefusalLasts {
		return nil
	}
	return p.Refusal
}

// SaidToRun reports whether a container runs by the pod's status, as the kubelet has
// written it last.
func SaidToRun(p *View) bool {
	for i := range p.Containers {
		if p.Containers[i].Running {
			return true
		}
	}
	return false
}
