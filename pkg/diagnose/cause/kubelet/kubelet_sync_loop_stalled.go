package kubelet

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// notSeen is the family of a loop that hangs only by the kubelet's own health check.
const notSeen = "NotSeen"

// KubeletSyncLoopStalled is a kubelet whose main loop hangs: on a volume of a pod that is gone, or on something that does not show in the kernel,
// such as a device plugin.
//
// Every two seconds the loop looks for what such pods have left (HandlePodCleanups, pkg/kubelet/kubelet_pods.go; cleanupOrphanedPodDirs,
// pkg/kubelet/kubelet_volumes.go). At a CSI volume it calls the file system itself (getPodVolumePathListFromDisk, pkg/kubelet/kubelet_getters.go);
// at another volume it checks whether something is mounted (statx). Before the loop starts a pod, it requests what the pod needs from device
// plugins, and waits for their responses (allocateContainerResources, pkg/kubelet/cm/devicemanager/manager.go).
//
// Both were seen with kubelet 1.36. A device plugin that a signal has stopped proves nothing: the loop may wait for
// another plugin. The end of the plugin closes its connection, and the kubelet continues immediately. A containerd or a
// shim that hangs stalls the loop too, and has a cause of its own. So more than the thread has to be seen: the pod runs
// long after its deadline as if it had not been deleted, while containerd and the shim answer.
var KubeletSyncLoopStalled = &diagnose.Rule{
	Cause:  "KubeletSyncLoopStalled",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.StopSignal, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet's main loop is stalled",
		Who:       diagnose.ByNode,
		Message:   "the kubelet's main loop is stalled, so it stops no pod: {why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: notSeen, Text: "its health check (syncloop) fails. The reason is not visible, possibly a device plugin"},
				{Text: "it is blocked on {what}"},
			},
			"what": {
				{Text: "volume {volume} ({fstype}) of a removed pod"},
				{Text: "the {fstype} volume of a removed pod, mounted at {mountpoint} on the node"},
			},
			"proof": {
				{Variant: notSeen, Text: "The check syncloop of the kubelet's /healthz fails (no round for at least five minutes) " +
					"in readings ten seconds or more apart, while the Node is Ready"},
				{Text: "The kubelet's thread {thread} has been blocked for 45 seconds or more in {syscall} ({function}) on {mountpoint}{from}. " +
					"The API server has no pod with the UID in that path. The kubelet's main loop checks such leftovers"},
			},
			"from":   {{Text: " (source {source})"}, {Text: ""}},
			"behind": {{Text: "{server}"}, {Text: "the server behind that mount"}},
		},
		Seen: []string{
			"{proof}",
			"The pod is 45 seconds or more past its deadline, and the kubelet has done nothing about it",
		},
		First: "ask the storage team to make {behind} respond again. The kubelet then resumes by itself and stops the pods",
		Avoid: "ls or df on that volume (hangs too)",
		Meaning: "The kubelet receives deletions in its main loop. In between, the same loop looks at the directories of pods that are " +
			"gone, to remove them. " +
			"When something is mounted there whose server or daemon does not respond, the loop hangs. " +
			"Pods keep running as they were: none is started, stopped or removed. The node stays Ready, and the kubelet's health check fails only after five minutes.",
		Remedy: "Make {behind} respond again. The kubelet then resumes by itself and stops the pods. " +
			"A restart of the kubelet helps only for a short time: it stops what has been deleted by then, and soon hangs there again.",
		Danger: "Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice.",
		Families: []diagnose.Family{{
			Name: notSeen,
			Meaning: "The kubelet's main loop has not come round for five minutes. nodeagent does not see what it waits for. " +
				"Before the loop starts a pod that needs devices, it requests them from a device plugin, and waits for the response " +
				"without a limit. The plugin may be stopped, or hang itself. " +
				"Pods keep running as they were: none is started, stopped or removed. The node stays Ready.",
			First: "the kubectl command under Fix (cluster rights) lists Pending pods. If one requests a device: ask its plugin's owner. " +
				"If none: follow Fix",
			Avoid: "ending the plugin unasked (rejects that pod)",
			Remedy: "Find the pod that the kubelet waits to start: kubectl get pods -A --field-selector spec.nodeName={node},status.phase=Pending. " +
				"It has a resource of a device plugin in its limits. On the node, find that plugin's process: ps -eo pid,stat,comm. " +
				"If it is in state T, continue it. Else ask the plugin's owner, then end that process. The kubelet then resumes by itself. " +
				"Deleting the plugin's pod has no effect while the loop is stalled. If there is no such pod: systemctl restart kubelet on the node.",
			Danger: "Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice. " +
				"The pod that waits for the device is rejected when the plugin's process exits or the kubelet is restarted.",
		}, {
			Name: fact.FamilyFUSE,
			Meaning: "A FUSE daemon, such as that of a CSI driver, does not respond. A daemon that has exited cannot be started again for a " +
				"mount that is there.",
			First: "on the node: find the volume's FUSE daemon (ps -eo pid,stat,args). Ask its owner to resume (state T) or repair it. " +
				"If none runs: ask the volume's users",
			Avoid: "a FUSE abort before all users agree (loses writes)",
			Remedy: "On the node: find the volume's FUSE daemon in ps -eo pid,stat,comm, and why it does not respond. " +
				"If it cannot respond any more, ask the owners of all pods that use that file system. Then let its requests fail, on the node: " +
				"{abort}. The kubelet then resumes by itself. " +
				"A restart of the kubelet helps only for a short time: it stops what has been deleted by then, and soon hangs there again.",
			Danger: "Aborting a connection affects every user of that file system, running pods included; pending writes are lost. " +
				"Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice.",
		}},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title: "A thread of the kubelet hangs on a volume of a removed pod",
			From:  []evidence.Source{evidence.Kubelet},
			Of:    blockedThreads,
			Facts: slices.Concat(awaitsLoop[*evidence.Task](), []diagnose.Fact[*evidence.Task]{
				{
					Says: "The thread is in a system call on a volume below a pod's directory. The API server does not have that pod.",
					Is:   diagnose.If(onStranger),
				},
				{Says: "The mount at that volume is known.", Is: diagnose.If(mountKnown)},
				{
					Says: "The system call checks whether the path exists: stat or statx on a CSI volume, only statx on other volumes. A thread in " +
						"another system call is not the main loop's.",
					Is: diagnose.If(asks),
				},
				{Says: "The thread has been blocked for 45 seconds or more, without moving.", Is: blockedForLong},
				{
					Says: "Until the kubelet's health check fails, the pod's containers run.",
					Pod:  failsOrUntouched, From: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Shims},
				},
				{Says: "Until the kubelet's health check fails, none of its threads hangs on a volume of the pod itself.", Pod: failsOrIdle},
				{
					Says: "No such thread has hung for five and a half minutes while the kubelet still reports ok.",
					Pod:  diagnose.IfPod(mayGoUnsaid),
				},
				{Says: "It is inferred until the kubelet itself reports that its loop hangs (check syncloop of its /healthz), which it does after " +
					"five minutes. Another thread of it could hang there."},
			}),
			Tell: tellStalledOn,
		},
		diagnose.By[diagnose.ThePod]{
			Title: "Only the kubelet's health check shows it",
			Facts: slices.Concat(awaitsLoop[diagnose.ThePod](), []diagnose.Fact[diagnose.ThePod]{
				{Says: "The check syncloop of the kubelet's /healthz fails.", Pod: loopFails, From: []evidence.Source{evidence.Kubelet}},
				{
					Says: "It fails in two readings ten seconds or more apart.",
					Pod:  failsForLong, From: []evidence.Source{evidence.Kubelet},
				},
				{
					Says: "The check was not ok more than five minutes after the deletion: the loop has not come round since.",
					Pod:  diagnose.IfPod(notComeRound), From: []evidence.Source{evidence.Kubelet},
				},
				{
					Says: "The Node is Ready. While the loop only skips rounds, as without a list of containers, it is not.",
					Pod:  nodeReady, From: []evidence.Source{evidence.NodeObject},
				},
				{Says: "It has been Ready for 20 seconds.", Pod: readyForLong, From: []evidence.Source{evidence.NodeObject}},
				{
					Says: "No thread of the kubelet is seen to hang on what the loop may wait for.",
					Pod:  diagnose.IfPodLater(noneSeenToHang, diagnose.Slow), From: []evidence.Source{evidence.Kubelet},
				},
				{Says: "A pod to which SIGKILL has been sent is in another phase."},
			}),
			Tell: diagnose.OfPod(tellNotSeen),
		},
	},
}

