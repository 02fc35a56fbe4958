package storage

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// VolumeDirTeardownFailed is a volume that is a directory of the node's own disk,
// which the kubelet fails to remove.
var VolumeDirTeardownFailed = &diagnose.Rule{
	Cause:  "VolumeDirTeardownFailed",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "the kubelet cannot remove the directory of a volume",
		Who:     diagnose.ByNode,
		Message: "volume {volumes}: {why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: inside, Text: "{innertype} is mounted inside, so the kubelet cannot remove its directory (EBUSY). Each retry can delete files there"},
				{Variant: oneOf, Text: "the kubelet cannot remove the directory of at least one of them; nothing is mounted there"},
				{Variant: mountLost, Text: "it is no longer mounted, and the kubelet cannot remove its directory{others}, probably because of files in it"},
				{Text: "the kubelet cannot remove its directory{others}; nothing is mounted there"},
			},
			"others": orOthers,
			"mount":  {{Text: "grep {hostmount}/ /proc/1/mountinfo"}, {Text: "findmnt"}},
		},
		Meaning: "The volume is a plain directory below the kubelet's, as an emptyDir is. When the containers have exited, the kubelet deletes what " +
			"is inside and then the directory. That fails again and again: something is mounted inside, a file is immutable (chattr +i), or the " +
			"node's file system is read-only. The kubelet reports it in its log only.",
		Seen: []string{
			"The {innertype} mount inside is at {innerpoint}",
			"The kubelet has counted new failed unmount attempts (plugin {plugin})",
			"No process of the pod is left",
		},
		Remedy: "On the node: " + teardownErrors + ". The error names the file. " +
			"Repair what it reports, such as a read-only disk or an immutable file (ask the volume's owner before chattr -i). " +
			"The kubelet removes the directory within two minutes.",
		Danger: "Check that nothing is mounted inside before you delete anything by hand: what is inside a mount is data of another file system. " +
			"A force delete leaves the directory on the node.",
		First: "on the node, 'TearDown failed' in the kubelet's log (journalctl -u kubelet) names the file. " +
			"Ask the volume's owner. If the disk is read-only: Fix",
		Avoid: "deleting files there by hand (may be data)",
		Families: []diagnose.Family{{
			Name: inside,
			Who:  diagnose.ByNode,
			Meaning: "Something is mounted inside the directory: by a container with mountPropagation Bidirectional, by docker or a FUSE daemon in the " +
				"pod, or by hand. The kubelet deletes what is inside that mount too, at each attempt.",
			Remedy: "On the node: {mount} shows what is mounted there (field 5). Copy its files away without delay: each retry can delete " +
				"some, and a tmpfs loses them when it is unmounted. " +
				"Ask the owner of that mount, then unmount it without -f or -l. " +
				"The kubelet removes the directory within two minutes.",
			Danger: "The kubelet deletes the files inside that mount at each attempt, unless it is read-only. Do not run rm -rf there yourself. " +
				"A force delete leaves the directory on the node.",
			First: "now, on the node, as root: copy the files in that mount away (Fix shows where). " +
				"If the mount's owner agrees, unmount it",
			Avoid: "rm -rf in the volume (deletes mounted data)",
		}, {
			Name: mountLost,
			Meaning: "The volume was mounted there, and is not any more: it was unmounted by hand or by the kubelet. The kubelet then removes the " +
				"directory, which has to be empty. Files written there since then are on the node's own disk, and not in the volume.",
			Remedy: "On the node: " + teardownErrors + ". The error names the directory. Check with findmnt that nothing is mounted there. " +
				"Files in it are on the node's own disk, not in the volume. Ask the volume's owner, then move them to where they belong. " +
				"The kubelet removes the empty directory within two minutes.",
			Danger: "Check that nothing is mounted there before you delete anything (findmnt): what is inside a mount is the volume's data. " +
				"A force delete leaves the directory on the node, with the files in it.",
			First: "on the node, 'TearDown failed' in the kubelet's log names the directory. " +
				"Ask the volume's owner where its files belong, then follow Fix",
			Avoid: "rm of those files (maybe the only copy)",
		}},
	},
	Recurs: uncounted(func(v *evidence.Volume) bool { return !v.Block && v.Driver == "" && v.Subpaths == 0 }),
	By: diagnose.By[*evidence.Volume]{
		From: []evidence.Source{evidence.Volumes},
		Of:   volumesLeft,
		Facts: []diagnose.Fact[*evidence.Volume]{
			{Says: "The volume is no block device.", Is: diagnose.If(isNoDevice)},
			{Says: "Its directory is below that of a plugin other than CSI: the kubelet removes it itself.", Is: diagnose.If(isOwn)},
			{Says: "No subPath directory of the volume is left. The kubelet removes those first.", Is: diagnose.If(noSubpaths)},
			{Says: stillThere, Pod: settledFor},
			{
				Says: "Since the pod reached this stage, the kubelet has counted more failed attempts at volumes of its plugin " +
					"(storage_operation_duration_seconds, operation volume_unmount). It is not seen to delete files there.",
				Is: diagnose.If(unmountFails), From: []evidence.Source{evidence.Mounts, evidence.VolumeCalls},
			},
			{Says: "Nothing is mounted at the directory itself.", Is: diagnose.If(isUnmounted), From: []evidence.Source{evidence.Mounts}},
			{Says: "Proved if the mount table shows a mount inside the directory."},
			{Says: "Also proved if only this volume of the plugin is left, and the node was tearing down no other pod's volumes at the last increase. " +
				"Otherwise inferred."},
		},
		Tell: tellTeardown,
	},
}

