package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// csiPlugin is the kubelet's name of the plugin for CSI drivers.
const csiPlugin = "kubernetes.io/csi"

// FailedUnmount returns what the kubelet counts of its failed attempts to take a
// volume down, when one of them has ended since the pod is at its present stage; nil
// when none has, or when it is not known.
func FailedUnmount(p *evidence.Pod, v *evidence.Volume) *evidence.VolumeCall {
	plugin, method := strings.ReplaceAll(v.Plugin, "~", "/"), evidence.VolumeUnmount
	if v.Block {
		method = evidence.VolumeUnmap
	}
	for i := range p.Node.Kubelet.VolumeCalls {
		c := &p.Node.Kubelet.VolumeCalls[i]
		// A volume of which only subpaths are left has no directory that names its plugin:
		// what fails at any volume is taken for its, where it can be no other pod's.
		if c.Method == method && c.Failed() && RoseAtStage(p, c) &&
			(v.Plugin == "" && OnlyOneUnmounts(p, c) || c.Plugin == plugin && (plugin != csiPlugin || c.Driver == v.Driver)) {
			return c
		}
	}
	return nil
}

// RoseAtStage reports whether more calls were counted since the pod is at its present
// stage: its containers have ended, and the same of its volumes is left.
func RoseAtStage(p *evidence.Pod, c *evidence.VolumeCall) bool {
	return c.Rose.After(p.UnchangedSince)
}

// OnlyOneUnmounts reports whether this was the only pod of the node whose volumes the kubelet
// took down when it counted what was counted last of these calls: what is counted of another
// pod, which may be gone a moment later, was counted no later than the reading that showed it.
func OnlyOneUnmounts(p *evidence.Pod, c *evidence.VolumeCall) bool {
	return p.Node.Unmounting == 1 && c.Rose.After(p.Node.UnmountingUntil)
}

// volumeRetry is how long the kubelet waits at most between two attempts at a volume
// (2 minutes and 2 seconds, pkg/util/goroutinemap/exponentialbackoff), with the time
// that an attempt takes.
const volumeRetry = 135 * time.Second

// PatienceWithVolumes returns for how long a pod must have made no progress to be stuck
// without a known cause: what was in the way of its volumes may have ended since the
// kubelet's last attempt. A kubelet that has answered before and does not tell now what it
// has tried, as while a shim of the node hangs, is waited for. It is 0 when nothing is left
// of its volumes.
func PatienceWithVolumes(p *evidence.Pod) time.Duration {
	if p.ContainersEnded() && (len(p.Mounts)+len(p.Volumes) > 0 || DevicesLeft(p)) {
		switch k := &p.Node.Kubelet; {
		case k.VolumeCallsRead.IsZero(): // nobody may ask it
			return volumeRetry
		case p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause:
			return Retries
		default:
			return volumeRetry + max(0, k.VolumeCallsSince.Sub(p.UnchangedSince))
		}
	}
	return 0
}

// VolumesLeft reports whether the kubelet fails to take a volume of the pod down, of
// which nothing may be mounted any more. A directory alone does not tell: one that a
// kubelet has forgotten holds nothing up.
func VolumesLeft(p *evidence.Pod) bool {
	for i := range p.Volumes {
		if FailedUnmount(p, &p.Volumes[i]) != nil {
			return true
		}
	}
	return false
}

// DevicesLeft reports whether the kubelet has yet to take a block device of the pod back.
// What is left of one alone does not tell: a kubelet that was started anew knows nothing of
// a device whose name it had removed from the pod's directory, and removes the pod's
// control group, which it does when it is done with the volumes.
func DevicesLeft(p *evidence.Pod) bool {
	return len(p.Devices) > 0 && (len(p.Cgroups) > 0 || Missing(p, evidence.Cgroups))
}

// Unmounter returns a thread that is in state D, or waits for a FUSE daemon, without
// moving, on its way to unmount one of the pod's volumes: the kubelet's, or that of any
// program of the node, or of the pod of the volume's CSI driver, that is inside umount2
// there. Any other pod may have a path of that name in a mount namespace of its own.
func Unmounter(p *evidence.Pod) *evidence.Task {
	if t := KubeletBusyWithVolume(p); t != nil {
		return t
	}
	for i := range p.Node.Blocked {
		t := &p.Node.Blocked[i]
		if t.Probe != nil && t.Probe.Syscall == "umount2" && p.RuntimeUID != "" && t.Owner != p.RuntimeUID &&
			strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/") && t.Unchanged(p.Time) >= Stuck && servesVolumes(p, t) {
			return t
		}
	}
	return nil
}

// servesVolumes reports whether a process is the node's, or of the pod of a driver of
// the pod's volumes.
func servesVolumes(p *evidence.Pod, t *evidence.Task) bool {
	return !t.InPod() || t.OwnerName != "" && slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.DriverPod == t.OwnerName })
}

// OnlyCounted reports whether the threads of the kubelet that are busy with the pod's
// volumes all ask how full they are (statfs), which it does for its metrics and not to
// unmount them.
func OnlyCounted(p *evidence.Pod) bool {
	found := false
	for i := range p.Node.Kubelet.Blocked {
		t := &p.Node.Kubelet.Blocked[i]
		if !busyWithVolume(p, t) {
			continue
		}
		if t.Probe.Syscall != "statfs" && t.Probe.Syscall != "fstatfs" {
			return false
		}
		found = true
	}
	return found
}
