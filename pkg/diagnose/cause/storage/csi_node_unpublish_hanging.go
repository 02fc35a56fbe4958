package storage

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSINodeUnpublishHanging is a CSI driver that accepts the call to unpublish a volume and
// does not respond.
var CSINodeUnpublishHanging = &diagnose.Rule{
	Cause:  "CSINodeUnpublishHanging",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a CSI driver does not unpublish a volume in time",
		Who:     diagnose.ByStorage,
		Message: "CSI driver {driver} does not respond to NodeUnpublishVolume for volume {volumes}{others}",
		Phrases: map[string][]diagnose.Choice{"others": orOthers, "pod": podOfDriver},
		Meaning: "The containers have exited, and the kubelet calls the CSI driver on this node to unpublish the volume (NodeUnpublishVolume). The " +
			"driver accepts the call and does not respond. It waits for its backend, for a lock, or in the kernel for an unmount. The kubelet " +
			"gives up after two minutes and calls again, without end. A driver that gives up by itself returns the same error, sooner.",
		Seen: []string{
			"The kubelet has counted NodeUnpublishVolume calls to {driver} that ended with DeadlineExceeded",
			"The driver's pod {driverpod} on this node is {driverstate}",
			"No process of the pod is left",
		},
		Remedy: "Find the backend that the driver waits for, in the log of {pod}. On the node, list threads in D state: " + blockedThreads + ". " +
			"Repair that backend; the kubelet retries within two minutes. If that does not help, restart the driver's pod, unless it runs FUSE daemons or rbd-nbd. " +
			"A restart ends locks and requests that hang, not a thread in D state.",
		Danger: "Restarting a driver that runs FUSE daemons or rbd-nbd in its own pod breaks the volumes of other pods on the node. " +
			"A force delete leaves the volume published on this node, with no API object tracking it. Another node may then mount it at the " +
			"same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		First: "if the log of {pod} (cluster rights) names a backend that does not respond, restore that. " +
			"If not, ask the driver's owner",
		Avoid: "restarting the driver (FUSE mounts may break)",
	},
	Recurs: uncounted(ofDrivers),
	By: diagnose.By[string]{
		From: []evidence.Source{evidence.Volumes},
		Of:   driversLeft,
		Facts: slices.Concat(calledDriver, []diagnose.Fact[string]{
			{Says: "At least one of them ended with DeadlineExceeded.", Is: diagnose.If(unpublishTimesOut), From: []evidence.Source{evidence.VolumeCalls}},
			{Says: "If the driver does not respond at all, the first such call ends two minutes after the containers have exited."},
			{Says: countedPerDriver},
		}),
		Tell: diagnose.Each(tellUnpublishTimesOut),
	},
}

func unpublishTimesOut(p *fact.View, driver string) bool { return !unpublishReturns(p, driver) }

func tellUnpublishTimesOut(p *fact.View, driver string) diagnose.Finding {
	_, timedOut := unpublish(p, driver)
	of := volumesOf(p, driver)
	return diagnose.Finding{Variants: whose(p, timedOut), Confidence: confidence(p, timedOut, of), Objects: ofDriver(p, driver, of)}
}