// awaitsLoop returns the facts by which a pod may wait for the kubelet's main loop: it is late, and nothing has begun to stop it.
func awaitsLoop[T any]() []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{Says: "The pod is no static pod, which runs whatever happens to its object.", Pod: diagnose.IfPod(notStatic)},
		{Says: "The pod is 45 seconds past its deadline.", Pod: lateForLoop},
		{
			Says: "Its containers run as if it had not been deleted, though containerd and the shim respond. " +
				"Or nothing of it is on the node, and the kubelet has written nothing about it.",
			Pod: diagnose.IfPod(untouchedOrNotBegun), From: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Shims},
			Partly: []evidence.Source{evidence.Cgroups, evidence.Mounts, evidence.Volumes},
		},
		{
			Says: "The kubelet was there before the deletion, and keeps to the pod's deadline. " +
				"One that was started since gives the whole grace period again.",
			Pod: diagnose.IfPodLater(keepsDeadline, diagnose.Restarting), From: []evidence.Source{evidence.Kubelet},
		},
		{
			Says: "The kubelet's process is there.",
			Pod:  diagnose.IfPodLater(processThere, diagnose.Restarting), From: []evidence.Source{evidence.Kubelet},
		},
		{
			Says: "Neither a signal nor a tracer has stopped it.",
			Pod:  diagnose.IfPodLater(goesOn, diagnose.Slow), From: []evidence.Source{evidence.Kubelet},
		},
	}
}

