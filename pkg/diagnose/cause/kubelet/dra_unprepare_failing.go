package kubelet

import (
	"fmt"
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
	Recurs: uncountedClaims,
	By: diagnose.By[*claimDriver]{
		Partly: []evidence.Source{evidence.Claims, evidence.ClaimCalls, evidence.Events}, // without the first two it is open for longer
		Of:     claimDrivers,
		Facts: []diagnose.Fact[*claimDriver]{
			{
				Says: "All containers have ended.", Pod: diagnose.IfPod(noneLive),
				From: []evidence.Source{evidence.Processes, evidence.Cgroups, evidence.Containers},
			},
			{Says: "The kubelet has not written that into the pod's status.", Pod: diagnose.IfPod(notWritten)},
			{Says: "The deadline passed a minute ago or more.", Pod: overdueForLong},
			{Says: "All containers and the sandbox ended a minute ago or more. A driver that is away while its pod is replaced comes back within " +
				"that minute.", Pod: endedForLong},
			{
				Says: "The kubelet lacks no open file, disk space or write access, for which attempts fail too (KubeletResourceExhausted).",
				Pod:  lacksNothing,
			},
			{Says: "The kubelet's count of failed attempts has grown at least twice since then, or once if a driver did not respond in time " +
				"(dra_operations_duration_seconds).", Pod: attemptsFail},
			{Says: "The pod is the only one of the node at this step, or its Events could be read. They show if the kubelet fails to stop " +
				"the sandbox, which comes first.", Is: comesThatFar},
			{Says: "The kubelet's checkpoint of prepared claims (dra_manager_state) still has a claim of the driver for this pod, and for no other pod.",
				Is: holdsClaim},
			{Says: "The kubelet has called the driver since then (dra_grpc_operations_duration_seconds). " +
				"Or the driver is not registered: plugins_registry has no socket of its name.", Is: calledOrAway},
			{Says: "If the kubelet has not called the driver, its calls of no other driver of the pod's claims fail.", Is: failsFirst},
			{Says: "If the driver's last response has no gRPC error, the pod has no other driver, so the error is in the response.", Is: onlyDriver},
			{Says: "If the kubelet has called the driver, such calls were counted at least twice. " +
				"One that timed out is enough if the pod is the only one at this step.", Is: calledAgain},
			{Says: "It is proved if no other pod of the node can be at this step, because the kubelet's counts name no pod. Otherwise it is " +
				"inferred."},
			{Says: "If the pod has several drivers, the kubelet calls none after the one that fails. A driver that was not called is then only " +
				"inferred to be unregistered."},
		},
		Tell: diagnose.Each(tellDriver),
	},
}

func noneLive(p *fact.View) bool { return len(fact.AppTasks(p)) == 0 }

func notWritten(p *fact.View) bool { return !p.ContainersEnded() }

func overdueForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, fact.UnknownAfter, diagnose.Retry)
}

func endedForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.UnchangedSince, fact.UnknownAfter, diagnose.Retry)
}

// lacksNothing answers whether the kubelet can write its checkpoint: attempts fail while it cannot (CheckpointFails).
func lacksNothing(p *fact.View) diagnose.Holding {
	_, lacks := lackedUntil(p)
	return orTried(p, !lacks)
}

