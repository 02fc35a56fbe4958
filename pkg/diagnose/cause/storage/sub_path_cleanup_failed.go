package storage

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// SubPathCleanupFailed is a volume whose subPath directories the kubelet fails to remove. It
// has to remove them before it tears down the volume itself.
var SubPathCleanupFailed = &diagnose.Rule{
	Cause:  "SubPathCleanupFailed",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet cannot remove the subPath directories of a volume",
		Who:     diagnose.ByNode,
		Message: "volume {volumes}: the kubelet cannot remove its subPath directories",
		Phrases: map[string][]diagnose.Choice{
			"list": {{Text: "grep '{poduid}/volume-subpaths' /proc/1/mountinfo"}, {Text: "grep volume-subpaths /proc/1/mountinfo (only lines with this pod's UID)"}},
		},
		Meaning: "For each volumeMount with a subPath, the kubelet makes a bind mount below the pod's directory volume-subpaths. It has to remove " +
			"all of them before it tears down the volume. That fails again and again: the mount points to a FUSE or NFS file that is gone, or " +
			"its directory is not empty. The kubelet reports it in its log only.",
		Evidence: []string{
			"Directories are left below the pod's volume-subpaths one minute after the deadline.",
			"Since the pod reached this stage, the kubelet has counted more failed attempts at volumes (storage_operation_duration_seconds, " +
				"operation volume_unmount).",
			"Proved if no other pod's volumes were being torn down on the node at the last increase. Otherwise inferred.",
			"Not reported if the attempts may fail at another volume of the pod.",
			"Not reported if the attempts may fail at another pod's volume, and no directory of this volume shows its plugin.",
			"Not reported if a CSI driver was called: that comes after the subPath directories.",
		},
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
		First: "on the node, as root: {list}. If lines show, umount each path in field 5 (no -f or -l). If none: Fix",
		Avoid: "rm or mv in volume-subpaths (may hold data)",
	},
	Recurs: uncounted(func(v *evidence.Volume) bool { return v.Subpaths > 0 }),
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

// otherwise reports whether the failed attempts may be those at another volume of the pod,
// or get further than the subpaths, which come first. The kubelet counts attempts by plugin,
// and calls a CSI driver only when the subpaths are gone.
func otherwise(p *fact.View, v *evidence.Volume) bool {
	if v.Driver != "" {
		return fact.FailedCall(p, v.Driver) != nil
	}
	return v.Plugin == "" && slices.ContainsFunc(p.Volumes, func(o evidence.Volume) bool {
		return o.Plugin != "" && fact.FailedUnmount(p, &o) != nil
	})
}
