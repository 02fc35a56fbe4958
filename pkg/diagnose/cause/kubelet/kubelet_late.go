package kubelet

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of KubeletLate: why the kubelet has not begun. There is none where the reason does not show.
const (
	throttled = "Throttled"
	starved   = "Starved"
	watchLost = "WatchLost"
)

// ownGroup is the variant of Starved in which the kubelet's own control group has what uses the processors.
const ownGroup = "OwnGroup"

// KubeletLate is a kubelet that runs and has not begun to stop a pod that is past its deadline. From Kubernetes 1.34 on the kubelet writes into the
// pod's status which generation of the pod it acts upon, and a deletion raises the generation (SyncTerminatingPod and generateAPIPodStatus,
// pkg/kubelet).
//
// CPU pressure alone is no reason: the kubelet has a cgroup of its own, and gets its share. A lost watch leaves no
// trace on the node; it shows only in which deletions the kubelet has acted upon. Every other cause may be the reason
// why the kubelet has not begun, so this is the last of the causes.
var KubeletLate = &diagnose.Rule{
	Cause:  "KubeletLate",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.PreStop, diagnose.StopSignal, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet has not begun to stop the pod",
		Who:       diagnose.ByNode,
		Message:   "the kubelet has not begun to stop the pod{why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: throttled, Text: ": the CPU limit of its cgroup {group} ({cpulimit}) throttles it"},
				{Variant: ownGroup, Text: ": it gets no CPU time. Most is used by other processes in its own cgroup {group}"},
				{Variant: starved, Text: ": it gets no CPU time. Most is used by {users}"},
				{Variant: starved, Text: ": it gets no CPU time"},
				{Variant: watchLost, Text: ", nor any other pod deleted since {since}: it probably no longer hears of deletions"},
				{Text: ", and the reason is not visible{scarcity}"},
			},
			"scarcity": {{Text: ". The node is under {scarce} pressure, so it may only be slow"}, {Text: ""}},
			"proof": {
				{Variant: throttled, Text: "In the last 10 seconds or more, that limit throttled the kubelet in at least three of four periods (cpu.stat)"},
				{Variant: starved, Text: "In the last 10 seconds or more, the kubelet's threads waited for a CPU at least 20 times as long as they ran (schedstat)"},
				{Variant: watchLost, Text: "Pods of other namespaces wait for the kubelet in the same way, the Node is Ready, and the kubelet's health check is ok"},
				{Text: "The kubelet runs, the Node is Ready, and nothing is in progress for the pod"},
			},
			"units": {units},
			"ease": {
				{Variant: ownGroup, Text: "find the process in top whose /proc/PID/cgroup has {group}. If mkfs or fsck: wait for its end. " +
					"If another: ask its owner before ending it"},
				{Text: "top shows which program uses the CPU, and cat /proc/PID/cgroup whose it is. Ask that owner to limit or end the program"},
			},
			"find": {
				{Variant: ownGroup, Text: "Find the process in the kubelet's own cgroup that uses it up: on the node, top. The kubelet has started it, as it does " +
					"mkfs, fsck, mount helpers and credential plugins. Wait for mkfs or fsck. End any other, not the kubelet's unit"},
				{Text: "Find what uses it up: on the node top, or kubectl top pod -A --sort-by=cpu. " +
					"Limit that (limits.cpu of the pod), or ask its owner to end it"},
			},
		},
		Seen: []string{
			"The pod's metadata.generation is newer than its status.observedGeneration",
			"{proof}",
		},
		First: "wait until 6 minutes after the deletion. If still stuck, on the node: search the kubelet's log for {podname} " +
			"as Fix says",
		Avoid: "a reboot (ends all pods of the node)",
		Meaning: "A deletion raises the pod's metadata.generation, and the kubelet writes into status.observedGeneration which one it acts upon. " +
			"Here that is an older one, though the grace period is over: the kubelet has not begun to stop the pod, and the stop signal has not been sent. " +
			"The kubelet first completes what it has begun for this pod, such as stopping a container for its liveness probe with " +
			"the whole grace period.",
		Remedy: "On the node, find what the kubelet began for this pod before the deletion and has not finished: " +
			"journalctl -u kubelet --since=-10min | grep {podnamespace}/{podname}. " +
			"If nothing is in progress there, and more than six minutes have passed since the deletion: systemctl restart kubelet. " +
			"It lists its pods again, and containers keep running. {units}.",
		Danger: "Do not force-delete the pod: its containers keep running. A StatefulSet then starts the same pod twice.",
		Families: []diagnose.Family{{
			Name: throttled,
			Who:  diagnose.ByNode, NotApp: true,
			Meaning: "The CPU quota of the kubelet's cgroup, or of one above it, is used up in nearly every period, so the kubelet hardly " +
				"runs.",
			First: "on the node, as root: raise the CPU limit of {group} as Fix says. The kubelet then stops the pod",
			Remedy: "On the node, raise or remove the CPU limit of {group}. With systemd: systemctl set-property UNIT CPUQuota= " +
				"(UNIT: its last name, as kubelet.service; no value: no limit). " +
				"Else write max into the group's cpu.max (cgroup v1: -1 into cpu.cfs_quota_us). The kubelet then stops the pod by itself; it needs no restart.",
		}, {
			Name:    starved,
			Meaning: "Other processes leave no CPU time to the kubelet.",
			First:   "on the node: {ease}",
			Remedy: "{find}. The kubelet then stops the pod by itself; it needs no restart. " +
				"So that it does not happen again, reserve CPU for the system (kubeReserved and systemReserved of the kubelet).",
		}, {
			Name: watchLost,
			Who:  diagnose.ByNode, NotApp: true,
			Meaning: "The kubelet receives deletions over a watch of the API server. The watch no longer delivers, " +
				"while the kubelet still renews its Lease, so the Node stays Ready.",
			First: "on the node, as root: systemctl restart kubelet (K3s, RKE2: unit in Fix). It then stops the deleted pods",
			Remedy: "On the node: systemctl restart kubelet. It lists its pods again and stops the deleted ones; containers keep running. {units}. " +
				"If it happens again, look at what is between the kubelet and the API server: a load balancer, a proxy, conntrack.",
		}},
	},
	By: diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{
			{Says: "The pod's metadata.generation is newer than its status.observedGeneration.", Pod: diagnose.IfPod(stopAwaited)},
			{Says: "The pod is no static pod.", Pod: diagnose.IfPod(notStatic)},
			{Says: "status.phase is neither Succeeded nor Failed.", Pod: diagnose.IfPod(notEnded)},
			{
				Says: "The API server accepts nodeagent's own update of the pod's status. Otherwise it may not accept that of the kubelet either.",
				Pod:  diagnose.IfPod(statusAccepted),
			},
			{Says: "The kubelet is not cut off from the API server, which is KubeletDisconnected.", Pod: diagnose.IfPod(inTouch)},
			{
				Says: "The kubelet's process is there, or never had a name that nodeagent knows.",
				Pod:  diagnose.IfPod(kubeletRuns), From: []evidence.Source{evidence.Kubelet},
			},
			{Says: "Neither a signal nor a tracer has stopped it.", Pod: diagnose.IfPod(notHalted), From: []evidence.Source{evidence.Kubelet}},
			{Says: "No image is pulled for the pod.", Pod: diagnose.IfPod(noPull), From: []evidence.Source{evidence.Containers}},
			{
				Says: "No runtime command is in progress for the pod.",
				Pod:  diagnose.IfPod(noCommand), From: []evidence.Source{evidence.RuntimeCommands},
			},
			{Says: "No CNI plugin sets up the pod's network.", Pod: diagnose.IfPod(noNetworkSetup)},
			{Says: "No Event of the kubelet reports that it could not stop the pod (FailedKillPod).", Pod: diagnose.IfPod(noKillFailure)},
			{
				Says: "For a minute the pod has been past its deadline, the kubelet has not been restarted, and the Node has not become Ready.",
				Pod:  ableForLong, From: []evidence.Source{evidence.Kubelet},
			},
			{
				Says: "If the kubelet gets CPU time, nothing shows that it hangs: its health check does not fail, and the API server hears from it.",
				Pod:  diagnose.IfPodLater(starvedOrActs, diagnose.Late), From: []evidence.Source{evidence.Kubelet},
			},
			{
				Says: "If the kubelet gets CPU time, the Node is Ready.",
				Pod:  diagnose.IfPodLater(starvedOrReady, diagnose.Late), Partly: []evidence.Source{evidence.NodeObject},
			},
			{
				Says: "If the kubelet gets CPU time, all containers run though containerd and the shim respond, or nothing of the pod has been started.",
				Pod:  diagnose.IfPodLater(starvedOrUntouched, diagnose.Late), From: []evidence.Source{evidence.Containers},
			},
			{
				Says: "If pods of two namespaces wait, so much time has passed since the deletion that the health check would show a main loop that hangs. " +
					"This does not count if the kubelet gets no CPU time, or has begun to stop a pod deleted later.",
				Pod: loopWouldShow,
			},
			{
				Says: "If neither Throttled, Starved nor WatchLost applies, the pod has made no progress for as long as Unknown waits.",
				Pod:  reasonOrUnchanged,
			},
			{Says: "It is always inferred. The first family that applies is reported."},
			{Says: "Throttled: the CPU limit of its cgroup stopped the kubelet in at least three of four periods (cpu.stat), measured within a minute."},
			{Says: "Starved: the kubelet's threads waited for a CPU at least 20 times as long as they ran (schedstat), measured within a minute."},
			{Says: "WatchLost: pods of two namespaces wait, and the kubelet has begun to stop none deleted later. Its health check is ok."},
			{Says: "Before Kubernetes 1.34 the kubelet writes no status.observedGeneration."},
		},
		Tell: diagnose.OfPod(tellLate),
	},
}

