package kubelet

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// DRAUnprepareFailing is a DRA driver that does not release the device of a resource claim. The kubelet calls it when all containers have ended,
// and before it writes that (SyncTerminatingPod, pkg/kubelet/kubelet.go; UnprepareResources, pkg/kubelet/cm/dra/manager.go). It sends no Event
// when the call fails.
var DRAUnprepareFailing = &diagnose.Rule{
	Cause:  "DRAUnprepareFailing",
	Phases: []diagnose.Phase{diagnose.DynamicResources},
	Needs:  []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
	Partly: []evidence.Source{evidence.Claims, evidence.ClaimCalls, evidence.Events}, // without the first two it is open for longer
	Doc: diagnose.Doc{
		Layer: "kubelet",
		Title: "a DRA driver does not release the pod's resource claim",
		Who:   diagnose.ByNode, NotApp: true,
		Message: "the pod's device (resource claim {claims}) is not released: DRA driver {driver} {how}",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: unregistered, Text: "is not registered with this node's kubelet"},
				{Variant: evidence.CallUnanswered, Text: "is not running (nothing responds at its socket: {code})"},
				{Variant: evidence.CallTimedOut, Text: "does not respond in time ({code})"},
				{Variant: inAnswer, Text: "responds with an error about the claim"},
				{Variant: others, Text: "fails to release this claim or another pod's (NodeUnprepareResources: {code})"},
				{Text: "fails to release the claim (NodeUnprepareResources: {code})"},
			},
			"calls": {
				{Variant: unregistered, Text: "plugins_registry has no socket of driver {driver}, and the kubelet has not called the driver since"},
				{Variant: inAnswer, Text: "The kubelet's last call of driver {driver} (NodeUnprepareResources) returned no gRPC error, " +
					"but the attempt failed: the error is in the response"},
				{Text: "The kubelet's calls of driver {driver} (NodeUnprepareResources) end with {code} (dra_grpc_operations_duration_seconds)"},
			},
			"present": {
				{Text: "its pod here, {driverpod}, is {driverstate}; find out why it does not register"},
				{Text: "check that its DaemonSet exists, tolerates the taints and has a pod here"},
			},
			"back": {
				{Text: "read the log of pod {driverpod} ({driverstate}; cluster rights), then ask the driver's owner why it does not register"},
				{Text: "kubectl get pods -A -o wide (cluster rights). If the driver has no pod on this node: " +
					"ask its owner to bring it back"},
			},
			"dpod": {{Text: "pod {driverpod} ({driverstate})"}, {Text: "the driver's pod on this node"}},
		},
		Seen: []string{
			"All containers and the sandbox have exited, and dra_manager_state still has claim {claims} for this pod only",
			"The kubelet's count of failed attempts to unprepare claims has increased since then (dra_operations_duration_seconds)",
			"{calls}",
		},
		First: "search the log of {dpod} (cluster rights) for NodeUnprepareResources, and ask the driver's owner about the error",
		Avoid: "editing kubelet files (device never released)",
		Meaning: "The pod has a device, such as a GPU, by a resource claim (dynamic resource allocation). " +
			"When its containers have ended, the kubelet calls the claim's driver on this node to release the device " +
			"(NodeUnprepareResources). " +
			"Until that succeeds the pod keeps its phase and its volumes. " +
			"The kubelet tries again every 10 to 15 seconds without end, and reports it in its log only.",
		Evidence: []string{
			"All containers and the sandbox ended a minute ago or more, and the kubelet has not written that into the pod's status. A " +
				"driver that is away while its pod is replaced comes back within that minute.",
			"The kubelet's checkpoint of prepared claims (dra_manager_state) still has the claim for this pod, and for no other pod.",
			"The kubelet's count of failed attempts has grown at least twice since then (dra_operations_duration_seconds).",
			"The results of the kubelet's calls are counted for each driver (dra_grpc_operations_duration_seconds).",
			"A driver is not registered if plugins_registry has no socket of its name and the kubelet has not called it since then.",
			"It is proved if no other pod of the node can be at this step, because the kubelet's counts name no pod. Otherwise it is " +
				"inferred.",
			"If the pod has several drivers, the kubelet calls none after the one that fails. A driver that was not called is then only " +
				"inferred to be unregistered.",
			"A driver that was not called is not reported while another driver fails.",
		},
		Remedy: "Read the log of {dpod} and repair the error that it names. The kubelet retries within 15 seconds. " +
			"To find that pod: kubectl get pods -A --field-selector spec.nodeName={node}.",
		Danger: "Do not force-delete the pod: the scheduler then gives its device to another pod while the driver still has it prepared for this one. " +
			"Do not edit or remove dra_manager_state: the kubelet then never has the device released.",
		Families: []diagnose.Family{
			{
				Name:    unregistered,
				Meaning: "The driver is not there: its DaemonSet was deleted, or drained from the node before the pods that use it.",
				First:   "{back}",
				Remedy: "Bring driver {driver} back on this node: {present}. The kubelet retries within 15 seconds. " +
					"In future, delete a driver only when no pod uses it any more.",
			},
			{
				Name: evidence.CallUnanswered,
				Meaning: "Nothing responds at the driver's socket: its process has exited without removing the socket, and nothing has started " +
					"it again.",
				First: "read the log of the container that does not run in {dpod} (cluster rights). If all run: ask the driver's owner",
				Remedy: "Look at {dpod} for a container that does not run or keeps restarting. Its log shows why. Bring the driver back. The " +
					"kubelet retries within 15 seconds.",
			},
			{
				Name: evidence.CallTimedOut,
				Meaning: "The driver takes the call and does not respond: it waits for its device, for a lock or for the API server. The kubelet " +
					"gives up after 45 seconds and calls again.",
				First: "search the log of {dpod} (cluster rights) for a device, lock or API server error. Ask the driver's owner before a restart",
				Remedy: "Read the log of {dpod}. On the node: ps -eLo pid,stat,wchan:30,comm | grep ' D' shows threads in D state, among them the driver's. " +
					"If the device is well: ask the driver's owner, then restart that pod, which ends hung locks and requests. The kubelet retries within 15 seconds.",
			},
		},
	},
	Recurs: fact.UncountedClaims,
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: unprepareFails(p), Open: unprepares(p)}
	},
}