func isNoDevice(_ *fact.View, v *evidence.Volume) bool { return !v.Block }

// isOwn reports whether the kubelet has to remove the directory of a volume itself, as far as it is known whose it is.
func isOwn(_ *fact.View, v *evidence.Volume) bool {
	return v.Plugin != "" && v.Plugin != "kubernetes.io~csi" && v.Driver == ""
}

func noSubpaths(_ *fact.View, v *evidence.Volume) bool { return v.Subpaths == 0 }

func isUnmounted(p *fact.View, v *evidence.Volume) bool {
	own, _ := mountsOf(p, v)
	return own == nil
}

// tellTeardown tells of the first volume with a mount inside, which is certain; else of those of the first plugin, because the kubelet counts
// by plugin.
func tellTeardown(p *fact.View, found []*evidence.Volume) []diagnose.Finding {
	for _, v := range found {
		if _, in := mountsOf(p, v); in != nil {
			o := diagnose.Objects{Volumes: []string{v.Name}, Plugin: strings.ReplaceAll(v.Plugin, "~", "/"), Inner: diagnose.MountOf(p, in), Mount: directory(in)}
			return []diagnose.Finding{{Family: inside, Confidence: diagnose.Proved, Objects: o}}
		}
	}
	first := found[0]
	last := fact.FailedUnmount(p, first)
	f := diagnose.Finding{Variants: whose(p, last), Objects: diagnose.Objects{Plugin: strings.ReplaceAll(first.Plugin, "~", "/")}}
	for _, v := range found {
		if v.Plugin == first.Plugin {
			f.Objects.Volumes = append(f.Objects.Volumes, v.Name)
		}
	}
	if len(f.Objects.Volumes) > 1 {
		// The kubelet counts by plugin, and may still be at work in the others.
		f.Variants = append(f.Variants, oneOf)
	}
	if len(f.Objects.Volumes) == 1 && !plainDirectory(first.Plugin) {
		f.Family = mountLost
	}
	f.Confidence = confidence(p, last, f.Objects.Volumes)
	return []diagnose.Finding{f}
}

// mountLost is the family of a volume that is mounted where the kubelet has to remove a directory.
const mountLost = "MountLost"

// oneOf is the variant of several volumes where at least one fails.
const oneOf = "OneOf"

// plainDirectory reports whether a volume of a Kubernetes plugin may be a plain directory with files in it. Volumes of
// the other plugins are mounts (pkg/volume).
func plainDirectory(plugin string) bool {
	switch plugin {
	case "kubernetes.io~nfs", "kubernetes.io~iscsi", "kubernetes.io~fc", "kubernetes.io~rbd", "kubernetes.io~cephfs",
		"kubernetes.io~local-volume", "kubernetes.io~portworx-volume":
		return false
	}
	return true
}

// directory describes the volume's directory, which is no mount itself. The path inside the
// volume is left out: the pod chooses it.
func directory(in *evidence.Mount) *diagnose.Mount {
	dir := "/volumes/" + in.Plugin + "/" + in.Volume
	before, _, _ := strings.Cut(in.Point, dir+"/")
	return &diagnose.Mount{Volume: in.Volume, Point: before + dir, HostPoint: before + dir}
}

// mountsOf returns the mount of a volume, and one that is inside of it.
func mountsOf(p *fact.View, v *evidence.Volume) (own, in *evidence.Mount) {
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if m.Volume != v.Name || m.Plugin != v.Plugin {
			continue
		}
		if isVolumePoint(m) {
			own = m
		} else {
			in = m
		}
	}
	return own, in
}
