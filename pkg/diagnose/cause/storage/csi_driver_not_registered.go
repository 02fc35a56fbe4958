package storage

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CSIDriverNotRegistered is a CSI driver that has been removed from the node before
// the pods that use its volumes.
var CSIDriverNotRegistered = &diagnose.Rule{
	Cause:  "CSIDriverNotRegistered",
	Phases: []diagnose.Phase{diagnose.Volumes},
	Needs:  []evidence.Source{evidence.Mounts, evidence.Volumes, evidence.VolumeCalls},
	Doc: diagnose.Doc{
		Layer: "storage",
		Title: "the CSI driver of a volume is not registered",
		Who:   diagnose.ByStorage, NotApp: true,
		Message: "volume {volumes} cannot be unpublished: its CSI driver {driver} is not registered on this node",
		Phrases: map[string][]diagnose.Choice{
			"present": {
				{Variant: evidence.DriverTerminating, Text: "find what keeps the driver's pod {driverpod} terminating (kubectl describe pod); " +
					"its DaemonSet re-creates it only after that"},
				{Text: "check why the driver's pod {driverpod} ({driverstate}) does not register: read the log of its container node-driver-registrar"},
				{Text: "check that the driver's DaemonSet exists, tolerates this node's taints and has a pod here (kubectl get ds -A)"},
			},
			"step": {
				{Variant: evidence.DriverTerminating, Text: "kubectl describe pod (cluster rights) shows why the driver's pod {driverpod} " +
					"does not end. If unclear, ask its owner"},
				{Text: "read the log of container node-driver-registrar in pod {driverpod} ({driverstate}; cluster rights). " +
					"Repair its error, or ask the driver's owner"},
				{Text: "kubectl get pods -A -o wide (cluster rights): if the driver has no pod on this node, ask its owner for one (toleration, " +
					"install). If it has one, read its registrar's log"},
			},
		},
		Meaning: "The containers have exited, and the kubelet has to call the CSI driver on this node to unpublish the volume. The driver is not " +
			"there: its DaemonSet was deleted, or drained from the node before the pods that use it. The kubelet retries without end, and " +
			"reports it in its log only.",
		Evidence: []string{
			"The volume's directory is still there one minute after the deadline. vol_data.json beside it names the driver.",
			"The kubelet's directory plugins_registry has no socket of that name.",
			"Since the pod reached this stage, the kubelet has counted more failed attempts at volumes of that driver " +
				"(storage_operation_duration_seconds).",
			"None of these attempts has called the driver (csi_operations_seconds).",
			"No subPath directory of its volumes is left, which could be what fails.",
			"A driver whose pod is being replaced comes back within that minute.",
		},
		Seen: []string{
			"The kubelet's plugins_registry has no socket of driver {driver}",
			"Unmount attempts fail, and none has called {driver}",
			"The driver's pod {driverpod} on this node is {driverstate}",
			"No process of the pod is left",
		},
		Remedy: "Bring CSI driver {driver} back on this node. To do so, {present}. The kubelet then unpublishes the volume within two minutes. " +
			"Uninstall a CSI driver only when no pod uses its volumes.",
		Danger: "A force delete leaves the volume published on this node, with no API object tracking it. Another node may then mount it " +
			"at the same time, which can destroy its data. " +
			"Do not delete anything below the pod's directory: what is mounted there is the volume's data.",
		First: "{step}",
		Avoid: "rm in the pod's directory (deletes its data)",
	},
	Recurs: uncounted(func(v *evidence.Volume) bool { return v.Unregistered }),
	Check: func(p *fact.View) diagnose.Result {
		if !settled(p) {
			return diagnose.Result{}
		}
		var out []diagnose.Finding
		names, volumes := drivers(p)
		for _, d := range names {
			// A driver that was called was registered then, and the failure may be in the call.
			if len(fact.UnpublishCalls(p, d)) == 0 && unregistered(p, d) {
				o := ofDriver(p, d, volumes[d])
				f := diagnose.Finding{Confidence: diagnose.Proved, Objects: o}
				if o.DriverState == evidence.DriverTerminating {
					f.Variants = []string{evidence.DriverTerminating}
				}
				out = append(out, f)
			}
		}
		return diagnose.Found(out...)
	},
}

// unregistered reports whether the kubelet knows no such driver: it has no socket of that
// name, and attempts at the driver's volumes fail without any call to it. Subpaths that are
// left, or the kubelet's own mount of a block device, may fail before the driver is looked for.
func unregistered(p *fact.View, driver string) bool {
	found := false
	for i := range p.Volumes {
		v := &p.Volumes[i]
		if v.Driver != driver {
			continue
		}
		if v.Subpaths > 0 || !v.Unregistered || notReached(p, v) || fact.FailedUnmount(p, v) == nil {
			return false
		}
		found = true
	}
	return found
}