// blockedThreads returns the kubelet's threads that are blocked in the kernel.
func blockedThreads(p *fact.View) []*evidence.Task {
	out := make([]*evidence.Task, 0, len(p.Node.Kubelet.Blocked))
	for i := range p.Node.Kubelet.Blocked {
		out = append(out, &p.Node.Kubelet.Blocked[i])
	}
	return out
}

// lateForLoop leaves nothing open before that: else every pod that is late would be said to wait for the loop.
func lateForLoop(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, stalls, diagnose.Moves).Unawaited(p)
}

func untouchedOrNotBegun(p *fact.View) bool { return p.Delivery.NoStopSeen || notBegun(p) }

func keepsDeadline(p *fact.View) bool { return p.Kill.Known }

func processThere(p *fact.View) bool { return p.Node.Kubelet.Process != nil }

func goesOn(p *fact.View) bool {
	t := p.Node.Kubelet.Process
	return t == nil || !fact.Halted(t)
}

// onStranger reports whether a thread is in a system call on a volume of a pod that is not in the API.
func onStranger(p *fact.View, t *evidence.Task) bool {
	return t.Probe != nil && slices.ContainsFunc(p.Node.Kubelet.Strangers,
		func(uid string) bool { return strings.Contains(t.Probe.VolumePath, "/pods/"+uid+"/") })
}

func mountKnown(_ *fact.View, t *evidence.Task) bool { return t.Probe.Mount != nil }

func blockedForLong(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, stalls)
}

// failsOrUntouched and failsOrIdle answer whether the pod may wait for the loop before that is known to hang: what a pod waits for that was never
// started is not known, and the worker of one may hang on its volume while the loop works.
func failsOrUntouched(p *fact.View) diagnose.Holding {
	return diagnose.Or(diagnose.Is(p.Delivery.NoStopSeen), loopFails(p))
}

func failsOrIdle(p *fact.View) diagnose.Holding {
	return diagnose.Or(diagnose.Is(fact.KubeletBusyWithVolume(p) == nil || fact.OnlyCounted(p)), loopFails(p))
}

// mayGoUnsaid reports whether the health check need not fail yet.
func mayGoUnsaid(p *fact.View) bool {
	return p.Node.Kubelet.Health != fact.KubeletHealthy || !slices.ContainsFunc(blockedThreads(p), func(t *evidence.Task) bool {
		return onStranger(p, t) && mountKnown(p, t) && asks(p, t) && t.Unchanged(p.Time) >= loopTold
	})
}

// tellStalledOn tells of the thread that has been blocked longest: the others wait for the same loop, or are not it.
func tellStalledOn(p *fact.View, found []*evidence.Task) []diagnose.Finding {
	t := slices.MinFunc(found, func(a, b *evidence.Task) int { return a.UnchangedSince.Compare(b.UnchangedSince) })
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Mount: diagnose.MountOf(p, t.Probe.Mount)}}
	if p.Node.Kubelet.LoopStalls() {
		f.Confidence = diagnose.Proved
	}
	if f.Objects.Mount.Family == fact.FamilyFUSE {
		f.Family = fact.FamilyFUSE
	}
	return []diagnose.Finding{f}
}

func tellNotSeen(p *fact.View) diagnose.Finding {
	return diagnose.Finding{Confidence: diagnose.Proved, Family: notSeen, Objects: diagnose.Objects{Node: p.Node.Name}}
}

