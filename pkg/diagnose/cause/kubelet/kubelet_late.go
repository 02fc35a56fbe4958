package kubelet

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of KubeletLate: why the kubelet has not begun. The one without a name is for what does not show.
const (
	throttled = "Throttled"
	starved   = "Starved"
	watchLost = "WatchLost"
)

// short is the variant of starved for a node that is short of memory or I/O.
const short = "Short"

// KubeletLate is a kubelet that is there and has not begun to stop a pod that is past its deadline. From Kubernetes 1.34 on
// it says in the pod's status which generation of the pod it acts upon, and a deletion raises that
// (SyncTerminatingPod and generateAPIPodStatus, pkg/kubelet).
var KubeletLate = &diagnose.Rule{
	Cause: "KubeletLate",
	Phases: []diagnose.Phase{
		diagnose.Delivery, diagnose.Startup, diagnose.PreStop, diagnose.StopSignal, diagnose.Runtime, diagnose.PhaseUnknown,
	},
	Needs:  []evidence.Source{evidence.Kubelet},
	Partly: []evidence.Source{evidence.NodeObject, evidence.Containers},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet has not begun to stop the pod",
		Message:   "the kubelet has not begun to stop the pod (status.observedGeneration){why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: throttled, Text: ": the CPU limit of its cgroup {group} ({cpulimit}) throttles it"},
				{Variant: short, Text: ": the node is short of {scarce}"},
				{Variant: starved, Text: ": it gets no CPU time. Most is used by {users}"},
				{Variant: starved, Text: ": it gets no CPU time"},
				{Variant: watchLost, Text: ", nor any other pod deleted since {since}: it probably no longer hears of deletions"},
				{Text: ", and the reason is not visible"},
			},
			"proof": {
				{Variant: throttled, Text: "In the last 10 seconds or more, that limit throttled the kubelet in at least three of four periods (cpu.stat)"},
				{Variant: short, Text: "/proc/pressure shows that tasks wait for {scarce} 40% of the time or more"},
				{Variant: starved, Text: "In the last 10 seconds or more, the kubelet's threads waited for a CPU at least three times as long as they ran (schedstat)"},
				{Variant: watchLost, Text: "Other pods of the node wait for the kubelet in the same way, and the Node is Ready"},
				{Text: "The kubelet runs, the Node is Ready, and nothing is in progress for the pod"},
			},
			"restart": {{Text: "systemctl restart kubelet"}},
			"cut":     {{Text: "journalctl -u kubelet --since=-10min | grep -e reflector -e 'Failed to watch'"}},
		},
		Seen: []string{
			"The pod's metadata.generation is newer than its status.observedGeneration",
			"{proof}",
		},
		First: "on the node: journalctl -u kubelet | grep {podnamespace}/{podname} | tail; if nothing is in progress, {restart}",
		Avoid: "a force delete (containers still run)",
		Meaning: "A deletion raises the pod's metadata.generation, and the kubelet writes into status.observedGeneration which one it acts upon. " +
			"Here that is an older one, though the grace period is over: the kubelet has not begun to stop the pod, and the stop signal has not been sent. " +
			"It completes first what it is at, such as to end a container for its liveness probe with the whole grace period.",
		Evidence: "The kubelet's process is there and nobody has stopped it, and the pod has been past its deadline for a minute. " +
			"Of the families the first one that applies is told. " +
			"Where it gets CPU time, at least some container runs or nothing of the pod has been started, nothing is in progress for it, and the Node is Ready: " +
			"a kubelet that the API server does not hear is KubeletDisconnected. " +
			"Without a reason the pod has also made no progress for as long as Unknown waits. " +
			"It is always inferred. Before Kubernetes 1.34 the kubelet writes no status.observedGeneration, and nothing is said.",
		Remedy: "On the node, find what the kubelet began for this pod before the deletion and has not finished: " +
			"journalctl -u kubelet --since=-10min | grep {podnamespace}/{podname}. " +
			"If nothing is in progress there: {restart}. It lists its pods again, and containers keep running.",
		Danger: "Do not force-delete the pod: its containers keep running. A StatefulSet then starts the same pod twice.",
		Families: []diagnose.Family{{
			Name:    throttled,
			Meaning: "The CPU quota of the kubelet's control group, or of one above it, is used up in nearly every period, so the kubelet hardly runs.",
			First:   "on the node: systemctl set-property kubelet.service CPUQuota= (no limit), or raise the group's cpu.max",
			Remedy: "On the node, raise or remove the CPU limit of {group}. With systemd: systemctl set-property kubelet.service CPUQuota= (empty: no " +
				"limit), or the same for the slice above it. " +
				"Else write max into the group's cpu.max (cgroup v1: -1 into cpu.cfs_quota_us). The kubelet then stops the pod by itself; it needs no restart.",
		}, {
			Name:    starved,
			Meaning: "Other processes use up what the kubelet needs: CPU time, memory or I/O.",
			First:   "on the node: top shows what uses it up; limit or end that. The kubelet then stops the pod by itself",
			Remedy: "Find what uses it up: on the node top, or kubectl top pod -A --sort-by=cpu. Limit that (limits.cpu of the pod, CPUQuota= of the " +
				"unit), or ask its owner to end it. " +
				"The kubelet then stops the pod by itself; it needs no restart. So that it does not happen again, reserve CPU for the system " +
				"(kubeReserved and systemReserved of the kubelet).",
		}, {
			Name: watchLost,
			Meaning: "The kubelet hears of deletions over a watch of the API server. That one no longer delivers, " +
				"while the kubelet still renews its Lease, so the Node stays Ready.",
			First: "on the node: {restart} (containers keep running)",
			Remedy: "On the node, read why: {cut}. Then: {restart}. It lists its pods again and stops the deleted ones; containers keep running. " +
				"If it happens again, look at what is between the kubelet and the API server: a load balancer, a proxy, conntrack.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		if !awaitsKubelet(p) {
			return diagnose.Result{}
		}
		if p.Overdue() < fact.UnknownAfter {
			return diagnose.Undecided(diagnose.Waits(p.Deadline, fact.UnknownAfter, diagnose.Late))
		}
		f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Pod: p.Namespace + "/" + p.Name}}
		if lacks(p, &f) || mayHear(p) && deaf(p, &f) {
			return diagnose.Found(f)
		}
		if !mayHear(p) {
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Late))
		}
		since, patience := fact.Latest(p.Deadline, fact.Unchanged(p)), fact.StepPatience(p)
		if p.Time.Sub(since) < patience {
			return diagnose.Undecided(diagnose.Waits(since, patience, diagnose.Slow))
		}
		f.Variants = []string{diagnose.OnePod}
		return diagnose.Found(f)
	},
}

