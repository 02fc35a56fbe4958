package runtime

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of SandboxStopFailing: the step that fails, if it is not about the sandbox's own process
// (internal/cri/server/sandbox_stop.go in containerd, stopPodSandbox).
const (
	networkNamespace = "NetworkNamespace"
	imageVolume      = "ImageVolume"
)

// unmountFails is how an error begins that is about an image volume's mount
// (internal/cri/server/container_image_mount.go, cleanupImageMounts).
const unmountFails = "failed to unmount image volume component \""

// usersAfter is how long the pod has to be past its deadline, and at the same stage, before an image volume is reported
// that cannot be unmounted. Until then, the processes that use it may not be known (ImageVolumeUnmountBusy). nodeagent
// looks for them past the deadline, in rounds up to ten seconds apart, and believes them after SlowDevice.
const usersAfter = 3 * fact.SlowDevice

// SandboxStopFailing is a containerd that returns an error each time it is to stop the pod's sandbox, and the reason is
// neither a CNI plugin nor runc.
var SandboxStopFailing = &diagnose.Rule{
	Cause:  "SandboxStopFailing",
	Phases: []diagnose.Phase{diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers},
	Partly: []evidence.Source{evidence.Events},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd fails to stop the pod's sandbox",
		Who:     diagnose.ByNode,
		Message: "containerd cannot {step}: {error}",
		Phrases: map[string][]diagnose.Choice{"step": {
			{Variant: networkNamespace, Text: "remove the pod's network namespace"},
			{Variant: imageVolume, Text: "unmount the pod's image volume"},
			{Text: "stop the pod's sandbox"},
		}},
		Meaning: "When the containers have exited, containerd stops the sandbox's process, has the network torn down, removes the network namespace, " +
			"and unmounts image volumes. One of these steps fails each time. The pod stays until all of them have succeeded.",
		Evidence: []string{
			"No process of the pod's containers is alive, and containerd's CRI status says that all of them have exited.",
			"Either containerd has not reported the sandbox's status for ten seconds, because it cannot remove the file of its network " +
				"namespace.",
			"Or the kubelet has reported at least twice that this step of stopping the sandbox failed (Events of this pod with reason " +
				"FailedKillPod). The reports came since the deletion, over eight seconds or more.",
			"The last of these reports is at most six minutes old, and came after the last change of the pod on the node. The sandbox's ID in " +
				"it is compared with containerd's.",
			"An image volume is reported after thirty seconds at this stage past the deadline. By then, the processes that use it are known.",
			"If it rests on Events, it is inferred: any user who may create Events in the pod's namespace can have created these.",
			"Not reported if the request timed out, if a runtime fails to signal (RuntimeCommandFailing), or if the network is not torn down " +
				"(CNIDelFailing).",
			"Not reported if a CNI plugin of the pod has been running for ten seconds.",
		},
		Seen: []string{"No process of the pod's containers is left, and the CRI status says that all have exited", "This step of the " +
			"sandbox's stop fails each time with {error}"},
		First: "on the node: repair what the error names. containerd's log has it whole (grep StopPodSandbox). " +
			"The kubelet retries within seconds",
		Avoid: "killing the shim, deleting in /run/containerd (breaks the cleanup)",
		Remedy: "On the node: journalctl -u containerd | grep StopPodSandbox shows the whole error. Repair what it names. " +
			"The kubelet tries again every few seconds, and its next attempt then succeeds. Nothing else has to be done.",
		Danger: "Do not kill the shim, and do not remove anything below /run/containerd by hand: containerd would lose what it still has to clean up. " +
			"A force delete leaves the sandbox on the node with no API object tracking it.",
		Families: []diagnose.Family{
			{
				Name: networkNamespace,
				Meaning: "A network namespace is kept by a file in /run/netns on which it is mounted. The CNI plugins have done their part. containerd then " +
					"unmounts the namespace and removes the file, and one of the two fails. Either the file or its directory cannot be written (the " +
					"attribute i, a read-only mount). Or, on kernels before 3.18, a container that has the node's / or /run mounted keeps the mount.",
				First: "on the node, as root, for the error's FILE: if lsattr FILE shows i: chattr -i FILE. If findmnt -T FILE shows ro: " +
					"remount rw. If neither: Fix",
				Avoid: "deleting other pods' files there (cuts off their network)",
				Remedy: "On the node: the error names the file. lsattr shows whether the file, or its directory (lsattr -d), has the attribute i; chattr -i removes it. " +
					"findmnt -T shows whether its file system is read-only. Repair that. " +
					"The kubelet tries again every few seconds, and its next attempt then succeeds.",
				Danger: "Do not unmount or delete files of other pods in /run/netns: that cuts off their network. " +
					"A force delete leaves the namespace on the node with no API object tracking it.",
			},
			{
				Name: imageVolume,
				Meaning: "The pod has a volume of type image. containerd mounts it below /run/containerd/io.containerd.grpc.v1.cri/image-volumes, and " +
					"unmounts it when the sandbox has stopped. A process on the node that keeps it busy is a separate cause (ImageVolumeUnmountBusy).",
				First: "on the node, as root, for the error's DIRECTORY: fuser -vMm DIRECTORY shows what uses it; ask that owner to stop it. " +
					"If nothing: findmnt -R DIRECTORY",
				Avoid: "umount -l (leaves its snapshot behind)",
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
			return diagnose.Result{} // the reason may be gone since
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
// unmounted, "" when it can. It tries at each request for the sandbox's status, and returns the error
// (NetNS.Closed, pkg/netns/netns_linux.go). If it cannot even open the file, as without free
// descriptors, that is another error.
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
