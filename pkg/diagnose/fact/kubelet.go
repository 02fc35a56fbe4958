package fact

import (
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
		case !BusyWithVolume(p, t):
		case first == nil, first.AwaitsScanner() && !t.AwaitsScanner():
			first = t
		case first.AwaitsScanner() == t.AwaitsScanner() && t.UnchangedSince.Before(first.UnchangedSince):
			first = t
		}
	}
	return first
}

func BusyWithVolume(p *View, t *evidence.Task) bool {
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
