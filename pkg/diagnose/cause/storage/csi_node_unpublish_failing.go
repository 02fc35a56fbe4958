package storage

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSINodeUnpublishFailing is a CSI driver that answers with an error when it is to
// unpublish a volume, or that does not run.
var CSINodeUnpublishFailing = &diagnose.Rule{
	Cause:  "CSINodeUnpublishFailing",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer:   "storage",
		Title:   "a CSI driver fails to unpublish a volume",
		Message: "volume {volumes}: the CSI driver {driver} fails to unpublish the volume{others}. The kubelet's calls of NodeUnpublishVolume return {code}; no process of the pod is left",
		Phrases: map[string][]diagnose.Choice{"others": orOthers},
		Meaning: "The containers have ended, and the kubelet asks the CSI driver on this node to unpublish the volume (NodeUnpublishVolume). The driver answers with an error, or nobody answers at its socket. " +
			"The kubelet tries again without end, at most every two minutes, and tells it in its log only.",
		Evidence: "The volume's directory is there a minute after the deadline, and vol_data.json beside it names the driver. " +
			"The number of calls to that driver that failed has grown since then (csi_operations_seconds of the kubelet). " +
			"It is proved when one volume of the driver is left, and no other pod's volumes were taken down on the node when it grew last: the kubelet counts by driver, not by volume.",
		Remedy: "Read the log of the {itspod} for the error. Repair what it names or restart that pod; the kubelet tries again within two minutes.",
		Danger: "A restart of a driver that runs FUSE daemons or rbd-nbd in its own pod breaks the volumes that other pods of the node use. " +
			"A force delete hides the pod and leaves the volume published on this node. Another node may then mount it at the same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		Families: []diagnose.Family{{
			Name:    evidence.CallUnanswered,
			Meaning: "Nobody answers at the driver's socket: its process has ended without taking the socket away, and nothing has started it again.",
			Remedy:  "Look at the {itspod} for a container that does not run or restarts again and again. Bring the driver back; the kubelet tries again within two minutes.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		names, volumes := drivers(p)
		for _, d := range names {
			last, timedOut := unpublish(p, d)
			if last == nil || timedOut != nil {
				continue
			}
			f := diagnose.Finding{Variants: whose(p, last), Confidence: confidence(p, last, volumes[d]), Objects: ofDriver(p, d, volumes[d])}
			f.Objects.Code = last.Status
			if last.Status == evidence.CallUnanswered {
				f.Family = evidence.CallUnanswered
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}
