package storage

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// VolumeLeftMounted is a volume of a CSI driver that is still mounted, but that the kubelet does
// not try to unmount any more.
//
// When the driver has reported the volume as unpublished, the kubelet checks whether the directory
// is still a mount, and takes it for unmounted all the same (removeMountDir,
// pkg/volume/csi/csi_mounter.go). It then waits for the unmount, without end and without another
// attempt (SyncTerminatedPod, pkg/kubelet/kubelet.go; podVolumesExist,
// pkg/kubelet/kubelet_volumes.go).
var VolumeLeftMounted = &diagnose.Rule{
	Cause:  "VolumeLeftMounted",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a CSI volume is still mounted; the kubelet no longer retries",
		Who:     diagnose.ByNode,
		Message: "volume {volumes} is still mounted. CSI driver {driver} reported it unpublished, so the kubelet has not retried since {since}",
		Phrases: map[string][]diagnose.Choice{
			"pod":     podOfDriver,
			"unmount": {{Text: "umount {hostmount}"}, {Text: "unmount the volume's mount point, which findmnt lists"}},
		},
		Meaning: "The containers have exited, and the kubelet has called the CSI driver to unpublish the volume (NodeUnpublishVolume). The driver " +
			"returned success, but the mount is still there. Perhaps the driver does not see the mount, because its pod has the kubelet's " +
			"directory without mountPropagation: Bidirectional. Then this happens each time. Perhaps the volume was mounted there twice, or the " +
			"driver unmounts later, or does not notice that it cannot. The kubelet takes the volume for unmounted. It does not call again and " +
			"sends no Event. The pod waits until nothing is mounted in its directory.",
		Seen: []string{
			"The volume is mounted at {mountpoint} (type {fstype})",
			"NodeUnpublishVolume calls to {driver} have succeeded before",
			"The kubelet has counted no unmount attempt at volumes of {driver} since {since}",
			"No process of the pod is left",
		},
		Remedy: "Read the log of {pod} about this volume (NodeUnpublishVolume). If the driver still writes data back, wait for it. " +
			"Ask the volume's owner. Then, on the node: {unmount}. That fails, and does no harm, while the mount is in use. " +
			"Repeat it if the volume was mounted there twice. " +
			"The pod terminates within seconds after its last volume is unmounted.",
		Danger: "A force delete leaves the volume mounted on this node. Another node may then mount it at the same time, which can destroy its data. " +
			"umount -l can destroy it too: it hides the mount while the file system is in use. " +
			"What a FUSE daemon has not written back may be lost with its mount. Do not delete anything below the pod's directory: what is " +
			"mounted there is the volume's data.",
		First: "ask the driver's owner if all data is written back. If so, and if the volume's owner agrees, follow Fix. " +
			"If unsure, wait",
		Avoid: "umount -l (only hides the use; data at risk)",
	},
	By: diagnose.By[*evidence.Volume]{
		From: []evidence.Source{evidence.Volumes},
		Of:   volumesLeft,
		Facts: slices.Concat([]diagnose.Fact[*evidence.Volume]{
			{Says: stillThere, Pod: settledFor},
			{Says: "All containers of the pod have ended.", Pod: diagnose.IfPod(containersEnded)},
		}, givenUpVolume, []diagnose.Fact[*evidence.Volume]{
			{Says: "A kubelet that still tries does so every two minutes, and a call without a response ends after two."},
			{Says: "Nothing is found that keeps the volume in use (VolumeUnmountBusy).", Is: diagnose.If(notToldBusy),
				From: []evidence.Source{evidence.Mounts, evidence.Holders}},
			{Says: "Inferred: the kubelet does not count which volume a call was about."},
		}),
		Tell: diagnose.Each(tellLeftMounted),
	},
	Awaits: untilGivenUp,
}

