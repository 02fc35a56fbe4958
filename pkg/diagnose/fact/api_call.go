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
func RefusedByAPI(p *evidence.Pod, method string) *evidence.APICall {
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
		if c.Trouble() && lasts < troubleLasts {
			return nil
		}
		if c.Method == method && c.Refused() && c.RoseBefore.After(p.UnchangedSince) && lasts < refusalLasts &&
			(last == nil || c.Rose.After(last.Rose)) {
			last = c
		}
	}
	return last
}

// SaidToRun reports whether a container runs by the pod's status, as the kubelet has
// written it last.
func SaidToRun(p *evidence.Pod) bool {
	for i := range p.Containers {
		if p.Containers[i].Running {
			return true
		}
	}
	return false
}
