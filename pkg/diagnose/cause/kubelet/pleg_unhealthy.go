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
	Needs:  []evidence.Source{evidence.Kubelet, evidence.NodeObject, evidence.Processes, evidence.Cgroups},
	Partly: []evidence.Source{evidence.Containers, evidence.Shims, evidence.Containerd},
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
		Evidence: []string{
			"The Node's condition Ready is False. Its message, which the kubelet writes every ten seconds, reports that PLEG is not " +
				"healthy and since when.",
			"The kubelet has reported it twice, and was started before the last list.",
			"When the kubelet reports it, containerd has responded to nodeagent for 15 seconds or more, and the pod is ten seconds past " +
				"its deadline.",
			"Which list fails is known from containerd's responses to nodeagent, which requests both lists and takes 64 KiB of each.",
			"It is proved for a pod that was deleted ten seconds or more after the kubelet had stopped processing deletions.",
			"It is inferred for a pod that was deleted before that, if nothing has begun to stop it although containerd and the shim " +
				"respond.",
			"It is inferred for a pod whose containers ended after the last list, if only its cgroup or its object has been left for 20 " +
				"seconds.",
			"Such a pod is reported earlier if a list is too large, and the kubelet's metrics show a last list 20 seconds old or more " +
				"(kubelet_pleg_last_seen_seconds).",
			"Not reported for a static pod.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		g := fact.PLEG(p)
		if since := fact.MayReconnect(p); g == nil && !since.IsZero() {
			return diagnose.Undecided(diagnose.Waits(since, fact.Reconnects, diagnose.Restarting))
		}
		if g == nil || p.Mirror || g.Said.Sub(p.Deadline) < fact.KillLatency {
			return diagnose.Result{} // when it had no list the pod was not late yet
		}
		f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Since: g.Active, Node: p.Node.Name}}
		switch {
		case p.Delivery.LoopStalledBefore:
			f.Confidence, f.Variants = diagnose.Proved, []string{unread}
		case fact.Missing(p, evidence.Containers, evidence.Shims):
			return diagnose.Undecided(diagnose.OpenUnread(p, evidence.Containers))
		case len(fact.AppTasks(p)) > 0:
			if !p.Kill.Known || p.DeletionRequested.Before(g.Active) || !p.Delivery.NoStopSeen {
				return diagnose.Undecided(diagnose.Seen(p, diagnose.Slow))
			}
			f.Variants = []string{waits}
		case !p.ContainersEnded() || !endedAfter(p, g.Active.Add(listClock)) || g.Said.Sub(p.UnchangedSince) < fact.Restart:
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Slow)) // it may be about something else, or has had its list
		}
		if f.Family, f.Objects.List = failing(p, g); f.Family == "" && undecided(p, g) {
			return diagnose.Undecided(diagnose.Seen(p, diagnose.Slow))
		}
		return diagnose.Found(f)
	},
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