func stopAwaited(p *fact.View) bool { return p.StopAwaited }

func notEnded(p *fact.View) bool { return !p.ContainersEnded() }

func statusAccepted(p *fact.View) bool { return fact.OwnRefusal(p) == nil }

func inTouch(p *fact.View) bool { return !p.Delivery.OutOfTouch }

func kubeletRuns(p *fact.View) bool { return p.Kubelet.State != fact.Gone }

func notHalted(p *fact.View) bool { return p.Kubelet.State != fact.Stopped }

// noPull, noCommand, noNetworkSetup and noKillFailure report whether nothing is seen that the kubelet would complete first.
func noPull(p *fact.View) bool { return fact.Pull(p) == nil }

func noCommand(p *fact.View) bool { return len(p.RuntimeCommands) == 0 }

func noNetworkSetup(p *fact.View) bool { return len(p.NetworkSetup) == 0 }

func noKillFailure(p *fact.View) bool { return len(p.KillFailures) == 0 }

func ableForLong(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, sinceAble(p), fact.UnknownAfter, diagnose.Late)
}

// starvedOrActs, starvedOrReady and starvedOrUntouched answer whether the API server hears from a kubelet that gets CPU time, and nothing is in
// progress for the pod.
func starvedOrActs(p *fact.View) bool {
	acts := p.Kubelet.State == fact.Acts || p.Kubelet.State == fact.Unseen || p.Kubelet.State == fact.Restarted
	return acts || getsNoTime(p)
}

