package kubelet

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// PLEGUnhealthy is a kubelet that gets no list of the node's containers from a containerd that responds to other requests. After three minutes its
// main loop does nothing any more (syncLoop, pkg/kubelet/kubelet.go). Its workers for single pods wait for a new list before each of their steps
// (podWorkerLoop, pkg/kubelet/pod_workers.go; GetNewerThan, pkg/kubelet/container/cache.go).
//
// containerd 2.4 asks no shim for these lists, so a shim that hangs does not break them. In the first three minutes
// nothing shows that the workers wait: a stop signal may be taken for sent that is not.
var PLEGUnhealthy = &diagnose.Rule{
	Cause:  "PLEGUnhealthy",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.StopSignal, diagnose.Cleanup, diagnose.FinalDelete, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		Title:     "PLEG is not healthy: the kubelet cannot list containers",
		Who:       diagnose.ByNode,
		Message:   "PLEG is not healthy: {listing} has failed {from} ({why}), so {so}",
		WholeNode: true,
		Phrases: map[string][]diagnose.Choice{
			"listing": {
				{Variant: tooLarge, Text: "listing containers"},
				{Variant: listHangs, Text: "listing containers"},
				{Text: "listing containers or reading their status"},
			},
			"from": {{Text: "since {since}"}, {Text: "since the kubelet started"}},
			"why": {
				{Variant: tooLarge, Text: "containerd's list of all {list} > 16 MiB"},
				{Variant: listHangs, Text: "containerd: no response to a request for all {list}"},
				{Text: "containerd responds to other requests"},
			},
			"so": {
				{Variant: unread, Text: "the kubelet stops no pod"},
				{Variant: waits, Text: "the kubelet cannot begin to stop this pod"},
				{Text: "the kubelet cannot complete the deletion"},
			},
			"answers": {
				{Variant: tooLarge, Text: "containerd reports to nodeagent, too, that its list of all {list} exceeds the 16 MiB limit"},
				{Variant: listHangs, Text: "containerd has not responded to three or more requests of nodeagent for all {list} in a row, but to other requests"},
				{Text: "containerd responds to nodeagent's other requests"},
			},
			"state": {
				{Variant: unread, Text: "The pod was deleted when the kubelet already processed no deletions, so it has not seen this one"},
				{Variant: waits, Text: "Nothing has begun to stop the pod, though containerd and the shim respond"},
				{Text: "The pod's containers have exited, at least one of them after the kubelet's last complete list"},
			},
		},
		Seen: []string{
			"The Node's condition Ready is False, with the kubelet's message that PLEG is not healthy {from}",
			"{answers}",
			"{state}",
		},
		First: "on the node: search the kubelet's log (journalctl -u kubelet) for 'PLEG': it has containerd's error. If none: search containerd's log",
		Avoid: "restarting containerd unasked (can end all pods)",
		Meaning: "Once a second, the kubelet requests all sandboxes and all containers of the node from containerd (pod lifecycle event " +
			"generator, PLEG). " +
			"Then it requests the status of each pod that has changed. Without a response, a pod's worker does not take its next step. " +
			"After three minutes the kubelet makes the Node NotReady, and reads no creation and no deletion any more. " +
			"Containers run on as they were. The kubelet's health check stays ok for five more minutes.",
		Remedy: "On the node: journalctl -u kubelet | grep PLEG shows what containerd has responded. Repair that. " +
			"With the next complete list the kubelet resumes by itself.",
		Danger: "Do not force-delete pods of this node whose containers run: they keep running. A StatefulSet then starts the same pod twice.",
		Families: []diagnose.Family{
			{
				Name: tooLarge,
				Meaning: "The list of all sandboxes holds all annotations of their pods, of ended pods too. It may have no more than 16 MiB: " +
					"64 pods with 256 KiB each are enough. The list of all containers holds the hooks of their specifications.",
				First: "the kubectl command under Fix (cluster rights) ranks pods by annotations. If the first has over 100000 bytes, " +
					"ask its owner, then use Fix. If none has: see Fix",
				Avoid: "restarting containerd or kubelet (no effect)",
				Remedy: "Find the pods with the largest annotations: kubectl get pods -A --field-selector spec.nodeName={node} -o json | " +
					"jq -r '.items[]|[(.metadata.annotations|tostring|length),.metadata.uid,.metadata.namespace,.metadata.name]|@tsv' | sort -rn | head. " +
					"Ask the first pod's owner before you delete it. After the owner agrees, delete it, and on the node: " +
					"crictl rmp -f $(crictl pods -q --label io.kubernetes.pod.uid=UID). " +
					"The kubelet then resumes by itself. Annotations of pods that have ended count too, as do lifecycle hooks in the list of containers.",
				Danger: "Do not delete the first pods of the list unasked: crictl rmp -f kills without a grace period. " +
					"Do not force-delete pods of this node whose containers run: a StatefulSet then starts the same pod twice.",
			},
			{
				Name: listHangs,
				Meaning: "containerd keeps a lock for each container while it writes that container's state to its disk. While a write hangs, " +
					"so does each request for all containers. " +
					"Three such requests in a row had no response, over " + fact.List.String() + ".",
				First: "on the node: ps -C containerd -L -o lwp,stat,wchan:30 | grep ' D'. If it prints a line: look for disk errors in dmesg. " +
					"If not: follow Fix",
				Remedy: "On the node: ps -C containerd -L -o pid,lwp,stat,wchan:30 | grep ' D' shows threads of containerd that are blocked on its disk. " +
					"Check whether the disk of /var/lib/containerd works. " +
					"If it does, save a goroutine dump, which is written to containerd's log: systemctl kill --kill-who=main -s USR1 containerd. " +
					"With the next complete list the kubelet resumes by itself.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[diagnose.ThePod]{
			Title: "The kubelet has not read the deletion",
			Facts: slices.Concat(unlisted, []diagnose.Fact[diagnose.ThePod]{
				{
					Says: "The pod was deleted ten seconds or more after the kubelet had stopped processing deletions, and nothing shows that it stops the pod.",
					Pod:  notRead, From: slices.Concat(seenFromBoth, []evidence.Source{evidence.Processes, evidence.Cgroups}), Partly: ofContainerd,
				},
				{Says: "It is proved."},
			}),
			Tell: diagnose.OfPod(tellUnread),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "It may have read it, and the containers run",
			Facts: slices.Concat(unlisted, []diagnose.Fact[diagnose.ThePod]{
				mayHaveRead,
				{
					Says: "A process of the pod's containers is left.",
					Pod:  diagnose.IfPod(processLeft), From: []evidence.Source{evidence.Processes, evidence.Cgroups},
				},
				{
					Says: "The kubelet keeps to the pod's deadline: it was there before the deletion, and began with it in time.",
					Pod:  diagnose.IfPodLater(deadlineKnown, diagnose.Slow),
				},
				{Says: "The pod was deleted after the kubelet's last list.", Pod: deletedAfterList, From: seenFromBoth, Partly: ofContainerd},
				{
					Says: "Nothing has begun to stop the pod although containerd and the shim respond.",
					Pod:  diagnose.IfPodLater(notBegunToStop, diagnose.Slow), From: []evidence.Source{evidence.Containers, evidence.Shims},
				},
				{Says: "It is inferred."},
			}),
			Tell: diagnose.OfPod(tellWaits),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "It may have read it, and the containers have ended",
			Facts: slices.Concat(unlisted, []diagnose.Fact[diagnose.ThePod]{
				mayHaveRead,
				{
					Says: "No process of the pod's containers is left.",
					Pod:  diagnose.IfPod(noneIsLeft), From: []evidence.Source{evidence.Processes, evidence.Cgroups},
				},
				{Says: "status.phase is Succeeded or Failed.", Pod: diagnose.IfPodLater(containersEnded, diagnose.Slow)},
				{
					Says: "A container of the pod has ended after the kubelet's last list.",
					Pod:  endedAfterList, From: slices.Concat(seenFromBoth, []evidence.Source{evidence.Containers, evidence.Shims}), Partly: ofContainerd,
				},
				{
					Says: "When the kubelet last reported it, the pod had not changed for 20 seconds.",
					Pod:  restedWhenReported, From: seenFromBoth, Partly: ofContainerd,
				},
				{Says: "It is inferred. Only the pod's cgroup or its object is left by then. " +
					"If a list is too large, the kubelet's metrics show it before the Node is NotReady."},
			}),
			Tell: diagnose.OfPod(tellUnfinished),
		},
	},
}

