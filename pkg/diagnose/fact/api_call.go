package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

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