// loopFails answers whether the kubelet says that its loop hangs: it may, as long as its health check need not fail yet, or cannot be read.
func loopFails(p *fact.View) diagnose.Holding {
	k := &p.Node.Kubelet
	told := p.DeletionRequested.Add(loopTold)
	switch {
	case k.LoopStalls() || k.Health != "" && !p.Time.Before(told):
		return diagnose.Is(k.LoopStalls())
	case k.Health == "":
		return diagnose.NotRead(evidence.Kubelet) // without a time: it may never be readable
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow)).KnownAt(told)
}

func failsForLong(p *fact.View) diagnose.Holding {
	if h := loopFails(p); !h.Yes() {
		return h
	}
	return diagnose.LastedOnNode(p, p.Node.Kubelet.StalledSince, fact.SlowDevice, diagnose.Slow)
}

// loopRound is for how long the loop must not have come round for the kubelet's health check to fail.
const loopRound = 5 * time.Minute

// notComeRound reports whether the loop, which hangs now, has not come round some time after the deletion. Else it has had the pod stopped, and
// something else holds the pod.
func notComeRound(p *fact.View) bool {
	well := p.Node.Kubelet.StalledAfter
	return well.IsZero() || well.Add(-loopRound).Sub(p.DeletionRequested) <= fact.KillLatency
}

// nodeReady and readyForLong answer whether the loop does not only skip its rounds, which fails the same health check. It skips them when PLEG is not
// healthy or containerd's status is not known. The kubelet then makes the Node not Ready (syncLoop, pkg/kubelet/kubelet.go; runtimeErrors,
// pkg/kubelet/runtime.go). When the Node is Ready again, the loop may sleep for five seconds more.
func nodeReady(p *fact.View) diagnose.Holding {
	if p.Node.Ready == nil {
		return diagnose.NotRead(evidence.NodeObject)
	}
	return diagnose.IsOr(p.Node.Ready.Status == "True", diagnose.Seen(p, diagnose.Slow))
}

func readyForLong(p *fact.View) diagnose.Holding {
	r := p.Node.Ready
	switch {
	case r == nil:
		return diagnose.NotRead(evidence.NodeObject)
	case r.Transition.IsZero():
		return diagnose.Is(true)
	}
	return diagnose.LastedOnNode(p, r.Transition, fact.Restart, diagnose.Slow)
}

// noneSeenToHang answers whether no thread of the kubelet hangs on what the loop may wait for. That is anything but an umount, or the volume of a pod
// that is in the API, which the loop does not look at.
func noneSeenToHang(p *fact.View) bool {
	k := &p.Node.Kubelet
	return k.Error == "" && !slices.ContainsFunc(blockedThreads(p), func(t *evidence.Task) bool {
		if t.Probe == nil || t.Probe.VolumePath == "" {
			return t.Unchanged(p.Time) >= fact.LeastStill && (t.Probe == nil || t.Probe.Syscall != "umount2")
		}
		return t.Probe.Syscall != "umount2" && onStranger(p, t)
	})
}

// notBegun reports whether nothing of a pod is on the node and the kubelet has written nothing about it, as with a pod that it has not begun to
// start.
func notBegun(p *fact.View) bool {
	return p.Phase == "Pending" && p.NothingLeft() && fact.RuntimeIdle(p) && !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.ID != "" || c.Waiting || c.Running || c.Exit != nil
	})
}

// stalls is for how long a thread of the kubelet must have been blocked, and the pod be past
// its deadline: such threads are looked at only while a pod is.
const stalls = 45 * time.Second

// loopTold is for how long the loop may hang until the kubelet's health check fails: five minutes as a rule (SyncLoopHealthCheck,
// pkg/kubelet/kubelet.go), and the time of a reading.
const loopTold = 330 * time.Second

// asks reports whether a thread can be the main loop's, by its system call on a volume. The loop calls PathExists and then IsLikelyNotMountPoint on a
// CSI volume, and only the latter, with statx, on others (getMountedVolumePathListFromDisk, pkg/kubelet/kubelet_getters.go; k8s.io/mount-utils).
// Threads that tear a volume down, remove what is left of it or check how full it is hang there without the loop.
func asks(_ *fact.View, t *evidence.Task) bool {
	switch t.Probe.Syscall {
	case "statx":
		return true
	case "stat", "lstat", "newfstatat":
		return strings.Contains(t.Probe.VolumePath, "/kubernetes.io~csi/")
	}
	return false
}