// ofContainerd is the source that shows a list that is too large, which is a report, too.
var ofContainerd = []evidence.Source{evidence.Containerd}

// unlisted are the facts about the kubelet's list, and that the pod is late without it.
var unlisted = []diagnose.Fact[diagnose.ThePod]{
	{
		Says: "The Node's condition Ready is False, and its message reports that PLEG is not healthy, and since when. " +
			"Or a list is too large, and the kubelet's metrics show a last list 20 seconds old or more (kubelet_pleg_last_seen_seconds).",
		Pod: reportsPLEG, From: seenFromBoth, Partly: ofContainerd,
	},
	{
		Says: "The kubelet, which reports it every ten seconds and is not stopped, has done so twice and within a minute. " +
			"It was started before the last list. By then, containerd had responded to nodeagent for 15 seconds or more.",
		Pod: stillUnlisted, From: seenFromBoth, Partly: ofContainerd,
	},
	{Says: "The pod is no static pod.", Pod: diagnose.IfPod(notStatic)},
	{
		Says: "When the kubelet last reported it, the pod was ten seconds past its deadline.",
		Pod:  lateWhenReported, From: seenFromBoth, Partly: ofContainerd,
	},
	{
		Says: "It is known which list fails, or that none does: nodeagent requests both from containerd, and takes 64 KiB of each. " +
			"A request without a response hangs after three attempts.",
		Pod: listsTried, From: seenFromBoth, Partly: ofContainerd,
	},
}