// awaitsKubelet reports whether the kubelet runs and has not begun to stop the pod, by its status. What it stops for an eviction, or
// for activeDeadlineSeconds, it has begun with before the deletion, and writes no generation before it has got through. Where
// nodeagent's own update of the status is refused, the kubelet's may be too.
func awaitsKubelet(p *fact.View) bool {
	return p.StopAwaited && !p.Mirror && !p.ContainersEnded() && fact.OwnRefusal(p) == nil &&
		p.Kubelet.State != fact.Gone && p.Kubelet.State != fact.Stopped
}

// recent is for how long what was seen of the processors is of now.
const recent = time.Minute

// lacks reports whether the kubelet lacks processors, memory or I/O, and puts what it lacks into the finding.
func lacks(p *fact.View, f *diagnose.Finding) bool {
	c := p.Node.Processors
	if c != nil && p.Time.Sub(c.Until) > recent {
		c = nil
	}
	scarce := slices.DeleteFunc(p.Node.Pressure.Scarce(), func(what string) bool { return what == "processors" })
	switch {
	case c.IsThrottled():
		f.Family, f.Objects.Cgroup, f.Objects.CPULimitMillis = throttled, c.Group, c.Millis
	case c.Starves():
		f.Family = starved
		for _, u := range c.Users {
			if u.Millis*2 >= c.Users[0].Millis {
				f.Objects.Users = append(f.Objects.Users, diagnose.User{Pod: u.Pod, PodUID: u.PodUID, Cgroup: u.Group})
			}
		}
	case len(scarce) > 0:
		f.Family, f.Variants, f.Objects.Scarce = starved, []string{short}, scarce
	default:
		return false
	}
	return true
}

// mayHear reports whether the API server hears from the kubelet, and nothing is in progress for the pod.
func mayHear(p *fact.View) bool {
	r := p.Node.Ready
	return !fact.Missing(p, evidence.Containers) && (p.Kubelet.State == fact.Acts || p.Kubelet.State == fact.Unseen || p.Kubelet.State == fact.Restarted) &&
		r != nil && r.Status == "True" && (p.Delivery.Untouched || notBegun(p))
}

// deaf reports whether the kubelet seems to hear of no deletions: several pods wait, and it has acted upon no deletion that was
// requested after this one.
func deaf(p *fact.View, f *diagnose.Finding) bool {
	n := &p.Node
	if n.Awaiting < 2 || n.LastBegun.After(p.DeletionRequested.Add(-fact.KillLatency)) {
		return false
	}
	f.Family, f.Objects.Since = watchLost, p.DeletionRequested
	return true
}
