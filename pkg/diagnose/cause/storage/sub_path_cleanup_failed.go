package storage

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// SubPathCleanupFailed is a volume whose subpaths the kubelet fails to remove, which it
// does before it takes the volume itself down.
var SubPathCleanupFailed = &diagnose.Rule{
	Cause:  "SubPathCleanupFailed",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet cannot remove a subPath of a volume",
		Message: "volume {volumes}: the kubelet fails to remove what it made for the volume's subPath mounts; no process of the pod is left",
		Meaning: "For each volumeMount with a subPath the kubelet makes a bind mount below the pod's directory volume-subpaths. " +
			"It has to remove all of them before it takes the volume down. That fails again and again: the mount points to a FUSE or NFS file that is gone, " +
			"or its directory is not empty. The kubelet tells it in its log only.",
		Evidence: "Directories are left below the pod's volume-subpaths a minute after the deadline, and the number of failed attempts at volumes has grown since " +
			"(storage_operation_duration_seconds of the kubelet, operation volume_unmount). It is proved when no other pod's volumes were taken down on the node when it grew last. " +
			"Where attempts may fail at another volume of the pod, or of another pod while no directory of the volume tells its plugin, or a CSI driver was asked, which comes after the subpaths, nothing is said.",
		Remedy: "On the node, look first for what is still mounted: grep '{poduid}/volume-subpaths' /proc/1/mountinfo. " +
			"A line shows: unmount exactly the path in its fifth column, not by force and not lazily. " +
			"No line shows: look at what is in the directory that the kubelet's log names (journalctl -u kubelet, line \"error cleaning subPath mounts\"), " +
			"ask the volume's owner, and move it away. The kubelet removes what is empty within two minutes.",
		Danger: "Never run rm or mv below volume-subpaths while a line shows: that is the volume's data. " +
			"The other directories of that name are of pods that run: compare the pod's UID in the path.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) {
			return diagnose.Result{}
		}
		var volumes []string
		var last *evidence.VolumeCall
		for i := range p.Volumes {
			v := &p.Volumes[i]
			if c := fact.FailedUnmount(p, v); c != nil && v.Subpaths > 0 && !otherwise(p, v) {
				volumes = append(volumes, v.Name)
				last = c
			}
		}
		if volumes == nil {
			return diagnose.Result{}
		}
		return diagnose.Found(diagnose.Finding{Confidence: confidence(p, last, volumes[:1]), Objects: diagnose.Objects{Volumes: volumes, PodUID: p.RuntimeUID}})
	},
}

// otherwise reports whether the attempts that fail may be those at another volume of
// the pod, or get further than the subpaths, which come first: the kubelet counts them
// by plugin, and asks a CSI driver only when the subpaths are gone.
func otherwise(p *fact.View, v *evidence.Volume) bool {
	if v.Driver != "" {
		return fact.FailedCall(p, v.Driver) != nil
	}
	return v.Plugin == "" && slices.ContainsFunc(p.Volumes, func(o evidence.Volume) bool {
		return o.Plugin != "" && fact.FailedUnmount(p, &o) != nil
	})
}
