package runtime

import (
	"fmt"
	"slices"
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
	By: diagnose.Ways{
		diagnose.By[*evidence.Container]{
			Title: "While containerd cannot report the sandbox's status",
			From:  []evidence.Source{evidence.Containers},
			Of:    sandboxesOf,
			Facts: []diagnose.Fact[*evidence.Container]{
				{Says: "containerd reports no status of the sandbox, because it cannot remove the file of its network namespace.",
					Is: diagnose.If(keepsNamespace)},
				{Says: "This has been so for ten seconds.", Is: keepsForLong},
				{Says: noneLivesSays, Pod: diagnose.IfPod(noneLives), From: []evidence.Source{evidence.Processes}},
				{Says: noneLeft, Pod: diagnose.IfPod(allExited)},
			},
			Tell: diagnose.First(tellNamespace),
		},
		diagnose.By[stopFailure]{
			Title: "By the kubelet's Events",
			From:  []evidence.Source{evidence.Events, evidence.Containers},
			Of:    stopFailures,
			Facts: slices.Concat([]diagnose.Fact[stopFailure]{
				{Says: "The kubelet has reported since the deletion that a step of stopping the sandbox failed (Events of this pod with reason FailedKillPod). " +
					"The sandbox's ID in the report is compared with containerd's."},
				{Says: "The step is to stop the sandbox's process, to remove its network namespace, or to unmount an image volume. " +
					"If the network is not torn down, it is CNIDelFailing.", Is: diagnose.If(isOfSandbox)},
				{Says: "The runtime does not fail to signal the sandbox, which is RuntimeCommandFailing.", Is: diagnose.If(signalsSandbox)},
				{Says: "The request did not time out.", Is: diagnose.If(stopAnswered)},
			}, diagnose.StopFails(reportOf), []diagnose.Fact[stopFailure]{
				diagnose.BeforeClaims(reportOf),
				{
					Says: "The last report came after the last change of the pod on the node.",
					Is:   diagnose.IfLater(reportedSinceChange, diagnose.Next),
				},
				{Says: noneLivesSays, Pod: diagnose.IfPod(noneLives), From: []evidence.Source{evidence.Processes}},
				{Says: noneLeft, Pod: diagnose.IfPod(allExited)},
				{
					Says: "If it is about an image volume, the pod has been at this stage, past its deadline, for thirty seconds. " +
						"By then, the processes that use the volume are known.",
					Is: usersAreKnown,
				},
				{Says: "containerd's error about the sandbox's status does not already show the failure.", Pod: diagnose.IfPod(notByStatus)},
				{Says: "While a CNI plugin of the pod has been running for ten seconds, it may be CNIDelHanging."},
				{Says: "Inferred: any user who may create Events in the pod's namespace can have created these."},
			}),
			Tell: diagnose.Each(tellStopFails),
		},
	},
}

// The lines of what both ways ask.
const (
	noneLivesSays = "No process of the pod's containers is alive."
)

// netnsKept is what containerd's error says when it cannot remove the file of a network namespace that it has unmounted. It tries at each
// request for the sandbox's status (NetNS.Closed, pkg/netns/netns_linux.go). If it cannot even open the file, as without free descriptors, that
// is another error.
const netnsKept = "check network namespace closed: remove netns: "

func keepsNamespace(_ *fact.View, c *evidence.Container) bool {
	return strings.Contains(c.StatusError, netnsKept)
}

func keepsForLong(p *fact.View, c *evidence.Container) diagnose.Holding {
	return diagnose.Lasted(p, c.StatusErrorSince, fact.SlowDevice, diagnose.Slow)
}

func noneLives(p *fact.View) bool { return len(fact.AppTasks(p)) == 0 }

func tellNamespace(_ *fact.View, c *evidence.Container) diagnose.Finding {
	_, err, _ := strings.Cut(c.StatusError, netnsKept)
	return diagnose.Finding{Family: networkNamespace, Confidence: diagnose.Proved, Objects: diagnose.Objects{Error: "remove netns: " + err}}
}

// A stopFailure is what the kubelet has reported of why it could not have the pod's sandbox stopped.
type stopFailure struct{ *fact.SandboxFailure }

// Named says which failure it is.
func (f stopFailure) Named(*fact.View) string {
	return fmt.Sprintf("the failure that the kubelet reports as %.80q", f.Error)
}

func stopFailures(p *fact.View) []stopFailure {
	if f := p.SandboxStop; f != nil {
		return []stopFailure{{f}}
	}
	return nil
}

func isOfSandbox(_ *fact.View, f stopFailure) bool {
	return f.Step == fact.StepNamespace || f.Step == fact.StepImageMounts || f.Step == fact.StepSandbox
}

func signalsSandbox(_ *fact.View, f stopFailure) bool {
	return f.Step != fact.StepSandbox || !strings.Contains(f.Error, afterKill)
}

func stopAnswered(_ *fact.View, f stopFailure) bool { return !f.TimedOut() }

func reportOf(_ *fact.View, f stopFailure) *fact.SandboxFailure { return f.SandboxFailure }

// reportedSinceChange reports whether a report came since the pod has last moved: the reason of an earlier one may be gone.
func reportedSinceChange(p *fact.View, f stopFailure) bool { return f.Last.After(p.UnchangedSince) }

func usersAreKnown(p *fact.View, f stopFailure) diagnose.Holding {
	if f.Step != fact.StepImageMounts {
		return diagnose.Is(true)
	}
	return diagnose.Lasted(p, fact.Latest(p.Deadline, p.StageSince), usersAfter, diagnose.Slow)
}

func notByStatus(p *fact.View) bool {
	return !slices.ContainsFunc(sandboxesOf(p), func(c *evidence.Container) bool { return keepsNamespace(p, c) && keepsForLong(p, c).Yes() })
}

func tellStopFails(_ *fact.View, f stopFailure) diagnose.Finding {
	out := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Error: f.Error}}
	switch f.Step {
	case fact.StepNamespace:
		out.Family = networkNamespace
	case fact.StepImageMounts:
		out.Family = imageVolume
		if rest, ok := strings.CutPrefix(f.Error, unmountFails); ok {
			// It names the directory once more.
			if _, rest, ok := strings.Cut(rest, "\": "); ok {
				out.Objects.Error = rest
			}
		}
	}
	return out
}