// mayHaveRead is the fact that tells the other ways from the first.
var mayHaveRead = diagnose.Fact[diagnose.ThePod]{
	Says: "The kubelet may have read the deletion: it stopped processing deletions later, or less than ten seconds before, or it seems to stop the pod.",
	Pod:  diagnose.IfPod(notUnread),
}

// reported returns what the kubelet says of its list, or counts where containerd's list is too large; nil where it does neither.
func reported(p *fact.View) *evidence.PLEG {
	r, k := p.Node.Ready, &p.Node.Kubelet
	switch {
	case r != nil && r.Status == "False" && r.PLEG != nil:
		return r.PLEG
	case k.Unlisted() && fact.TooLarge(p) != "":
		return &evidence.PLEG{Said: k.VolumeCallsRead, Active: k.Listed}
	}
	return nil
}

// ofReport answers what is asked of what the kubelet reports: not yet where its next report may show it. Of one that is not heard, nothing is
// known until it gets through.
func ofReport(p *fact.View, is func(g *evidence.PLEG) bool) diagnose.Holding {
	g, since := reported(p), fact.MayReconnect(p)
	switch {
	case g != nil && is(g):
		return diagnose.Is(true)
	case !since.IsZero():
		return diagnose.NotYet(diagnose.Waits(since, fact.Reconnects, diagnose.Restarting))
	case g != nil:
		return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow))
	}
	return diagnose.Is(false)
}

func reportsPLEG(p *fact.View) diagnose.Holding {
	return ofReport(p, func(*evidence.PLEG) bool { return true })
}

func stillUnlisted(p *fact.View) diagnose.Holding {
	return ofReport(p, func(*evidence.PLEG) bool { return fact.PLEG(p) != nil })
}

// lateWhenReported answers whether the pod was late when the kubelet had no list.
func lateWhenReported(p *fact.View) diagnose.Holding {
	return ofReport(p, func(g *evidence.PLEG) bool { return g.Said.Sub(p.Deadline) >= fact.KillLatency })
}

