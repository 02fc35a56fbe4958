package storage

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSIVolumeRecordLost is a volume of a CSI driver whose record, which the kubelet keeps, is
// missing or invalid.
//
// Without it, the kubelet does not get as far as an attempt, which it would count
// (NewUnmounter, pkg/volume/csi/csi_plugin.go; GenerateUnmountVolumeFunc,
// pkg/volume/util/operationexecutor). A restarted kubelet cannot reconstruct the volume. It
// waits for the unmount without another attempt (reconstructVolumes and cleanOrphanVolumes,
// pkg/kubelet/volumemanager/reconciler; podVolumesExist, pkg/kubelet/kubelet_volumes.go).
var CSIVolumeRecordLost = &diagnose.Rule{
	Cause:  "CSIVolumeRecordLost",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer: "storage",
		Title: "the kubelet's record of a CSI volume is lost",
		Who:   diagnose.ByStorage, NotApp: true,
		Message: "volume {volumes} cannot be unmounted: the kubelet's record of its CSI driver is missing or invalid{so}",
		Phrases: map[string][]diagnose.Choice{
			"so": {{Variant: unmounted, Text: ", and nothing is mounted there"}, {Text: ""}},
			"norecord": {
				{Variant: unmounted, Text: "All readings of a minute show the volume's directory, no mount in it, and no valid vol_data.json"},
				{Text: "All readings of a minute show no valid vol_data.json beside that mount"},
			},
			"unmount": {{Text: "umount {hostmount}"}, {Text: "unmount the volume's mount point, which findmnt lists"}},
			"count":   {{Text: "grep -c {poduid} /proc/1/mountinfo"}, {Text: "count the lines with this pod's UID in /proc/1/mountinfo"}},
		},
		Meaning: "Beside the mount of each CSI volume, the kubelet keeps a file, vol_data.json, with the names of the driver and of the volume. The " +
			"file is empty or missing after a power failure, or if the disk was full when it was written. Or files below the pod's directory " +
			"were deleted by hand. The kubelet then fails before it calls the driver, ten times a second, and counts no attempt. A kubelet that " +
			"was started since then has forgotten the volume, and tries nothing at all. It reports this in its log only.",
		Seen: []string{
			"The volume is mounted at {mountpoint} (type {fstype})",
			"{norecord}",
			"No process of the pod is left",
		},
		Remedy: "If the volume has a PersistentVolume, note its driver and volumeHandle (kubectl get pv -o yaml). Ask the volume's owner. " +
			"On the node: {unmount}. That fails while the mount is in use; never add -f or -l. " +
			"Then restart the kubelet, which forgets the volume: systemctl restart kubelet. " +
			"Check with the driver that the volume is detached from this node before another node uses it.",
		Danger: "Do not run rm -rf on the volume's directory: while the volume is mounted, that deletes its data. " +
			"The driver does not learn that the volume is unused. Before another node writes to the volume, make sure that this node has released it. " +
			"A force delete leaves the volume mounted.",
		First: "ask the volume's owner if you may unmount it. If yes, follow Fix: note its PersistentVolume first. " +
			"If unsure, wait",
		Avoid: "rm -rf on the volume's directory (its data)",
		Families: []diagnose.Family{{
			Name: unmounted,
			Who:  diagnose.ByNode,
			Meaning: "Nothing is mounted at the volume's directory: its mount failed when the pod started, or it was unmounted by hand. The kubelet " +
				"still takes it for mounted, and fails at the missing record each time.",
			First: "on the node, as root: {count}. If it prints 0, restart the kubelet (containers keep running). " +
				"If not, ask the storage team",
			Remedy: "On the node, check once more that nothing is mounted below the pod's directory: findmnt | grep {poduid}. " +
				"Then: systemctl restart kubelet. It forgets the volume, and the pod terminates; containers keep running. " +
				"Check with the driver that the volume is detached from this node before another node uses it.",
			Danger: "Do not run rm -rf on the volume's directory: if something is mounted there after all, that deletes its data. " +
				"The driver does not learn that the volume is unused. Before another node writes to the volume, make sure that this node has released it.",
		}},
	},
	By: diagnose.By[*evidence.Volume]{
		From: []evidence.Source{evidence.Volumes},
		Of:   volumesLeft,
		Facts: []diagnose.Fact[*evidence.Volume]{
			{
				Says: "In the directory of a CSI volume, vol_data.json is missing, or is not JSON. When the kubelet tears down a volume, " +
					"it removes this file only after the mount.",
				Is: diagnose.If(hasNoRecord),
			},
			{Says: "The deadline is one minute past, and all readings for one minute show the same.", Pod: settledFor},
			{
				Says: "Since the pod reached this stage, the kubelet is not known to have counted a failed attempt at the volume " +
					"(storage_operation_duration_seconds). It does not get that far.",
				Is: diagnose.If(untried), From: []evidence.Source{evidence.Mounts},
			},
			{
				Says: "The volume is mounted. Or there is no mount at its directory or below it, which is family Unmounted.",
				Is:   diagnose.If(mountedOrBare), From: []evidence.Source{evidence.Mounts},
			},
			{Says: "Family Unmounted: the volume's directory has been there all that time."},
			{Says: "Inferred if nothing is mounted: the kubelet removes the file just before that directory, which may be left for another reason."},
		},
		Tell: tellRecordLost,
	},
}

// unmounted is the family of a volume that is not mounted, for example because its mount failed when the pod started.
const unmounted = "Unmounted"

func hasNoRecord(_ *fact.View, v *evidence.Volume) bool { return v.NoRecord }

// untried reports whether the kubelet does not get as far as an attempt at a volume.
func untried(p *fact.View, v *evidence.Volume) bool { return fact.FailedUnmount(p, v) == nil }

// mountedOrBare reports whether a volume is mounted at its directory, or nothing is in it.
func mountedOrBare(p *fact.View, v *evidence.Volume) bool {
	own, in := mountsOf(p, v)
	return own != nil || in == nil
}

// tellRecordLost tells of one volume: if possible, of one that is mounted.
func tellRecordLost(p *fact.View, found []*evidence.Volume) []diagnose.Finding {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if isVolumePoint(m) && slices.ContainsFunc(found, func(v *evidence.Volume) bool { return v.Name == m.Volume && v.Plugin == m.Plugin }) {
			return []diagnose.Finding{{Confidence: diagnose.Proved, Objects: diagnose.Objects{Volumes: []string{m.Volume}, Mount: diagnose.MountOf(p, m)}}}
		}
	}
	about := diagnose.Objects{Volumes: []string{found[0].Name}, PodUID: p.RuntimeUID}
	return []diagnose.Finding{{Confidence: diagnose.Inferred, Family: unmounted, Objects: about}}
}