// untriedVolume are the facts about a volume that the kubelet may have given up: it is of CSI, as all of the pod that are left, the attempts at it
// would be counted, and nothing keeps the kubelet from one:
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
var untriedVolume = []diagnose.Fact[*evidence.Volume]{
	{Says: "Only CSI volumes of the pod are left, and their drivers are known.", Pod: diagnose.IfPod(onlyOfDrivers)},
	{Says: "Each has the kubelet's record (vol_data.json).", Pod: diagnose.IfPod(allRecorded)},
	{Says: "No subPath directory of them is left.", Pod: diagnose.IfPod(noSubpathsLeft)},
	{Says: "The kubelet's directory plugins_registry has a socket of each driver.", Pod: diagnose.IfPod(allRegistered)},
	{Says: "Each is mounted.", Pod: diagnose.IfPod(allPublished), From: []evidence.Source{evidence.Mounts}},
	{Says: "No PersistentVolume of the same name is mounted for another pod of the node: an operation for that one comes first.",
		Pod: diagnose.IfPod(noneShared), From: []evidence.Source{evidence.Mounts}},
	{Says: "The kubelet has started a container of the pod itself, and has not been restarted since.", Pod: diagnose.IfPod(mountedAll),
		From: []evidence.Source{evidence.Kubelet}},
	{Says: "The kubelet is healthy.", Pod: diagnose.IfPod(kubeletHealthy), From: []evidence.Source{evidence.Kubelet}},
	{Says: "The API server hears from it.", Pod: diagnose.IfPod(kubeletHeard), From: []evidence.Source{evidence.NodeObject}},
	{Says: "No thread of the kubelet hangs, except at another pod's volume.", Pod: diagnose.IfPod(kubeletMoves),
		From: []evidence.Source{evidence.Kubelet}},
	{Says: "No program hangs while it unmounts a volume of the pod.", Pod: diagnose.IfPod(unmountersMove)},
	{Says: "The kubelet counts its attempts at CSI volumes (storage_operation_duration_seconds, operation volume_unmount).",
		Pod: diagnose.IfPod(countsCSI), From: []evidence.Source{evidence.VolumeCalls}, Partly: []evidence.Source{evidence.Kubelet}},
	{Says: "Earlier NodeUnpublishVolume calls to the drivers have succeeded (csi_operations_seconds).", Pod: diagnose.IfPod(allUnpublish),
		From: []evidence.Source{evidence.VolumeCalls}, Partly: []evidence.Source{evidence.Kubelet}},
	{Says: "These counts have been read within the last thirty seconds.", Pod: countsRead, From: []evidence.Source{evidence.VolumeCalls}},
}

// givenUpVolume are those about one that it does not try to unmount any more.
var givenUpVolume = slices.Concat(untriedVolume, []diagnose.Fact[*evidence.Volume]{
	{
		Says: "For five minutes at this stage of the pod, the kubelet has counted no attempt at these volumes: no NodeUnpublishVolume call " +
			"to their drivers, and no failed attempt at one of their volumes.",
		Pod: untriedForLong, From: []evidence.Source{evidence.VolumeCalls},
	},
})

// hasGivenUp reports whether the kubelet does not try any more to unmount a volume.
func hasGivenUp(p *fact.View, m *evidence.Mount) bool {
	return slices.ContainsFunc(diagnose.MetAsRead(p, volumesLeft(p), givenUpVolume), func(v *evidence.Volume) bool {
		return v.Name == m.Volume && v.Plugin == m.Plugin
	})
}

// untilGivenUp returns for how long a pod must have made no progress until it is known whether the kubelet has given its volumes up, 0 where it is
// not seen to have counted no attempt.
func untilGivenUp(p *fact.View) time.Duration {
	counted := fact.CountedSince(p)
	since := untriedSince(p).Sub(counted)
	if since > evidence.CallsPause || len(diagnose.MetAsRead(p, volumesLeft(p), untriedVolume)) == 0 {
		return 0
	}
	return fact.UntilCounted(p, gaveUp+since+p.Time.Sub(p.Node.Kubelet.VolumeCallsRead))
}

func containersEnded(p *fact.View) bool { return p.ContainersEnded() }

func onlyOfDrivers(p *fact.View) bool { return each(p, ofDrivers) }

func allRecorded(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool { return !v.NoRecord })
}

func noSubpathsLeft(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool { return v.Subpaths == 0 })
}

func allRegistered(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool { return !v.Unregistered })
}

// mountOf returns the mount that a CSI driver has made of a volume, nil when it is not there.
func mountOf(p *fact.View, v *evidence.Volume) *evidence.Mount {
	i := slices.IndexFunc(p.Mounts, func(m evidence.Mount) bool {
		return m.Volume == v.Name && m.Plugin == v.Plugin && !v.Block && strings.HasSuffix(m.Point, "/volumes/"+m.Plugin+"/"+m.Volume+"/mount")
	})
	if i < 0 {
		return nil
	}
	return &p.Mounts[i]
}

func allPublished(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool { return mountOf(p, v) != nil })
}

// noneShared reports whether no other pod of the node has one of the volumes. One that stands in the pod's specification is its own.
func noneShared(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool {
		m := mountOf(p, v)
		return m != nil && (v.Inline || !m.Shared)
	})
}

// mountedAll reports whether a container of the pod has been started by the kubelet that is there
// now: it had mounted all of the pod's volumes before (SyncPod, pkg/kubelet/kubelet.go).
func mountedAll(p *fact.View) bool {
	t := p.Node.Kubelet.Process
	return !t.Started().IsZero() && p.Kill.Stayed && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Exit != nil && c.Exit.Started.After(t.Probe.Started)
	})
}

func kubeletHealthy(p *fact.View) bool { return p.Node.Kubelet.Health == fact.KubeletHealthy }