// unprepares returns what is open until it is known whether the kubelet fails. Its counts have to be read for that long. After an attempt that
// succeeded, the next one tells.
func unprepares(p *fact.View) []diagnose.Open {
	switch {
	case !waitsForClaims(p):
		return nil
	case mayFailToUnprepare(p):
		return []diagnose.Open{diagnose.Waits(p.UnchangedSince, patienceWithClaims(p), diagnose.Retry)}
	}
	return []diagnose.Open{diagnose.Waits(p.UnchangedSince, patienceWithClaims(p), diagnose.Next)}
}

// unprepareFails returns the drivers that fail.
func unprepareFails(p *fact.View) []diagnose.Finding {
	soon := p.Overdue() < fact.UnknownAfter || p.Time.Sub(p.UnchangedSince) < fact.UnknownAfter
	if fact.Missing(p, evidence.Claims, evidence.ClaimCalls) || soon || !failsToUnprepare(p) {
		return nil
	}
	if fact.Missing(p, evidence.Events) && !onlyOneUnprepares(p) {
		return nil // the kubelet may fail to stop the sandbox, which comes first
	}
	var out []diagnose.Finding
	all, alone := claimDrivers(p), calledFor(p) == 1
	for i := range all {
		if f, ok := all[i].fails(p, alone); ok {
			f.Objects.Claims, f.Objects.Driver = all[i].claims, all[i].Name
			f.Objects.DriverPod, f.Objects.DriverState = all[i].Pod, all[i].PodState
			out = append(out, f)
		}
	}
	return out
}

const (
	unregistered = "NotRegistered" // the family of a driver that the kubelet does not know
	inAnswer     = "ErrorInAnswer" // the variant of a driver that responds with an error about the claim
	others       = "Others"        // the variant of a pod that may not be the only one at this step
)

// A claimDriver is a driver, and the pod's claims for which it has prepared devices and that no other pod has.
type claimDriver struct {
	evidence.ClaimDriver
	claims []string
}

// claimDrivers returns the drivers that the kubelet has to call for the pod.
func claimDrivers(p *fact.View) []claimDriver {
	var all []claimDriver
	for i := range p.Claims {
		c := &p.Claims[i]
		if c.Shared {
			continue
		}
		for _, d := range c.Drivers {
			at := slices.IndexFunc(all, func(o claimDriver) bool { return o.Name == d.Name })
			if at < 0 {
				at, all = len(all), append(all, claimDriver{ClaimDriver: d})
			}
			all[at].claims = append(all[at].claims, c.Name)
		}
	}
	return all
}

