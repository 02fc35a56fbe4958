package storage

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSINodeUnpublishFailing is a CSI driver that returns an error when it is called to
// unpublish a volume, or that does not run.
var CSINodeUnpublishFailing = &diagnose.Rule{
	Cause:  "CSINodeUnpublishFailing",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a CSI driver fails to unpublish a volume",
		Who:     diagnose.ByStorage,
		Message: "CSI driver {driver} fails to unpublish volume {volumes}{others}: NodeUnpublishVolume returns {code}",
		Phrases: map[string][]diagnose.Choice{"others": orOthers, "pod": podOfDriver},
		Meaning: "The containers have exited, and the kubelet calls the CSI driver on this node to unpublish the volume (NodeUnpublishVolume). The " +
			"driver returns an error, or nothing answers on its socket. The kubelet retries without end, with pauses of up to two minutes, and " +
			"reports it in its log only.",
		Seen: []string{
			"The kubelet has counted NodeUnpublishVolume calls to {driver} that returned {code}",
			"The driver's pod {driverpod} on this node is {driverstate}",
			"No process of the pod is left",
		},
		Remedy: "Read the driver's error in the log of {pod}, or on the node: " + driverErrors + ". Repair what it names; the kubelet retries within two minutes. " +
			"If that does not help, restart the driver's pod, unless it runs FUSE daemons or rbd-nbd.",
		Danger: "Restarting a driver that runs FUSE daemons or rbd-nbd in its own pod breaks the volumes of other pods on the node. " +
			"A force delete leaves the volume published on this node, with no API object tracking it. Another node may then mount it at the " +
			"same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		First: "find NodeUnpublishVolume in the log of {pod} (cluster rights). " +
			"Show the error to the driver's owner. If none: Fix",
		Avoid: "restarting the driver (FUSE mounts may break)",
		Families: []diagnose.Family{{
			Name:    evidence.CallUnanswered,
			Meaning: "Nothing answers on the driver's socket: its process has exited without removing the socket, and has not been started again.",
			Remedy: "Check {pod} for a container that is not running or restarts again and again (kubectl get pods -A -o wide). " +
				"Repair it; the kubelet then retries within two minutes.",
			First: "kubectl get pods -A -o wide (cluster rights): if {pod} is down, its log shows why. " +
				"If it is up, ask the driver's owner",
			Avoid: "rm in the pod's directory (deletes its data)",
		}},
	},
	Recurs: uncounted(ofDrivers),
	By: diagnose.By[string]{
		From: []evidence.Source{evidence.Volumes},
		Of:   driversLeft,
		Facts: slices.Concat(calledDriver, []diagnose.Fact[string]{
			{Says: "None of them has timed out, which is CSINodeUnpublishHanging.", Is: diagnose.If(unpublishReturns), From: []evidence.Source{evidence.VolumeCalls}},
			{Says: countedPerDriver},
		}),
		Tell: diagnose.Each(tellUnpublishFails),
	},
}

func unpublishReturns(p *fact.View, driver string) bool {
	_, timedOut := unpublish(p, driver)
	return timedOut == nil
}

func tellUnpublishFails(p *fact.View, driver string) diagnose.Finding {
	last, _ := unpublish(p, driver)
	of := volumesOf(p, driver)
	f := diagnose.Finding{Variants: whose(p, last), Confidence: confidence(p, last, of), Objects: ofDriver(p, driver, of)}
	f.Objects.Code = last.Status
	if last.Status == evidence.CallUnanswered {
		f.Family = evidence.CallUnanswered
	}
	return f
}
