package runtime

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of SandboxStopFailing: the step of stopping a sandbox that fails, where that is
// not its own process (internal/cri/server/sandbox_stop.go in containerd, stopPodSandbox).
const (
	networkNamespace = "NetworkNamespace"
	imageVolume      = "ImageVolume"
)

// unmountFails is how an error begins that is about an image volume's mount
// (internal/cri/server/container_image_mount.go, cleanupImageMounts).
const unmountFails = "failed to unmount image volume component \""

// usersAfter is for how long the pod has to be past its deadline, and at the same stage, before it is told that an
// image volume cannot be unmounted. Until then those may not be known that use it (ImageVolumeUnmountBusy): they
// are looked for past the deadline, in rounds that are up to ten seconds apart, and believed after SlowDevice.
const usersAfter = 3 * fact.SlowDevice

// SandboxStopFailing is a containerd that answers with an error when it is to stop the pod's
// sandbox, again and again, and not because of the network's plugins or of runc.
var SandboxStopFailing = &diagnose.Rule{
	Cause:  "SandboxStopFailing",
	Phases: []diagnose.Phase{diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers},
	Partly: []evidence.Source{evidence.Events},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd fails to stop the pod's sandbox",
		Message: "containerd cannot {step}: {error}",
		Phrases: map[string][]diagnose.Choice{"step": {
			{Variant: networkNamespace, Text: "remove the pod's network namespace"},
			{Variant: imageVolume, Text: "unmount the pod's image volume"},
			{Text: "stop the pod's sandbox"},
		}},
		Meaning: "When the containers have ended, containerd ends the sandbox's process, has the network taken down, removes the network namespace, and unmounts image volumes. " +
			"One of these steps fails each time, and the pod stays until all of them have succeeded.",
		Evidence: []string{"Either containerd itself has not told the status of the sandbox for ten seconds, because it cannot remove the file of its network namespace. Or the kubelet has said at least twice, over eight seconds or more, since the deletion and not longer ago than six minutes, in an Event of reason FailedKillPod about this pod, and once since something of it has changed on the node, " +
			"that this step of stopping this sandbox failed; the number of the sandbox is compared with containerd's. " +
			"Of an image volume it is told after thirty seconds at this stage past the deadline: by then those are known that use it. " +
			"No process of the pod's containers lives, and containerd calls all of them exited. " +
			"A request that ran out of time is not told, nor a runtime that fails to signal (RuntimeCommandFailing), nor a network that is not taken down (CNIDelFailing), nor anything while a CNI plugin of the pod has run for ten seconds. " +
			"Whoever may create Events in the pod's namespace can have made the Event, so that way it is inferred."},
		Seen:  []string{"No process of the pod's containers is left, and the CRI status says that all have exited", "This step of the sandbox's stop fails each time with {error}"},
		First: "on the node: journalctl -u containerd | grep StopPodSandbox shows the whole error; repair what it names",
		Avoid: "killing the shim, deleting below /run/containerd (leaves remains)",
		Remedy: "On the node: journalctl -u containerd | grep StopPodSandbox shows the whole error. Repair what it names. " +
			"The kubelet tries again every few seconds, and its next attempt then succeeds. Nothing else has to be done.",
		Danger: "Do not kill the shim, and do not remove anything below /run/containerd by hand: containerd would lose what it still has to clean up. " +
			"A force delete leaves the sandbox on the node with no API object tracking it.",
		Families: []diagnose.Family{
			{
				Name: networkNamespace,
				Meaning: "A network namespace is kept by a file in /run/netns that it is mounted on. The network's plugins have done their part; " +
					"containerd unmounts the namespace then and removes the file, and one of the two fails: the file or its directory cannot be written (the attribute i, a mount that is read-only), " +
					"or, on kernels before 3.18, the mount is kept by a container that has the node's / or /run mounted.",
				First: "on the node: lsattr and findmnt -T on that file; undo attribute i (chattr -i) or a read-only mount",
				Avoid: "deleting other files there (cuts off their pods)",
				Remedy: "On the node: the error names the file. lsattr shows whether the file, or its directory (lsattr -d), has the attribute i; chattr -i removes it. " +
					"findmnt -T shows whether its file system is read-only. Repair that. " +
					"The kubelet tries again every few seconds, and its next attempt then succeeds.",
				Danger: "Do not unmount or delete files of other pods in /run/netns: that cuts off their network. " +
					"A force delete leaves the namespace on the node with no API object tracking it.",
			},
			{
				Name: imageVolume,
				Meaning: "The pod has a volume of the type image. containerd mounts it below /run/containerd/io.containerd.grpc.v1.cri/image-volumes, and unmounts it when the sandbox has ended. " +
					"A process of the node that keeps it busy is a cause of its own (ImageVolumeUnmountBusy).",
				First: "on the node: fuser -vMm on that directory shows what uses it, findmnt -R what is mounted inside",
				Avoid: "umount -l on it (containerd then cannot remove its snapshot)",
				Remedy: "On the node: the error names the directory. If it says that the resource is busy, fuser -vMm with that directory shows what uses it. " +
					"findmnt -R with it shows what is mounted inside. Once its owner agrees, end that use. " +
					"The kubelet tries again every few seconds, and its next attempt then succeeds.",
				Danger: "Do not use umount -l: it hides the mount while its files stay in use, and containerd then cannot remove its snapshot. " +
					"A force delete leaves it on the node with no API object tracking it.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		if err := namespaceLeft(p); err != "" {
			return diagnose.Found(diagnose.Finding{Family: networkNamespace, Confidence: diagnose.Proved, Objects: diagnose.Objects{Error: err}})
		}
		f := fact.SandboxStop(p)
		if f == nil || fact.Missing(p, evidence.Events) || f.TimedOut() || !f.GoesOn(p) || containersLeft(p) {
			return diagnose.Result{}
		}
		if !f.Last.After(p.UnchangedSince) {
			return diagnose.Result{} // what was in the way may have ended since
		}
		out := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Error: f.Error}}
		switch f.Step {
		case fact.StepNamespace:
			out.Family = networkNamespace
		case fact.StepImageMounts:
			if min(p.Overdue(), p.Time.Sub(p.StageSince)) < usersAfter {
				return diagnose.Result{}
			}
			out.Family = imageVolume
			if rest, ok := strings.CutPrefix(f.Error, unmountFails); ok {
				// It names the directory once more.
				if _, rest, ok := strings.Cut(rest, "\": "); ok {
					out.Objects.Error = rest
				}
			}
		case fact.StepSandbox:
			if strings.Contains(f.Error, afterKill) {
				return diagnose.Result{}
			}
		default:
			return diagnose.Result{}
		}
		return diagnose.Found(out)
	},
}

// namespaceLeft returns why containerd cannot remove the file of a network namespace that it has
// unmounted, "" when that is not so. It tries that each time that it is asked for the sandbox's
// status, and answers with the error (NetNS.Closed, pkg/netns/netns_linux.go). That it cannot even
// open the file, as without descriptors, is another error.
func namespaceLeft(p *fact.View) string {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind != evidence.Sandbox || c.StatusErrorSince.IsZero() || p.Time.Sub(c.StatusErrorSince) < fact.SlowDevice {
			continue
		}
		if _, err, ok := strings.Cut(c.StatusError, "check network namespace closed: remove netns: "); ok && !containersLeft(p) {
			return "remove netns: " + err
		}
	}
	return ""
}
