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
	By: diagnose.By[string]{
		From: []evidence.Source{evidence.Volumes},
		Of:   driversLeft,
		Facts: []diagnose.Fact[string]{
			{Says: stillThere + " vol_data.json beside it names the driver.", Pod: settledFor},
			{Says: "A driver whose pod is being replaced comes back within that minute."},
			{Says: "The kubelet's directory plugins_registry has no socket of that name.", Is: diagnose.If(unregistered)},
			{Says: "No subPath directory of its volumes is left, which could be what fails.", Is: diagnose.If(noSubpathsOf)},
			{Says: "No mount of the kubelet's own is left of a block device of its volumes, which could be what fails too.", Is: diagnose.If(allReached),
				From: []evidence.Source{evidence.Mounts}},
			{Says: "Since the pod reached this stage, the kubelet has counted more failed attempts at volumes of that driver " +
				"(storage_operation_duration_seconds).", Is: diagnose.If(allFail), From: []evidence.Source{evidence.Mounts, evidence.VolumeCalls}},
			// A driver that was called was registered then, and the failure may be in the call.
			{Says: "None of these attempts has called the driver (csi_operations_seconds).", Is: diagnose.If(uncalled),
				From: []evidence.Source{evidence.VolumeCalls}},
		},
		Tell: diagnose.Each(tellUnregistered),
	},
}

// eachOf reports whether something is so of each volume of a driver that is left.
func eachOf(p *fact.View, driver string, is func(v *evidence.Volume) bool) bool {
	return each(p, func(v *evidence.Volume) bool { return v.Driver != driver || is(v) })
}

func unregistered(p *fact.View, driver string) bool {
	return eachOf(p, driver, func(v *evidence.Volume) bool { return v.Unregistered })
}

func noSubpathsOf(p *fact.View, driver string) bool {
	return eachOf(p, driver, func(v *evidence.Volume) bool { return v.Subpaths == 0 })
}

func allReached(p *fact.View, driver string) bool {
	return eachOf(p, driver, func(v *evidence.Volume) bool { return !notReached(p, v) })
}

func allFail(p *fact.View, driver string) bool {
	return eachOf(p, driver, func(v *evidence.Volume) bool { return fact.FailedUnmount(p, v) != nil })
}

func uncalled(p *fact.View, driver string) bool { return len(fact.UnpublishCalls(p, driver)) == 0 }

func tellUnregistered(p *fact.View, driver string) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: ofDriver(p, driver, volumesOf(p, driver))}
	if f.Objects.DriverState == evidence.DriverTerminating {
		f.Variants = []string{evidence.DriverTerminating}
	}
	return f
}