func listsTried(p *fact.View) diagnose.Holding {
	return ofReport(p, func(g *evidence.PLEG) bool {
		family, _ := failing(p, g)
		return family != "" || !undecided(p, g)
	})
}

// notRead answers whether the kubelet has not read the deletion, which follows from its report.
func notRead(p *fact.View) diagnose.Holding {
	if fact.PLEG(p) != nil {
		return diagnose.Is(p.Delivery.LoopStalledBefore)
	}
	return ofReport(p, func(*evidence.PLEG) bool { return false })
}

func notUnread(p *fact.View) bool { return !p.Delivery.LoopStalledBefore }

func processLeft(p *fact.View) bool { return len(fact.AppTasks(p)) > 0 }

func noneIsLeft(p *fact.View) bool { return !processLeft(p) }

func deadlineKnown(p *fact.View) bool { return p.Kill.Known }

func deletedAfterList(p *fact.View) diagnose.Holding {
	return ofReport(p, func(g *evidence.PLEG) bool { return !p.DeletionRequested.Before(g.Active) })
}

func notBegunToStop(p *fact.View) bool { return p.Delivery.NoStopSeen }

func containersEnded(p *fact.View) bool { return p.ContainersEnded() }

// endedAfterList answers whether the kubelet needs another list: else it may have had one from after the end of the containers.
func endedAfterList(p *fact.View) diagnose.Holding {
	return ofReport(p, func(g *evidence.PLEG) bool { return endedAfter(p, g.Active.Add(listClock)) })
}

func restedWhenReported(p *fact.View) diagnose.Holding {
	return ofReport(p, func(g *evidence.PLEG) bool { return g.Said.Sub(p.UnchangedSince) >= fact.Restart })
}

func tellUnread(p *fact.View) diagnose.Finding { return tellUnlisted(p, diagnose.Proved, unread) }

func tellWaits(p *fact.View) diagnose.Finding { return tellUnlisted(p, diagnose.Inferred, waits) }

func tellUnfinished(p *fact.View) diagnose.Finding { return tellUnlisted(p, diagnose.Inferred) }

func tellUnlisted(p *fact.View, c diagnose.Confidence, variants ...string) diagnose.Finding {
	g := reported(p)
	f := diagnose.Finding{Variants: variants, Confidence: c, Objects: diagnose.Objects{Since: g.Active, Node: p.Node.Name}}
	f.Family, f.Objects.List = failing(p, g)
	return f
}

// listClock is how much later the last list may have been than the kubelet reports: it reports that time in whole seconds.
const listClock = time.Second

// endedAfter reports whether a container has ended after a time. The kubelet needs a list from after that end before it completes the deletion.
func endedAfter(p *fact.View, t time.Time) bool {
	return slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Exit != nil && c.Exit.At.After(t) })
}

// failing returns which list containerd does not return, and its family.
func failing(p *fact.View, g *evidence.PLEG) (family, list string) {
	if list = fact.TooLarge(p); list != "" {
		return tooLarge, list
	}
	for _, l := range p.Node.Containerd.Lists {
		if l.Attempts >= 3 && (!p.Pressed || l.Asked.Sub(g.Active) >= fact.List.Pressed) {
			return listHangs, l.Of
		}
	}
	return "", ""
}

// listTried is how long it takes until a list has been requested three times (pkg/cri).
const listTried = 50 * time.Second

// undecided reports whether a request for a list has had no response, and it will be known soon whether it hangs.
func undecided(p *fact.View, g *evidence.PLEG) bool {
	return slices.ContainsFunc(p.Node.Containerd.Lists, func(l evidence.List) bool {
		return l.Attempts > 0 && (p.Time.Sub(l.UnansweredSince) < listTried || p.Pressed && p.Time.Sub(g.Active) < fact.List.Pressed+listTried)
	})
}

// tooLarge and listHangs are the families of PLEGUnhealthy. unread and waits are the variants of what it means for the pod.
const (
	tooLarge  = "ListTooLarge"
	listHangs = "ListUnanswered"
	unread    = "Unread"
	waits     = "Waits"
)
