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
		Title:   "the kubelet cannot remove the subPath directories of a volume",
		Message: "volume {volumes}: the kubelet cannot remove its subPath directories",
		Phrases: map[string][]diagnose.Choice{
			"list": {{Text: "grep '{poduid}/volume-subpaths' /proc/1/mountinfo"}, {Text: "grep volume-subpaths /proc/1/mountinfo (only lines with this pod's UID)"}},
		},
		Meaning: "For each volumeMount with a subPath the kubelet makes a bind mount below the pod's directory volume-subpaths. " +
			"It has to remove all of them before it takes the volume down. That fails again and again: the mount points to a FUSE or NFS file that is gone, " +
			"or its directory is not empty. The kubelet tells it in its log only.",
		Evidence: []string{"Directories are left below the pod's volume-subpaths a minute after the deadline, and the number of failed attempts at volumes has grown since " +
			"(storage_operation_duration_seconds of the kubelet, operation volume_unmount). It is proved when no other pod's volumes were taken down on the node when it grew last. " +
			"Where attempts may fail at another volume of the pod, or of another pod while no directory of the volume tells its plugin, or a CSI driver was asked, which comes after the subpaths, nothing is said."},
		Seen: []string{
			"Directories of {volumes} are left below the pod's volume-subpaths",
			"The kubelet has counted new failed unmount attempts",
			"No process of the pod is left",
		},
		Remedy: "On the node, first look for what is still mounted: {list}. " +
			"If a line shows, umount exactly the path in its fifth column, without -f or -l. " +
			"If no line shows, read which directory the kubelet names: journalctl -u kubelet --since -10min | grep 'cleaning subPath mounts'. " +
			"Ask the volume's owner before you move its content away. The kubelet removes the empty directory within two minutes.",
		Danger: "Never run rm or mv below volume-subpaths while a line shows: it is the volume's data. " +
			"Other directories named volume-subpaths belong to running pods: compare the pod's UID in the path.",
		First: "on the node: {list}. If it prints lines: umount each mount point (field 5). If not: ask the pod's owner whether the files there may go",
		Avoid: "rm or mv while a line shows (it is the volume's data)",
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
