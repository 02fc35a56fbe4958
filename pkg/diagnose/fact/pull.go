package fact

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// For how long nothing may have been stored of any image for a download to be said to hang: containerd
// stores a MiB at a time, so that it is less than 12 KiB in a second. On a node that is short of
// something a disk may be what is slow. By default containerd gives a pull up five minutes after data of
// it came last (image_pull_progress_timeout): a download that has begun to come and has not moved for longer than that
// is of none that is under way. One of which nothing has come at all it does not give up, where it
// pulls by its transfer service, as it does by default (handleProgress,
// internal/cri/server/images/image_pull.go): it does not count it.
const (
	DownloadGivenUp = 5 * time.Minute
)

// Pull returns the pull of an image for one of the pod's containers, or for a volume, that the kubelet
// waits for; nil when it is not so, or not known. The kubelet does not turn to the deletion before the pull has ended: SyncPod
// takes a context that the deletion does not cancel (pkg/kubelet/kubelet.go).
func Pull(p *View) *evidence.Pull {
	kubelet := p.Node.Kubelet.Process
	if len(p.Pulls) == 0 || p.Mirror || Missing(p, evidence.Pulls, evidence.Containers) ||
		kubelet.Started().IsZero() || p.Node.Ready.Unheard() ||
		len(p.Plugins)+len(p.NetworkSetup)+len(p.RuntimeCommands)+len(p.KillFailures) > 0 {
		return nil
	}
	// It pulls for one container after the other: what was told of the last one only may be lost.
	last := &p.Pulls[len(p.Pulls)-1]
	if kubelet.Probe.Started.After(last.Since) || !toBeCreated(p, last.Container) {
		return nil
	}
	return last
}

// toBeCreated reports whether a container of the pod is yet to be created, and not for the kubelet
// to try again later, while the pod's sandbox runs; "" is any container, for which a volume is wanted.
// Others may run, since the kubelet starts one after the other, but no init container: it starts nothing
// before that has ended.
func toBeCreated(p *View, name string) bool {
	waits, sandbox := false, false
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case c.Kind == evidence.Sandbox:
			sandbox = sandbox || c.State == evidence.StateRunning
		case c.State == evidence.StateCreated || c.State == evidence.StateUnknown || c.Kind == evidence.Init && c.State == evidence.StateRunning:
			return false
		case c.Name == name || name == "":
			waits = waits || c.Waiting && !c.BackedOff && c.ID == ""
		}
	}
	return sandbox && waits
}
