package storage

import (
	"slices"

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
	Needs:  []evidence.Source{evidence.Kubelet, evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
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
		Evidence: []string{
			"Only CSI volumes of the pod are left. Each is mounted, and has the kubelet's record (vol_data.json).",
			"For five minutes at this stage of the pod, the kubelet has counted no NodeUnpublishVolume call to their drivers " +
				"(csi_operations_seconds).",
			"In that time, it has counted no failed attempt at one of their volumes either (storage_operation_duration_seconds).",
			"A kubelet that still tries does so every two minutes, and a call without a response ends after two.",
			"Earlier calls to the drivers have succeeded.",
			"The kubelet has started a container of the pod itself. It is healthy, and the API server hears from it.",
			"No thread of the kubelet hangs, except at another pod's volume.",
			"Inferred: the kubelet does not count which volume a call was about.",
			"Not reported if a PersistentVolume of the same name is mounted for another pod of the node: an operation for that one comes first.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) || !p.ContainersEnded() {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		left, since := fact.GivenUp(p)
		for _, l := range left {
			if toldBusy(p, l.Volume.Name) {
				continue
			}
			o := ofDriver(p, l.Volume.Driver, []string{l.Volume.Name})
			o.Mount, o.Since = diagnose.MountOf(p, l.Mount), since
			out = append(out, diagnose.Finding{Confidence: diagnose.Inferred, Objects: o})
		}
		return diagnose.Found(out...)
	},
}

// toldBusy reports whether VolumeUnmountBusy reports a volume.
func toldBusy(p *fact.View, volume string) bool {
	return !fact.Missing(p, evidence.Holders) && slices.ContainsFunc(keptBusy(p),
		func(f diagnose.Finding) bool { return slices.Contains(f.Objects.Volumes, volume) })
}
