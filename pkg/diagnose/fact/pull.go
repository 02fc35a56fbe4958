package fact

import (
	"slices"
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
	downloadGivenUp = 5 * time.Minute
)

// pull returns the pull of an image for one of the pod's containers, or for a volume, that the kubelet
// waits for; nil when it is not so, or not known. The kubelet does not turn to the deletion before the pull has ended: SyncPod
// takes a context that the deletion does not cancel (pkg/kubelet/kubelet.go).
func pull(p *View) *evidence.Pull {
	kubelet := p.Node.Kubelet.Process
	if len(p.Pulls) == 0 || p.Mirror || Missing(p, evidence.Pulls, evidence.Containers) ||
		kubelet == nil || kubelet.Probe == nil || kubelet.Probe.Started.IsZero() || p.Node.Ready.Unheard() ||
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

// Pulls reports whether the kubelet waits for an image of the pod, as far as is known.
func Pulls(p *View) bool { return pull(p) != nil }

// PullMoved returns when a download has moved last, or was complete and not yet on the disk, while the kubelet waits for an image: the pod
// then starts, and ends, by itself. It is zero when that was long ago, or the kubelet waits for none. What moved in the future
// was told by a clock that has been set since.
func PullMoved(p *View) time.Time {
	var last time.Time
	if pull(p) == nil {
		return last
	}
	for _, d := range p.Node.Containerd.Downloads {
		if ago := p.Node.Time.Sub(d.Updated); ago >= -ClockSkew && ago < Download.Pressed {
			last = Latest(last, d.Updated)
		}
	}
	return last
}

// HangingPull returns the pull of an image for the pod that the kubelet waits for, and the download that
// was updated last of those that are not complete, when no download moves; nil when it is not so, or not
// known.
func HangingPull(p *View) (*evidence.Pull, *evidence.Download) {
	n := &p.Node
	pull, patience, read := pull(p), Download.With(p), n.Time
	// By a clock that was set lately what is new may look old.
	if pull == nil || read.Sub(pull.Since) < patience || !n.ClockSet.IsZero() && read.Sub(n.ClockSet) < patience ||
		storesBlocked(n) {
		return nil, nil
	}
	var last *evidence.Download
	complete := 0
	for i := range n.Containerd.Downloads {
		switch d := &n.Containerd.Downloads[i]; {
		case d.Total > 0 && d.Offset >= d.Total:
			if complete++; read.Sub(d.Updated) < downloadGivenUp {
				return nil, nil // it is being written to the disk
			}
		case d.Updated.After(read.Add(ClockSkew)): // by another clock
		case last == nil || d.Updated.After(last.Updated):
			last = d
		}
	}
	if last == nil || read.Sub(last.Updated) < patience {
		return nil, nil
	}
	if c := n.Containerd.Content; c != nil {
		// What is not open was left by a pull that has ended. What is read is an image that is unpacked,
		// and may be the pod's.
		if c.Ingests <= complete || c.Blobs > 0 {
			return nil, nil
		}
		return pull, last
	}
	// One of which nothing has come and that is older than the connection to containerd may be left from
	// before a restart of it: its lease is kept for a day.
	if last.Offset == 0 && last.Updated.Before(pull.Since) && last.Updated.Before(n.Containerd.ConnectedSince) ||
		last.Offset > 0 && pull.Since.Sub(last.Updated) >= downloadGivenUp {
		return nil, nil
	}
	return pull, last
}

// storesBlocked reports whether a thread of containerd is blocked: it may be the disk that does not take
// what comes.
func storesBlocked(n *evidence.Node) bool {
	return slices.ContainsFunc(n.Blocked, func(t evidence.Task) bool { return t.Owner == "containerd" })
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

// StuckBesideOthers returns since when a download that had begun with the pull has not moved, while others do: which of them is the pod's
// is not known.
func StuckBesideOthers(p *View) (since time.Time) {
	pull := pull(p)
	if pull == nil || PullMoved(p).IsZero() {
		return since
	}
	for _, d := range p.Node.Containerd.Downloads {
		if (d.Total == 0 || d.Offset < d.Total) && !d.Started.Before(pull.Since) && p.Node.Time.Sub(d.Updated) >= Download.With(p) && (since.IsZero() || d.Updated.Before(since)) {
			since = d.Updated
		}
	}
	return since
}