func starvedOrReady(p *fact.View) bool {
	r := p.Node.Ready
	return r != nil && r.Status == "True" || getsNoTime(p)
}

func starvedOrUntouched(p *fact.View) bool {
	return p.Delivery.NoStopSeen || notBegun(p) || getsNoTime(p)
}

// loopWouldShow answers whether it is not the main loop that hangs, where the kubelet seems to receive no deletions.
func loopWouldShow(p *fact.View) diagnose.Holding {
	if getsNoTime(p) || !deaf(p) {
		return diagnose.Is(true)
	}
	return diagnose.Lasted(p, p.DeletionRequested, loopTold, diagnose.Slow)
}

func reasonOrUnchanged(p *fact.View) diagnose.Holding {
	if getsNoTime(p) || losesWatch(p) {
		return diagnose.Is(true)
	}
	return diagnose.Lasted(p, fact.Latest(sinceAble(p), fact.Unchanged(p)), fact.StepPatience(p), diagnose.Slow)
}

func tellLate(p *fact.View) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Pod: p.Namespace + "/" + p.Name}}
	switch {
	case getsNoTime(p):
		tellNoTime(p, &f)
	case losesWatch(p):
		f.Family, f.Objects.Since = watchLost, p.DeletionRequested
	default:
		f.Variants, f.Objects.Scarce = []string{diagnose.OnePod}, p.Node.Pressure.Scarce()
	}
	return f
}

// sinceAble returns the earliest time from which the kubelet could have begun: the deadline, its own start, or when the API server heard from it
// again, whichever is last.
func sinceAble(p *fact.View) time.Time {
	since := fact.Latest(p.Deadline, p.Node.Kubelet.Process.Started())
	if r := p.Node.Ready; r != nil && r.Status == "True" && !r.Transition.IsZero() {
		since = fact.Latest(since, p.NodeTime(r.Transition))
	}
	return since
}

// recent is for how long a measurement of CPU time is still current.
const recent = time.Minute

// littleUse is the CPU use, in thousandths of a processor, below which a user of the CPU is not named: it leaves enough for others.
const littleUse = 200

// getsNoTime reports whether the kubelet is throttled, or gets no CPU time.
func getsNoTime(p *fact.View) bool {
	c := p.Node.Processors
	return c != nil && p.Time.Sub(c.Until) <= recent && (c.IsThrottled() || c.Starves())
}

// tellNoTime puts the reason why the kubelet gets no CPU time into the finding.
func tellNoTime(p *fact.View, f *diagnose.Finding) {
	c := p.Node.Processors
	if c.IsThrottled() {
		f.Family, f.Objects.Cgroup, f.Objects.CPULimitMillis = throttled, c.Group, c.Millis
		return
	}
	f.Family = starved
	// Where the kubelet is part of another program, as in K3s, containerd and the shims are in its group.
	alone := p.Node.Kubelet.Process != nil && p.Node.Kubelet.Process.Comm == "kubelet"
	if len(c.Users) > 0 && c.Users[0].Own && c.Users[0].Millis >= littleUse && alone {
		f.Variants, f.Objects.Cgroup = []string{ownGroup}, c.Users[0].Group
		return
	}
	for _, u := range c.Users {
		if u.Millis >= littleUse && u.Millis*2 >= c.Users[0].Millis {
			f.Objects.Users = append(f.Objects.Users, diagnose.User{Pod: u.Pod, PodUID: u.PodUID, Cgroup: u.Group})
		}
	}
}

// losesWatch reports whether the kubelet seems to receive no deletions, and is well.
func losesWatch(p *fact.View) bool { return deaf(p) && p.Node.Kubelet.Health == fact.KubeletHealthy }

// deaf reports whether the kubelet seems to receive no deletions: pods of several namespaces wait, and it has acted upon no deletion that was
// requested after this one.
func deaf(p *fact.View) bool {
	return p.Node.Awaiting >= 2 && !p.Node.LastBegun.After(p.DeletionRequested.Add(-fact.KillLatency))
}
