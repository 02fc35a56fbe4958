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
func FailedUnmount(p *View, v *evidence.Volume) *evidence.VolumeCall {
	return FailedUnmountAfter(p, v, StageSince(p))
}

// FailedUnmountAfter is FailedUnmount for an attempt that was counted after a time. While the kubelet deletes the volume's files
// what failed is an attempt before, or at another volume.
func FailedUnmountAfter(p *View, v *evidence.Volume, after time.Time) *evidence.VolumeCall {
	if p.Time.Sub(lastDeleted(p, v)) < SlowDisk || deletesIn(p, v) {
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
			(v.Plugin == "" && OnlyOneUnmounts(p, c) || c.Plugin == plugin && (plugin != csiPlugin || c.Driver == v.Driver)) {
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

// PatienceWithVolumes returns for how long a pod must have made no progress to be stuck
// without a known cause: what was in the way of its volumes may have ended since the
// kubelet's last attempt. A kubelet that has answered before and does not tell now what it
// has tried, as while a shim of the node hangs, is waited for. It is 0 when nothing is left
// of its volumes.
func PatienceWithVolumes(p *View) time.Duration {
	if p.ContainersEnded() && (len(p.Mounts)+len(p.Volumes) > 0 || DevicesLeft(p)) {
		switch k := &p.Node.Kubelet; {
		case k.VolumeCallsRead.IsZero(): // nobody may ask it
			return VolumeRetry
		case p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause:
			return Retries
		default:
			if left, since := untried(p); len(left) > 0 && since.Sub(CountedSince(p)) <= evidence.CallsPause {
				return UntilCounted(p, GaveUp+since.Sub(CountedSince(p))+p.Time.Sub(k.VolumeCallsRead)) // then it is known why
			}
			return UntilCounted(p, VolumeTry.With(p)+p.Time.Sub(k.VolumeCallsRead))
		}
	}
	return 0
}

// UntilCounted returns for how long a pod must have made no progress for the kubelet's counts to
// have been read for so long. They are read from the deadline on, and one that tells them
// now and then only is not waited for without end.
func UntilCounted(p *View, long time.Duration) time.Duration {
	return min(long+max(0, p.Node.Kubelet.VolumeCallsSince.Sub(p.UnchangedSince)), 2*Retries+max(0, p.Deadline.Sub(p.UnchangedSince)))
}

// GaveUp is for how long the kubelet has to count no attempt at a volume to have given it up: the
// longest pause between two, as long again for a call that is not answered, which it
// counts when its two minutes are over (csiTimeout, pkg/volume/csi/csi_plugin.go), and the
// pause between two readings, because what was counted in the first one may be from before.
const GaveUp = 2*VolumeRetry + evidence.CallsPause

// A MountedVolume is a volume of a CSI driver, and the mount that the driver has made of it.
type MountedVolume struct {
	Volume *evidence.Volume
	Mount  *evidence.Mount
}

// untried returns the pod's CSI volumes with their mounts where nothing but those is
// left of its volumes, and since when the kubelet has counted no attempt at them. There are none
// when its counts are not known, or it may be kept from an attempt:
//
//   - It was started after the containers. What is mounted then it mounts once more, and changes
//     the owner of each file, for hours (SetUpAt, pkg/volume/csi/csi_mounter.go); and so it
//     does for containers that have not run yet.
//   - Another pod has the volume. The kubelet mounts it for one pod at a time, and unmounts it
//     for none meanwhile (MountVolume, pkg/volume/util/operationexecutor).
//   - Another kind of volume is left. It begins with all volumes of a pod at the same time
//     (findAndRemoveDeletedPods, pkg/kubelet/volumemanager/populator), and not while it
//     waits for the API server.
//   - One of its threads hangs, but at a volume of another pod, or a program does that unmounts.
func untried(p *View) (left []MountedVolume, since time.Time) {
	k := &p.Node.Kubelet
	if !CountsRead(p) || k.Health != KubeletHealthy || p.Node.Ready.Unheard() || !MountedAll(p) || KubeletHangs(p) || Unmounter(p) != nil {
		return nil, since
	}
	for i := range p.Volumes {
		v := &p.Volumes[i]
		m := Published(p, v)
		if m == nil || !wouldBeCounted(p, v, m) {
			return nil, since
		}
		left = append(left, MountedVolume{v, m})
	}
	return left, UntriedSince(p)
}

// wouldBeCounted reports whether the kubelet would count an attempt at a volume that is mounted: no other pod has it, nothing but the mount is left
// of it, its driver is there, and has answered before.
func wouldBeCounted(p *View, v *evidence.Volume, m *evidence.Mount) bool {
	shared := m.Shared && !v.Inline
	return !shared && v.Driver != "" && !v.NoRecord && v.Subpaths == 0 && !v.Unregistered && CountsCSI(p) && Unpublishes(p, v.Driver)
}

// UntriedSince returns since when the kubelet has counted no attempt at a volume of one of the drivers of the pod's volumes.
func UntriedSince(p *View) time.Time {
	since := CountedSince(p)
	for i := range p.Volumes {
		since = Latest(since, lastTry(&p.Node.Kubelet, p.Volumes[i].Driver))
	}
	return since
}

// CountsRead reports whether it is known what the kubelet counts of its attempts at volumes.
func CountsRead(p *View) bool {
	k := &p.Node.Kubelet
	return !k.VolumeCallsRead.IsZero() && p.Time.Sub(k.VolumeCallsRead) <= evidence.CallsPause
}

// MountedAll reports whether a container of the pod has been started by the kubelet that is there
// now: it had mounted all of the pod's volumes before (SyncPod, pkg/kubelet/kubelet.go).
func MountedAll(p *View) bool {
	t := p.Node.Kubelet.Process
	return !t.Started().IsZero() && p.Kill.Stayed && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Exit != nil && c.Exit.Started.After(t.Probe.Started)
	})
}

// KubeletHangs reports whether a thread of the kubelet is blocked, but at a volume of another pod,
// each of which it takes down in a thread of its own.
func KubeletHangs(p *View) bool {
	return slices.ContainsFunc(p.Node.Kubelet.Blocked, func(t evidence.Task) bool {
		elsewhere := t.Probe != nil && strings.Contains(t.Probe.VolumePath, "/pods/") && !strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/")
		return t.Unchanged(p.Time) >= LeastStill && !elsewhere
	})
}

// Published returns the mount that a CSI driver has made of a volume, nil when it is not there.
func Published(p *View, v *evidence.Volume) *evidence.Mount {
	i := slices.IndexFunc(p.Mounts, func(m evidence.Mount) bool {
		return m.Volume == v.Name && m.Plugin == v.Plugin && !v.Block && strings.HasSuffix(m.Point, "/volumes/"+m.Plugin+"/"+m.Volume+"/mount")
	})
	if i < 0 {
		return nil
	}
	return &p.Mounts[i]
}

// CountsCSI reports whether the kubelet counts its attempts at CSI volumes.
func CountsCSI(p *View) bool {
	return slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.VolumeUnmount && c.Plugin == csiPlugin
	})
}

