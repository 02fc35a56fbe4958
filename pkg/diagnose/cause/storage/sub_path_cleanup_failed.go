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
	By: diagnose.By[*evidence.Volume]{
		From: []evidence.Source{evidence.Volumes},
		Of:   volumesLeft,
		Facts: []diagnose.Fact[*evidence.Volume]{
			{Says: "Directories of the volume are left below the pod's volume-subpaths.", Is: diagnose.If(hasSubpaths)},
			{Says: "They are left one minute after the deadline, and all readings of that minute show the same.", Pod: settledFor},
			{
				Says: "Since the pod reached this stage, the kubelet has counted more failed attempts at volumes of its plugin " +
					"(storage_operation_duration_seconds, operation volume_unmount). If no directory of the volume shows its plugin, attempts at " +
					"any volumes count that cannot be another pod's.",
				Is: diagnose.If(unmountFails), From: []evidence.Source{evidence.Mounts, evidence.VolumeCalls},
			},
			{
				Says: "These attempts cannot fail at another volume of the pod: a directory of this volume shows its plugin, or none of the others' plugins " +
					"has failed.",
				Is: diagnose.If(noOtherFails), From: []evidence.Source{evidence.Mounts, evidence.VolumeCalls},
			},
			{
				Says: "If a CSI driver has the volume, the kubelet has counted no failed call to it. It calls the driver only when the subPath " +
					"directories are gone.",
				Is: diagnose.If(driverUnfailed), From: []evidence.Source{evidence.VolumeCalls},
			},
			{Says: "Proved if no other pod's volumes were being torn down on the node at the last increase. Otherwise inferred."},
		},
		Tell: tellSubpaths,
	},
}

func hasSubpaths(_ *fact.View, v *evidence.Volume) bool { return v.Subpaths > 0 }

// noOtherFails reports whether the failed attempts are not those at another volume of the pod. The kubelet counts attempts by plugin.
func noOtherFails(p *fact.View, v *evidence.Volume) bool {
	return v.Plugin != "" || v.Driver != "" || !slices.ContainsFunc(p.Volumes, func(o evidence.Volume) bool {
		return o.Plugin != "" && fact.FailedUnmount(p, &o) != nil
	})
}

// driverUnfailed reports whether the failed attempts do not get further than the subpaths, which come first.
func driverUnfailed(p *fact.View, v *evidence.Volume) bool {
	return v.Driver == "" || fact.FailedCall(p, v.Driver) == nil
}

// tellSubpaths tells of all volumes together.
func tellSubpaths(p *fact.View, found []*evidence.Volume) []diagnose.Finding {
	var volumes []string
	for _, v := range found {
		volumes = append(volumes, v.Name)
	}
	last := fact.FailedUnmount(p, found[len(found)-1])
	return []diagnose.Finding{{Confidence: confidence(p, last, volumes[:1]), Objects: diagnose.Objects{Volumes: volumes, PodUID: p.RuntimeUID}}}
}
