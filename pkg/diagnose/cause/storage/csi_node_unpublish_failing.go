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
		Message: "CSI driver {driver} fails to unpublish volume {volumes}{others}: NodeUnpublishVolume returns {code}",
		Phrases: map[string][]diagnose.Choice{"others": orOthers, "pod": podOfDriver},
		Meaning: "The containers have ended, and the kubelet asks the CSI driver on this node to unpublish the volume (NodeUnpublishVolume). The driver answers with an error, or nobody answers at its socket. " +
			"The kubelet tries again without end, at most every two minutes, and tells it in its log only.",
		Evidence: []string{"The volume's directory is there a minute after the deadline, and vol_data.json beside it names the driver. " +
			"The number of calls to that driver that failed has grown since then (csi_operations_seconds of the kubelet). " +
			"It is proved when one volume of the driver is left, and no other pod's volumes were taken down on the node when it grew last: the kubelet counts by driver, not by volume."},
		Seen: []string{
			"The kubelet has counted NodeUnpublishVolume calls to {driver} that returned {code}",
			"The driver's pod {driverpod} on this node is {driverstate}",
			"No process of the pod is left",
		},
		Remedy: "Read the driver's error in the log of {pod}, or on the node: " + driverErrors + ". Repair what it names; the kubelet retries within two minutes. " +
			"If that does not help, restart the driver's pod, unless it runs FUSE daemons or rbd-nbd.",
		Danger: "Restarting a driver that runs FUSE daemons or rbd-nbd in its own pod breaks the volumes of other pods on the node. " +
			"A force delete leaves the volume published on this node, with no API object tracking it. Another node may then mount it at the same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		First: "on the node: journalctl -u kubelet --since -10min | grep 'csi: .*rpc error' shows the error; repair it or ask the driver's owner",
		Avoid: "restarting the driver (breaks other pods' volumes if it uses FUSE)",
		Families: []diagnose.Family{{
			Name:    evidence.CallUnanswered,
			Meaning: "Nobody answers at the driver's socket: its process has ended without taking the socket away, and nothing has started it again.",
			Remedy: "Check {pod} for a container that is not running or restarts again and again (kubectl get pods -A -o wide). " +
				"Repair it; the kubelet then retries within two minutes.",
			First: "check that {pod} runs and does not keep restarting (kubectl get pods -A -o wide)",
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