// Unpublishes reports whether a driver has ever answered that it has unpublished a volume.
func Unpublishes(p *View, driver string) bool {
	return slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.NodeUnpublish && c.Driver == driver && !c.Failed()
	})
}

// lastTry returns the time before which the kubelet has counted its last call to a driver to
// unpublish a volume, or its last failed attempt at a volume of that driver or of one that is not
// known: Rose of it, and the pause between two readings.
func lastTry(k *evidence.KubeletService, driver string) (last time.Time) {
	for _, c := range k.VolumeCalls {
		called := c.Method == evidence.NodeUnpublish && c.Driver == driver
		failed := c.Method == evidence.VolumeUnmount && c.Plugin == csiPlugin && (c.Driver == driver || c.Driver == "") && c.Failed()
		if (called || failed) && !c.Rose.IsZero() && c.Rose.Add(evidence.CallsPause).After(last) {
			last = c.Rose.Add(evidence.CallsPause)
		}
	}
	return last
}

// GivenUp returns those volumes, and since when, when the kubelet has counted no attempt for so
// long that it does not try any more. What it counts after the last reading is not known.
func GivenUp(p *View) ([]MountedVolume, time.Time) {
	left, since := untried(p)
	if p.Node.Kubelet.VolumeCallsRead.Sub(since) < GaveUp {
		return nil, since
	}
	return left, since
}

// CountedSince returns since when the kubelet's counts have been read all the time, and the pod
// is at its present stage.
func CountedSince(p *View) time.Time {
	if since := p.Node.Kubelet.VolumeCallsSince; since.After(p.UnchangedSince) {
		return since
	}
	return p.UnchangedSince
}

// LastDeleted returns when the kubelet was seen last to delete a file of one of the pod's volumes, without which it cannot
// remove the pod; zero when it was not.
func LastDeleted(p *View) time.Time {
	var last time.Time
	for i := range p.Volumes {
		last = Latest(last, lastDeleted(p, &p.Volumes[i]))
	}
	return last
}

// lastDeleted is LastDeleted of one volume. Where something is mounted inside, what is deleted may be in there, and is of
// no use. A time to come is by another clock, and would stay.
func lastDeleted(p *View, v *evidence.Volume) time.Time {
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
		if !BusyWithVolume(p, t) {
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
	return uncounted(p, VolumeRetry)
}

// UncountedClaims is UncountedVolumes for attempts at resource claims.
func UncountedClaims(p *View) (within time.Duration, since time.Time) {
	return uncounted(p, ClaimRetry)
}

// UncountedRequests is UncountedVolumes for two requests to the API server about a pod: the kubelet makes the second one ten seconds
// after the first was refused (syncBatch, pkg/kubelet/status/status_manager.go).
func UncountedRequests(p *View) (within time.Duration, since time.Time) {
	return uncounted(p, 20*time.Second)
}

// uncounted returns for how much longer the counts must be read for one to rise that rises within a pause. It can since they are read,
// the kubelet was started, and the pod is at its present stage.
func uncounted(p *View, pause time.Duration) (within time.Duration, since time.Time) {
	k := &p.Node.Kubelet
	since = Latest(Latest(k.VolumeCallsSince, k.Process.Started()), p.StageReadSince)
	return max(0, pause+evidence.CallsPause-p.Time.Sub(Latest(since, p.UnchangedSince))), since
}
