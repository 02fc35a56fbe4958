package fact

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSIPlugin is the kubelet's name of the plugin for CSI drivers.
const CSIPlugin = "kubernetes.io/csi"

// FailedUnmount returns what the kubelet counts of its failed attempts to take a
// volume down, when one of them has ended since the pod is at its present stage; nil
// when none has, or when it is not known.
func FailedUnmount(p *View, v *evidence.Volume) *evidence.VolumeCall {
	return FailedUnmountAfter(p, v, StageSince(p))
}

// FailedUnmountAfter is FailedUnmount for an attempt that was counted after a time. While the kubelet deletes the volume's files
// what failed is an attempt before, or at another volume.
func FailedUnmountAfter(p *View, v *evidence.Volume, after time.Time) *evidence.VolumeCall {
	if p.Time.Sub(LastDeleted(p, v)) < SlowDisk || deletesIn(p, v) {
		return nil
	}
	plugin, method := strings.ReplaceAll(v.Plugin, "~", "/"), evidence.VolumeUnmount
	if v.Block {
		method = evidence.VolumeUnmap
	}
	for i := range p.Node.Kubelet.VolumeCalls {
		c := &p.Node.Kubelet.VolumeCalls[i]
		// A volume of which only subpaths are left has no directory that names its plugin:
		// what fails at any volume is taken for its, where it can be no other pod's.
		if c.Method == method && c.Failed() && c.Rose.After(after) &&
			(v.Plugin == "" && OnlyOneUnmounts(p, c) || c.Plugin == plugin && (plugin != CSIPlugin || c.Driver == v.Driver)) {
			return c
		}
	}
	return nil
}

// deletesIn reports whether a thread of the kubelet that deletes the volume's files waits in the kernel: its attempt is
// under way.
func deletesIn(p *View, v *evidence.Volume) bool {
	return p.RuntimeUID != "" && slices.ContainsFunc(p.Node.Kubelet.Blocked, func(t evidence.Task) bool {
		return t.Probe != nil && t.Probe.Relative && strings.HasSuffix(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/volumes/"+v.Plugin+"/"+v.Name)
	})
}

// StageSince returns since when a failed attempt at a volume tells of the pod's present stage: while the kubelet's
// disk is read-only, or it may open no file, it fails for that (UnmountFails).
func StageSince(p *View) time.Time {
	return Latest(p.UnchangedSince, p.Node.Kubelet.LackedUntil)
}

// FailedCall returns the last call to a driver to unpublish a volume that has failed since the pod is at its present stage, whether calls
// have succeeded since or not: what fails may have failed in one of those.
func FailedCall(p *View, driver string) (last *evidence.VolumeCall) {
	for _, c := range UnpublishCalls(p, driver) {
		if c.Failed() && (last == nil || c.Rose.After(last.Rose)) {
			last = c
		}
	}
	return last
}

// UnpublishCalls returns what the kubelet counts of its calls to a driver to unpublish a
// volume, as far as more were counted since the pod is at its present stage.
func UnpublishCalls(p *View, driver string) []*evidence.VolumeCall {
	var out []*evidence.VolumeCall
	for i := range p.Node.Kubelet.VolumeCalls {
		if c := &p.Node.Kubelet.VolumeCalls[i]; c.Method == evidence.NodeUnpublish && c.Driver == driver && c.Rose.After(p.UnchangedSince) {
			out = append(out, c)
		}
	}
	return out
}

// OnlyOneUnmounts reports whether this was the only pod of the node whose volumes the kubelet
// took down when it counted what was counted last of these calls: what is counted of another
// pod, which may be gone a moment later, was counted no later than the reading that showed it.
func OnlyOneUnmounts(p *View, c *evidence.VolumeCall) bool {
	return p.Node.Unmounts().Since(c.Rose)
}

// VolumeRetry is how long the kubelet waits at most between two attempts at a volume
// (2 minutes and 2 seconds, pkg/util/goroutinemap/exponentialbackoff), with the time
// that an attempt takes.
const VolumeRetry = 135 * time.Second

// UntilCounted returns for how long a pod must have made no progress for the kubelet's counts to
// have been read for so long. They are read from the deadline on, and one that tells them
// now and then only is not waited for without end.
func UntilCounted(p *View, long time.Duration) time.Duration {
	return min(long+max(0, p.Node.Kubelet.VolumeCallsSince.Sub(p.UnchangedSince)), 2*Retries+max(0, p.Deadline.Sub(p.UnchangedSince)))
}

// CountedSince returns since when the kubelet's counts have been read all the time, and the pod
// is at its present stage.
func CountedSince(p *View) time.Time {
	if since := p.Node.Kubelet.VolumeCallsSince; since.After(p.UnchangedSince) {
		return since
	}
	return p.UnchangedSince
}

// LastDeleted returns when the kubelet was seen last to delete a file of a volume; zero when it was not. Where something is mounted inside,
// what is deleted may be in there, and is of no use. A time to come is by another clock, and would stay.
func LastDeleted(p *View, v *evidence.Volume) time.Time {
	mounted := slices.ContainsFunc(p.Mounts, func(m evidence.Mount) bool { return m.Volume == v.Name && m.Plugin == v.Plugin })
	if mounted || v.LastDeleted.After(p.Time.Add(ClockSkew)) {
		return time.Time{}
	}
	return v.LastDeleted
}

// VolumesLeft reports whether the kubelet fails to take a volume of the pod down, of
// which nothing may be mounted any more. A directory alone does not tell: one that a
// kubelet has forgotten holds nothing up, and the pod's control group is removed then.
func VolumesLeft(p *View) bool {
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.NoRecord && !v.Block && len(p.Cgroups) > 0 || FailedUnmountAfter(p, v, p.UnchangedSince) != nil {
			return true
		}
	}
	return false
}

