package storage

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ImageVolumeUnmountBusy is a volume of type image that containerd cannot unmount, because a
// process uses it.
//
// containerd mounts such a volume once for the pod, and unmounts it without MNT_DETACH as the
// last step of stopping the sandbox (internal/cri/server/container_image_mount.go,
// cleanupImageMounts).
var ImageVolumeUnmountBusy = &diagnose.Rule{
	Cause:  "ImageVolumeUnmountBusy",
	Phases: []diagnose.Phase{diagnose.Sandbox},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "an image volume cannot be unmounted: it is in use",
		Who:     diagnose.ByNode,
		Message: "containerd cannot unmount an image volume of the pod (EBUSY): {process} uses it ({via}){more}",
		Phrases: map[string][]diagnose.Choice{
			"more": {{Text: ", and {alike} more like it"}, {Text: ""}},
			"first": {
				{Variant: diagnose.Essential, Text: keepServing},
				{Text: "{askowner}"},
			},
			"harm": {{Variant: diagnose.Essential, Text: notEnd}, {Text: "umount -l (leaves its snapshot behind)"}},
			"end": {
				{Variant: diagnose.Essential, Text: "It serves other pods or the whole node: do not stop it. Find out what it uses there. " +
					"Restart its service when the other pods allow it"},
				{Text: "Ask its owner to leave the volume. If it is a leftover, end it, on the node: {terminate}"},
			},
			"others": {{Text: " To list it and the {alike} more, on the node: fuser -vm {hostmount}."}, {Text: ""}},
		},
		Meaning: "The pod has a volume of type image, which containerd mounts on the node from the image's layers. When the sandbox has stopped, " +
			"containerd unmounts it. A process on the node uses it: a shell that has changed into the directory, a security scanner, a backup. " +
			"The kernel returns EBUSY, and the pod stays.",
		Seen: []string{
			"The image volume is mounted at {mountpoint}",
			"Readings at least 10 s apart show {process} on it: {via}",
			"The kubelet has reported the failed unmount at least twice (Event FailedKillPod)",
		},
		Remedy: "Find out what {process} is: on the node, systemctl status {pid}. {end}.{others} The kubelet's next attempt then succeeds.",
		Danger: "umount -l hides the mount while its files stay in use; containerd then cannot remove its snapshot. " +
			"A force delete leaves the mount and the sandbox on the node with no API object tracking them.",
		First: "{first}",
		Avoid: "{harm}",
	},
	By: diagnose.By[holder]{
		From: []evidence.Source{evidence.Processes, evidence.Mounts, evidence.Holders},
		Of:   holdersOfImages,
		Facts: slices.Concat([]diagnose.Fact[holder]{
			{Says: "Since the deletion, the kubelet has reported that it could not unmount the image volumes of this sandbox (Events of this pod with " +
				"reason FailedKillPod).", Pod: diagnose.IfPod(imageUnmountFails), From: saysWhy},
			{Says: "The error is that a device or resource is busy (EBUSY).", Pod: diagnose.IfPod(isBusy), From: saysWhy},
		}, diagnose.StopFails(failsFor, saysWhy...), []diagnose.Fact[holder]{
			diagnose.BeforeClaims(failsFor, saysWhy...),
			{Says: "The error names the volume that the process uses. It is in the host's mount table, below image-volumes and the sandbox's ID.",
				Is: diagnose.If(isNamed), From: saysWhy},
			isNoUnmount,
			{
				Says: "The process was started before the kubelet's last report.",
				Is:   diagnose.IfLater(wasThereAtReport, diagnose.Retry), From: saysWhy,
			},
			{
				Says: "For ten seconds or more, readings have shown the process on this very mount: a file that it has open there (mnt_id in " +
					"/proc/PID/fdinfo), or its working directory, root directory or program.",
				Is: usesForLong,
			},
			{Says: "Processes in the host's mount namespace come first. If there is none, a process in another mount namespace uses the copy that the " +
				"kernel unmounts together with this mount. A DaemonSet with mountPropagation HostToContainer has such a copy."},
			{Says: "Inferred: any user who may create Events in the pod's namespace can have created these, for a pod that hangs for another reason."},
			{Says: "While a CNI plugin of the pod hangs (CNIDelHanging), containerd has not reached the volumes, and this is not reported."},
		}),
		Tell: tellImageBusy,
	},
}

// saysWhy are the sources that tell why a sandbox cannot be stopped.
var saysWhy = []evidence.Source{evidence.Events, evidence.Containers}

func holdersOfImages(p *fact.View) []holder { return holdersOf(p, p.ImageMounts) }

// imageFailure returns the kubelet's last failure to stop the pod's sandbox where that was at its image volumes, else nil.
func imageFailure(p *fact.View) *fact.SandboxFailure {
	if f := p.SandboxStop; f != nil && f.Step == fact.StepImageMounts {
		return f
	}
	return nil
}

func imageUnmountFails(p *fact.View) bool { return imageFailure(p) != nil }

func isBusy(p *fact.View) bool {
	f := imageFailure(p)
	return f != nil && strings.Contains(f.Error, busy)
}

func failsFor(p *fact.View, _ holder) *fact.SandboxFailure { return imageFailure(p) }

// isNamed reports whether the error names the very volume that a process uses. A mount inside the volume keeps it busy whether it is used or not.
// containerd's path may lead through /var/run, which is a link.
func isNamed(p *fact.View, h holder) bool {
	f, says := imageFailure(p), `failed to unmount image volume component "`+h.on.HostPoint+`"`
	return f != nil && strings.HasPrefix(strings.Replace(f.Error, `"/var/run/`, `"/run/`, 1), says)
}

// wasThereAtReport reports whether a process was there when the kubelet failed last: of one that has come later, the next report tells.
func wasThereAtReport(p *fact.View, h holder) bool {
	f := imageFailure(p)
	return f != nil && (h.Probe == nil || !h.Probe.Started.After(f.Last))
}

// tellImageBusy tells of the process that has used the volume for longest.
func tellImageBusy(p *fact.View, found []holder) []diagnose.Finding {
	first := slices.MinFunc(found, func(a, b holder) int { return a.Since.Compare(b.Since) })
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Process: holderOf(p, first), Via: first.Via, Alike: len(found) - 1, Mount: diagnose.MountOf(p, first.on),
	}}
	if fact.Essential(&first.Task) {
		f.Variants = []string{diagnose.Essential}
	}
	return []diagnose.Finding{f}
}

// busy is how Go words EBUSY.
const busy = "device or resource busy"