// attemptsFail answers whether the kubelet fails. Its counts have to be read for long enough. After an attempt that succeeded, the next one tells.
func attemptsFail(p *fact.View) diagnose.Holding {
	if !fact.Missing(p, evidence.Claims, evidence.ClaimCalls) && failedSince(p) {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(unprepares(p))
}

func comesThatFar(p *fact.View, _ *claimDriver) diagnose.Holding {
	return orTried(p, onlyOneUnprepares(p) || !fact.Missing(p, evidence.Events))
}

func holdsClaim(p *fact.View, d *claimDriver) diagnose.Holding { return orTried(p, len(d.claims) > 0) }

// calledOrAway answers no sooner for a driver that is not called: another driver fails before it, or the kubelet hangs.
func calledOrAway(p *fact.View, d *claimDriver) diagnose.Holding {
	return orTried(p, d.Unregistered || called(p, d.Name) != nil)
}

func failsFirst(p *fact.View, d *claimDriver) diagnose.Holding {
	return orTried(p, called(p, d.Name) != nil || !d.anotherFails(p))
}

// onlyDriver answers whether the kubelet counts the attempt as failed for this driver: it does when the answer has an error about a claim. It calls
// drivers in any order and stops at the first one that fails.
func onlyDriver(p *fact.View, d *claimDriver) diagnose.Holding {
	last := called(p, d.Name)
	return orTried(p, last == nil || last.Status != evidence.CallOK || calledFor(p) == 1)
}

func calledAgain(p *fact.View, d *claimDriver) diagnose.Holding {
	last := called(p, d.Name)
	return orTried(p, last == nil || last.RoseBefore.After(p.UnchangedSince) || last.Status == evidence.CallTimedOut && onlyOneUnprepares(p))
}

// orTried is Is, but not yet where the kubelet's next attempt, or the next reading of its counts, may tell. Until when it is open attemptsFail says,
// if attempts do not fail.
func orTried(p *fact.View, is bool) diagnose.Holding {
	switch {
	case is:
		return diagnose.Is(true)
	case !attemptsFail(p).Yes():
		return diagnose.NotYet(diagnose.Open{})
	}
	return diagnose.NotYet(unprepares(p))
}

// unprepares returns what is open until it is known whether the kubelet fails.
func unprepares(p *fact.View) diagnose.Open {
	switch {
	case !waitsForClaims(p):
		return diagnose.Open{}
	case mayFailToUnprepare(p):
		return diagnose.Waits(p.UnchangedSince, patienceWithClaims(p), diagnose.Retry)
	}
	return diagnose.Waits(p.UnchangedSince, patienceWithClaims(p), diagnose.Next)
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

// Named says which driver it is.
func (d *claimDriver) Named(*fact.View) string {
	if d.Name == "" {
		return "the DRA drivers of the pod, which are not known"
	}
	return fmt.Sprintf("DRA driver %.80q", d.Name)
}

// claimDrivers returns the drivers of the pod's claims. Where the claims could not be read it is one without a name.
func claimDrivers(p *fact.View) (all []*claimDriver) {
	for i := range p.Claims {
		c := &p.Claims[i]
		for _, d := range c.Drivers {
			at := slices.IndexFunc(all, func(o *claimDriver) bool { return o.Name == d.Name })
			if at < 0 {
				at, all = len(all), append(all, &claimDriver{ClaimDriver: d})
			}
			if !c.Shared {
				all[at].claims = append(all[at].claims, c.Name)
			}
		}
	}
	if len(all) == 0 && fact.HoldsClaims(p) {
		all = []*claimDriver{{}}
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

func tellDriver(p *fact.View, d *claimDriver) diagnose.Finding {
	f, only := diagnose.Finding{Confidence: diagnose.Inferred}, onlyOneUnprepares(p)
	last := called(p, d.Name)
	if only && (last != nil || calledFor(p) == 1) {
		f.Confidence = diagnose.Proved
	}
	switch {
	case last == nil:
		f.Family = unregistered
	case last.Status == evidence.CallOK:
		f.Variants = []string{inAnswer}
	case last.Status == evidence.CallTimedOut, last.Status == evidence.CallUnanswered:
		f.Family, f.Objects.Code = last.Status, last.Status
	default:
		if f.Objects.Code = last.Status; !only {
			f.Variants = []string{others}
		}
	}
	f.Objects.Claims, f.Objects.Driver, f.Objects.DriverPod, f.Objects.DriverState = d.claims, d.Name, d.Pod, d.PodState
	return f
}

// waitsForClaims reports whether the kubelet has to have claims of the pod unprepared before anything else.
func waitsForClaims(p *fact.View) bool {
	return fact.HoldsClaims(p) && !p.ContainersEnded() && len(fact.AppTasks(p)) == 0
}

// patienceWithClaims returns for how long a pod whose claims are to be released must have made no progress to be stuck without a known cause; 0 for
// other pods. diagnose.patienceWithVolumes is the same for volumes.
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

// failsToUnprepare reports whether the kubelet fails to unprepare claims of a pod of this node, and lacks nothing.
func failsToUnprepare(p *fact.View) bool {
	_, lacks := lackedUntil(p)
	return !lacks && failedSince(p)
}

// lackedUntil returns until when the kubelet lacked what it needs to write its checkpoint, and whether it lacks it now.
func lackedUntil(p *fact.View) (until time.Time, lacks bool) {
	for i := range p.Node.Kubelet.Shortages {
		if s := &p.Node.Kubelet.Shortages[i]; s.Resource != evidence.Tasks && !fact.LittleRoom(s) {
			until, lacks = fact.Latest(until, s.Ended), lacks || s.Ended.IsZero()
		}
	}
	return until, lacks
}

// failedSince reports whether, since the pod reached its present stage and the kubelet lacked something, and lately, attempts failed at least twice,
// or once because a driver did not respond in time.
func failedSince(p *fact.View) bool {
	until, _ := lackedUntil(p)
	since := fact.Latest(p.UnchangedSince, until)
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
func onlyOneUnprepares(p *fact.View) bool { return p.Node.Unprepares().Since(p.UnchangedSince) }

// uncountedClaims is fact.UncountedVolumes for attempts at resource claims.
func uncountedClaims(p *fact.View) (within time.Duration, since time.Time) {
	return fact.Uncounted(p, fact.ClaimRetry)
}