// DevicesLeft reports whether the kubelet has yet to take a block device of the pod back.
// What is left of one alone does not tell: a kubelet that was started anew knows nothing of
// a device whose name it had removed from the pod's directory, and removes the pod's
// control group, which it does when it is done with the volumes.
func DevicesLeft(p *View) bool {
	return len(p.Devices) > 0 && (len(p.Cgroups) > 0 || Missing(p, evidence.Cgroups))
}

// Unmounter returns a thread that is in state D, or waits for a FUSE daemon, without
// moving, on its way to unmount one of the pod's volumes: the kubelet's, or that of any
// program of the node, or of the pod of the volume's CSI driver, that is inside umount2
// there. Any other pod may have a path of that name in a mount namespace of its own.
func Unmounter(p *View) *evidence.Task {
	if t := KubeletBusyWithVolume(p); t != nil {
		return t
	}
	for i := range p.Node.Blocked {
		t := &p.Node.Blocked[i]
		if t.Probe != nil && t.Probe.Syscall == "umount2" && p.RuntimeUID != "" && t.Owner != p.RuntimeUID &&
			strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/") && t.Unchanged(p.Time) >= LeastStill && servesVolumes(p, t) {
			return t
		}
	}
	return nil
}

// servesVolumes reports whether a process is the node's, or of the pod of a driver of
// the pod's volumes.
func servesVolumes(p *View, t *evidence.Task) bool {
	return !t.InPod() || t.OwnerName != "" && slices.ContainsFunc(p.Volumes, func(v evidence.Volume) bool { return v.DriverPod == t.OwnerName })
}

// OnlyCounted reports whether the threads of the kubelet that are busy with the pod's
// volumes all ask how full they are (statfs), which it does for its metrics and not to
// unmount them.
func OnlyCounted(p *View) bool {
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

// UncountedVolumes returns for how much longer the kubelet's counts must be read for one to rise that rises at each of its attempts at
// a volume, 0 when it would have risen by now, and since when what is compared with them has been read without a gap.
func UncountedVolumes(p *View) (within time.Duration, since time.Time) {
	return Uncounted(p, VolumeRetry)
}

// UncountedRequests is UncountedVolumes for two requests to the API server about a pod: the kubelet makes the second one ten seconds
// after the first was refused (syncBatch, pkg/kubelet/status/status_manager.go).
func UncountedRequests(p *View) (within time.Duration, since time.Time) {
	return Uncounted(p, 20*time.Second)
}

// Uncounted returns for how much longer the counts must be read for one to rise that rises within a pause. It can since they are read,
// the kubelet was started, and the pod is at its present stage.
func Uncounted(p *View, pause time.Duration) (within time.Duration, since time.Time) {
	k := &p.Node.Kubelet
	since = Latest(Latest(k.VolumeCallsSince, k.Process.Started()), p.StageReadSince)
	return max(0, pause+evidence.CallsPause-p.Time.Sub(Latest(since, p.UnchangedSince))), since
}