func kubeletHeard(p *fact.View) bool { return !p.Node.Ready.Unheard() }

// kubeletMoves reports whether no thread of the kubelet is blocked, but at a volume of another pod,
// each of which it takes down in a thread of its own.
func kubeletMoves(p *fact.View) bool {
	return !slices.ContainsFunc(p.Node.Kubelet.Blocked, func(t evidence.Task) bool {
		elsewhere := t.Probe != nil && strings.Contains(t.Probe.VolumePath, "/pods/") && !strings.Contains(t.Probe.VolumePath, "/pods/"+p.RuntimeUID+"/")
		return t.Unchanged(p.Time) >= fact.LeastStill && !elsewhere
	})
}

func unmountersMove(p *fact.View) bool { return fact.Unmounter(p) == nil }

// countsCSI reports whether the kubelet counts its attempts at CSI volumes.
func countsCSI(p *fact.View) bool {
	return slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.VolumeUnmount && c.Plugin == fact.CSIPlugin
	})
}

// unpublishes reports whether a driver has ever answered that it has unpublished a volume.
func unpublishes(p *fact.View, driver string) bool {
	return slices.ContainsFunc(p.Node.Kubelet.VolumeCalls, func(c evidence.VolumeCall) bool {
		return c.Method == evidence.NodeUnpublish && c.Driver == driver && !c.Failed()
	})
}

func allUnpublish(p *fact.View) bool {
	return each(p, func(v *evidence.Volume) bool { return unpublishes(p, v.Driver) })
}

// countsRead answers whether it is known what the kubelet counts of its attempts at volumes.
func countsRead(p *fact.View) diagnose.Holding {
	if k := &p.Node.Kubelet; k.VolumeCallsRead.IsZero() || p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause {
		return diagnose.NotRead(evidence.VolumeCalls)
	}
	return diagnose.Is(true)
}

// gaveUp is for how long the kubelet has to count no attempt at a volume to have given it up: the
// longest pause between two, as long again for a call that is not answered, which it
// counts when its two minutes are over (csiTimeout, pkg/volume/csi/csi_plugin.go), and the
// pause between two readings, because what was counted in the first one may be from before.
const gaveUp = 2*fact.VolumeRetry + evidence.CallsPause

// untriedSince returns since when the kubelet has counted no attempt at a volume of one of the drivers of the pod's volumes.
func untriedSince(p *fact.View) time.Time {
	since := fact.CountedSince(p)
	for i := range p.Volumes {
		since = fact.Latest(since, lastTry(&p.Node.Kubelet, p.Volumes[i].Driver))
	}
	return since
}

// lastTry returns the time before which the kubelet has counted its last call to a driver to
// unpublish a volume, or its last failed attempt at a volume of that driver or of one that is not
// known: Rose of it, and the pause between two readings.
func lastTry(k *evidence.KubeletService, driver string) (last time.Time) {
	for _, c := range k.VolumeCalls {
		called := c.Method == evidence.NodeUnpublish && c.Driver == driver
		failed := c.Method == evidence.VolumeUnmount && c.Plugin == fact.CSIPlugin && (c.Driver == driver || c.Driver == "") && c.Failed()
		if (called || failed) && !c.Rose.IsZero() && c.Rose.Add(evidence.CallsPause).After(last) {
			last = c.Rose.Add(evidence.CallsPause)
		}
	}
	return last
}

// untriedForLong answers whether the kubelet has counted no attempt for so long that it does not try any more. An attempt, which may be at another
// pod's volume, and a gap between two readings of its counts start that time again: this is waited for only once.
func untriedForLong(p *fact.View) diagnose.Holding {
	read, since := p.Node.Kubelet.VolumeCallsRead, untriedSince(p)
	if read.IsZero() {
		return diagnose.NotRead(evidence.VolumeCalls)
	}
	h := diagnose.Lasted(p, p.Time.Add(since.Sub(read)), gaveUp, diagnose.Retry)
	if !h.Yes() && since.Sub(fact.Latest(p.UnchangedSince, p.Deadline)) > evidence.CallsPause {
		return diagnose.NotYet(diagnose.Seen(p, diagnose.Retry))
	}
	return h
}

// notToldBusy reports whether VolumeUnmountBusy does not report a volume.
func notToldBusy(p *fact.View, v *evidence.Volume) bool {
	return !slices.ContainsFunc(keptBusy(p),
		func(f diagnose.Finding) bool { return slices.Contains(f.Objects.Volumes, v.Name) })
}

func tellLeftMounted(p *fact.View, v *evidence.Volume) diagnose.Finding {
	o := ofDriver(p, v.Driver, []string{v.Name})
	o.Mount, o.Since = diagnose.MountOf(p, mountOf(p, v)), untriedSince(p)
	return diagnose.Finding{Confidence: diagnose.Inferred, Objects: o}
}
