package storage

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSINodeUnpublishHanging is a CSI driver that takes the call to unpublish a volume and
// does not answer.
var CSINodeUnpublishHanging = &diagnose.Rule{
	Cause:  "CSINodeUnpublishHanging",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a CSI driver does not unpublish a volume in time",
		Message: "CSI driver {driver} does not respond to NodeUnpublishVolume for volume {volumes}{others}",
		Phrases: map[string][]diagnose.Choice{"others": orOthers, "pod": podOfDriver},
		Meaning: "The containers have ended, and the kubelet asks the CSI driver on this node to unpublish the volume (NodeUnpublishVolume). " +
			"The driver takes the call and does not answer: it waits for its backend, for a lock, or in the kernel for an unmount. The kubelet gives up after two minutes and asks again, without end. " +
			"A driver that gives up itself answers the same, sooner.",
		Evidence: []string{"The volume's directory is there, vol_data.json beside it names the driver, and the number of calls to that driver that ended with DeadlineExceeded has grown since the containers ended " +
			"(csi_operations_seconds of the kubelet). Where the driver does not answer at all, the first one ends two minutes after the containers. " +
			"It is proved when one volume of the driver is left, and no other pod's volumes were taken down on the node when it grew last: the kubelet counts by driver, not by volume."},
		Seen: []string{
			"The kubelet has counted NodeUnpublishVolume calls to {driver} that ended with DeadlineExceeded",
			"The driver's pod {driverpod} on this node is {driverstate}",
			"No process of the pod is left",
		},
		Remedy: "Find the backend that the driver waits for, in the log of {pod}. On the node, list threads in D state: " + blockedThreads + ". " +
			"Repair that backend; the kubelet retries within two minutes. If that does not help, restart the driver's pod, unless it runs FUSE daemons or rbd-nbd. " +
			"A restart ends locks and requests that hang, not a thread in D state.",
		Danger: "Restarting a driver that runs FUSE daemons or rbd-nbd in its own pod breaks the volumes of other pods on the node. " +
			"A force delete leaves the volume published on this node, with no API object tracking it. Another node may then mount it at the same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		First: "read the log of {pod}: which backend does it wait for? Repair that, or ask the driver's owner",
		Avoid: "restarting the driver (breaks other pods' volumes if it uses FUSE)",
	},
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		names, volumes := drivers(p)
		for _, d := range names {
			if _, timedOut := unpublish(p, d); timedOut != nil {
				out = append(out, diagnose.Finding{Variants: whose(p, timedOut), Confidence: confidence(p, timedOut, volumes[d]), Objects: ofDriver(p, d, volumes[d])})
			}
		}
		return diagnose.Found(out...)
	},
}