// calledFor counts the drivers of all claims of the pod. A driver of a shared claim counts too: the kubelet forgets the pod before it calls any
// driver, and when another one has failed, it calls that driver at the next try (unprepareResources, pkg/kubelet/cm/dra/manager.go).
func calledFor(p *fact.View) int {
	var names []string
	for i := range p.Claims {
		for _, d := range p.Claims[i].Drivers {
			if !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	return len(names)
}

// called returns the kubelet's last call of a driver to have claims released, nil when there
// was none.
func called(p *fact.View, driver string) *evidence.ClaimCall {
	return fact.Claimed(p, evidence.NodeUnprepare, driver, func(*evidence.ClaimCall) bool { return true })
}

// anotherFails reports whether calls of another driver of the pod's claims fail.
func (d *claimDriver) anotherFails(p *fact.View) bool {
	for i := range p.Claims {
		for _, o := range p.Claims[i].Drivers {
			if last := called(p, o.Name); o.Name != d.Name && last != nil && last.Status != evidence.CallOK {
				return true
			}
		}
	}
	return false
}

// fails reports whether the driver fails, and how. Alone is whether the pod has no other driver. The kubelet calls drivers in any order and stops
// at the first one that fails, so a missing call proves nothing about one of several.
func (d *claimDriver) fails(p *fact.View, alone bool) (diagnose.Finding, bool) {
	f, only := diagnose.Finding{Confidence: diagnose.Inferred}, onlyOneUnprepares(p)
	if only {
		f.Confidence = diagnose.Proved
	}
	last := called(p, d.Name)
	switch {
	case last == nil && d.Unregistered:
		f.Family = unregistered
		if !alone {
			f.Confidence = diagnose.Inferred
		}
		return f, !d.anotherFails(p)
	case last == nil:
		return f, false // it is not called: another driver fails before it, or the kubelet hangs
	case last.Status == evidence.CallOK:
		// The kubelet counts the attempt as failed when the answer has an error about a claim.
		f.Variants = []string{inAnswer}
		return f, alone && last.RoseBefore.After(p.UnchangedSince)
	case last.Status == evidence.CallTimedOut, last.Status == evidence.CallUnanswered:
		f.Family = last.Status
	case !only:
		f.Variants = []string{others}
	}
	f.Objects.Code = last.Status
	return f, only && last.Status == evidence.CallTimedOut || last.RoseBefore.After(p.UnchangedSince)
}

// waitsForClaims reports whether the kubelet has to have claims of the pod unprepared before anything else.
func waitsForClaims(p *fact.View) bool {
	return fact.HoldsClaims(p) && !p.ContainersEnded() && len(fact.AppTasks(p)) == 0
}

// patienceWithClaims returns for how long a pod whose claims are to be released must have made no progress to be stuck without a known cause; 0 for
// other pods. PatienceWithVolumes is the same for volumes.
func patienceWithClaims(p *fact.View) time.Duration {
	if !waitsForClaims(p) {
		return 0
	}
	k := &p.Node.Kubelet
	switch {
	case k.VolumeCallsRead.IsZero(): // its metrics may not be readable
		return fact.ClaimRetry
	case p.Time.Sub(k.VolumeCallsRead) > evidence.CallsPause, !failsToUnprepare(p) && failedAttempt(p) != nil:
		return fact.Retries // the next attempt tells
	}
	return fact.UntilCounted(p, fact.ClaimTry.With(p)+p.Time.Sub(k.VolumeCallsRead))
}

// mayFailToUnprepare reports whether the kubelet's counts do not rule out that it fails to unprepare claims of the pod: an attempt has failed, which
// may be another pod's, or the next one is yet to be counted.
func mayFailToUnprepare(p *fact.View) bool {
	return failedAttempt(p) != nil || p.Node.Kubelet.VolumeCallsRead.Sub(fact.CountedSince(p)) < fact.ClaimTry.With(p)
}

// failedAttempt returns the kubelet's last failed attempt to unprepare claims since the pod reached its present stage; nil when there was none
// lately.
func failedAttempt(p *fact.View) *evidence.ClaimCall {
	return fact.Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool { return c.Status == evidence.ClaimsFailed })
}

// failsToUnprepare reports whether the kubelet fails to unprepare claims of a pod of this node. Since the pod reached its present stage, and lately,
// attempts failed at least twice, or once because a driver did not respond in time. Failures while the kubelet cannot write its checkpoint do not
// count (CheckpointFails).
func failsToUnprepare(p *fact.View) bool {
	since := p.UnchangedSince
	for i := range p.Node.Kubelet.Shortages {
		switch s := &p.Node.Kubelet.Shortages[i]; {
		case s.Resource == evidence.Tasks, fact.LittleRoom(s):
		case s.Ended.IsZero():
			return false
		default:
			since = fact.Latest(since, s.Ended)
		}
	}
	return fact.Claimed(p, evidence.Unprepare, "", func(c *evidence.ClaimCall) bool {
		return c.Status == evidence.ClaimsFailed && (c.RoseBefore.After(since) || c.Rose.After(since) && unprepareTimedOut(p))
	}) != nil
}

func unprepareTimedOut(p *fact.View) bool {
	for i := range p.Claims {
		for _, d := range p.Claims[i].Drivers {
			if fact.Claimed(p, evidence.NodeUnprepare, d.Name, func(c *evidence.ClaimCall) bool { return c.Status == evidence.CallTimedOut }) != nil {
				return true
			}
		}
	}
	return false
}

// onlyOneUnprepares reports whether this was the only pod of the node whose claims the kubelet could be unpreparing, since it reached its present
// stage.
func onlyOneUnprepares(p *fact.View) bool {
	return p.Node.Unpreparing == 1 && !p.Node.UnpreparingUntil.After(p.UnchangedSince)
}
