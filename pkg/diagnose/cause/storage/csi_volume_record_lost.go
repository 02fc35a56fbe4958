package storage

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSIVolumeRecordLost is a volume of a CSI driver of which the kubelet's own record is
// missing or broken.
//
// Without it the kubelet does not get as far as an attempt, which it would count
// (NewUnmounter, pkg/volume/csi/csi_plugin.go; GenerateUnmountVolumeFunc,
// pkg/volume/util/operationexecutor). One that is started anew cannot reconstruct the volume,
// and waits for the mount to go without trying anything more (reconstructVolumes and
// cleanOrphanVolumes, pkg/kubelet/volumemanager/reconciler; podVolumesExist,
// pkg/kubelet/kubelet_volumes.go).
var CSIVolumeRecordLost = &diagnose.Rule{
	Cause:  "CSIVolumeRecordLost",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet's record of a CSI volume is lost, without which it cannot unmount the volume",
		Message: "volume {volumes}: vol_data.json, the kubelet's record of the CSI volume, is missing or broken, so the kubelet does not know which driver to ask and cannot unmount it. It is mounted at {mountpoint}; no process of the pod is left",
		Phrases: map[string][]diagnose.Choice{
			"unmount": {{Text: "umount {hostmount}"}, {Text: "umount the volume's mount (findmnt lists it)"}},
		},
		Meaning: "Beside the mount of each CSI volume the kubelet keeps a file, vol_data.json, with the name of the driver and of the volume. " +
			"It is empty or missing after a power failure, on a disk that was full when it was written, or because somebody has deleted files below the pod's directory. " +
			"The kubelet then fails before it asks the driver, ten times a second, and counts no attempt. A kubelet that was started since has forgotten the volume and tries nothing at all. It tells it in its log only.",
		Evidence: "A minute after the deadline, and in all readings for a minute, the volume is mounted, and beside the mount there is no vol_data.json, or one that is not JSON. " +
			"When the kubelet takes a volume down it removes that file only after the mount.",
		Remedy: "Read the volume's handle and driver in its PersistentVolume first, if it has one. On the node: {unmount}, then restart the kubelet (systemctl restart kubelet), which forgets the volume. " +
			"Then see with the driver whether the volume is still attached to this node.",
		Danger: "Do not run rm -rf on the volume's directory: while the volume is mounted that deletes its data. " +
			"The driver is not told that the volume is no longer used: before another node writes to the volume, make sure that this one has let go of it. A force delete leaves it mounted.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) {
			return diagnose.Result{}
		}
		for i := range p.Mounts {
			m := &p.Mounts[i]
			if isVolumePoint(m) && recordLost(p, m) {
				return diagnose.Found(diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Volumes: []string{m.Volume}, Mount: diagnose.MountOf(p, m)}})
			}
		}
		return diagnose.Result{}
	},
}

// recordLost reports whether a mount is that of a volume of which the kubelet has no record.
func recordLost(p *fact.View, m *evidence.Mount) bool {
	for i := range p.Volumes {
		if v := &p.Volumes[i]; v.NoRecord && v.Name == m.Volume && v.Plugin == m.Plugin && fact.FailedUnmount(p, v) == nil {
			return true
		}
	}
	return false
}
