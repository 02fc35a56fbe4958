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
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Mounts, evidence.Holders, evidence.Events},
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
		Evidence: []string{
			"The kubelet has reported at least twice that it could not unmount the image volumes of this sandbox (Events of this pod with " +
				"reason FailedKillPod). The reports came since the deletion, over eight seconds or more.",
			"The error names a volume that is busy. This volume is still in the host's mount table, below image-volumes and the sandbox's ID.",
			"A process in the host's mount namespace has used this very mount for ten seconds or more. It has a file open there (mnt_id in " +
				"/proc/PID/fdinfo), or its working directory, root directory or program.",
			"This process was started before the kubelet's last report.",
			"If there is none, a process in another mount namespace uses the copy that the kernel unmounts together with this mount. A " +
				"DaemonSet with mountPropagation HostToContainer has such a copy.",
			"Inferred: any user who may create Events in the pod's namespace can have created these, for a pod that hangs for another reason.",
			"Not reported if a CNI plugin of the pod has been running for ten seconds: while one hangs, containerd has not reached the volumes.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		f := fact.SandboxStop(p)
		if f == nil || f.Step != fact.StepImageMounts || !strings.Contains(f.Error, busy) || !f.GoesOn(p) {
			return diagnose.Result{}
		}
		var first *evidence.Holder
		n := 0
		for i := range p.Holders {
			h := &p.Holders[i]
			if h.Since.IsZero() || p.Time.Sub(h.Since) < fact.SlowDevice || unmounts(&h.Task) || !inTheWay(p, f, h) {
				continue
			}
			n++
			if first == nil || h.Since.Before(first.Since) {
				first = h
			}
		}
		if first == nil {
			return diagnose.Result{}
		}
		out := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, &first.Task), Via: first.Via, Alike: n - 1, Mount: diagnose.MountOf(p, imageMount(p, first.MountID)),
		}}
		if first.Owner == "" {
			out.Objects.Process.Unit = fact.UnitOf(first.Cgroup)
		}
		if fact.Essential(&first.Task) {
			out.Variants = []string{diagnose.Essential}
		}
		return diagnose.Found(out)
	},
}

// inTheWay reports whether a process uses the very volume that could not be unmounted, which the error
// names, and was there at the kubelet's last report. A mount inside the volume keeps it busy whether
// it is used or not. containerd's path may lead through /var/run, which is a link.
func inTheWay(p *fact.View, f *fact.SandboxFailure, h *evidence.Holder) bool {
	m := imageMount(p, h.MountID)
	return m != nil && strings.HasPrefix(strings.Replace(f.Error, `"/var/run/`, `"/run/`, 1), `failed to unmount image volume component "`+m.HostPoint+`"`) &&
		(h.Probe == nil || !h.Probe.Started.After(f.Last))
}

// busy is how Go words EBUSY.
const busy = "device or resource busy"

// imageMount returns the image volume of the pod that is mounted under that number, nil when
// there is none.
func imageMount(p *fact.View, id int) *evidence.Mount {
	i := slices.IndexFunc(p.ImageMounts, func(m evidence.Mount) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return &p.ImageMounts[i]
}
