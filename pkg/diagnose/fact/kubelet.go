package fact

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletBusyWithVolume returns a thread of the kubelet that is in state D,
// without moving, in a system call on one of the pod's volumes; of several the
// one that has been so for the longest time, because others join it.
func KubeletBusyWithVolume(p *evidence.Pod) *evidence.Task {
	var first *evidence.Task
	for i := range p.Node.Kubelet.Blocked {
		t := &p.Node.Kubelet.Blocked[i]
		if t.Probe != nil && t.Unchanged(p.Time) >= Stuck && p.RuntimeUID != "" &&
			strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/") &&
			(first == nil || t.UnchangedSince.Before(first.UnchangedSince)) {
			first = t
		}
	}
	return first
}
