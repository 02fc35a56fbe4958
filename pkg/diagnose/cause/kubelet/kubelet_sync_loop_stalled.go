package kubelet

import (
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// notSeen is the family of a loop of which only the kubelet tells that it hangs.
const notSeen = "NotSeen"

// KubeletSyncLoopStalled is a kubelet whose main loop hangs: on a volume of a pod that is gone, or on
// something that does not show in the kernel, such as a device plugin.
//
// Every two seconds the loop itself looks for what such pods have left (HandlePodCleanups,
// pkg/kubelet/kubelet_pods.go; cleanupOrphanedPodDirs, pkg/kubelet/kubelet_volumes.go), and of
// CSI volumes it asks the file system itself (getPodVolumePathListFromDisk,
// pkg/kubelet/kubelet_getters.go); of others, whether something is mounted (statx). And before it
// starts a pod it asks device plugins for what the pod needs, and waits for their answers
// (allocateContainerResources, pkg/kubelet/cm/devicemanager/manager.go).
//
// Both were seen with kubelet 1.36. A device plugin that a signal has stopped proves nothing: the loop may wait for
// another plugin. The end of the plugin closes its connection, and the kubelet continues immediately. A containerd or a
// shim that hangs stalls the loop too, and has a cause of its own. So more than the thread has to be seen: the pod runs
// long after its deadline as if it had not been deleted, while containerd and the shim answer.
var KubeletSyncLoopStalled = &diagnose.Rule{
	Cause:  "KubeletSyncLoopStalled",
	Phases: []diagnose.Phase{diagnose.Delivery, diagnose.StopSignal, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Kubelet, evidence.Processes, evidence.Containers, evidence.Shims},
	Partly: []evidence.Source{evidence.NodeObject},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the kubelet's main loop is stalled",
		Message:   "the kubelet's main loop is stalled, so it stops no pod: {why}",
		Phrases: map[string][]diagnose.Choice{
			"why": {
				{Variant: notSeen, Text: "its health check (syncloop) has seen no round for at least five minutes. " +
					"What blocks the loop is not visible, possibly a device plugin"},
				{Text: "thread {thread} is blocked on {what} of a removed pod ({function})"},
			},
			"what": {
				{Text: "volume {volume} ({fstype})"},
				{Text: "the {fstype} volume mounted at {mountpoint}"},
			},
			"proof": {
				{Variant: notSeen, Text: "The check syncloop of the kubelet's /healthz fails in readings ten seconds or more apart, while the Node is Ready"},
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
		First: "make {behind} respond again; the kubelet then resumes by itself and stops the pods",
		Meaning: "The kubelet hears of a deletion in its main loop. In between, the same loop looks at the directories of pods that are gone, to remove them. " +
			"When something is mounted there of which the server or daemon does not answer, the loop hangs. " +
			"Pods keep running as they were: none is started, stopped or removed. The node stays Ready, and the kubelet's health check fails only after five minutes.",
		Evidence: []string{"A thread of the kubelet has been blocked for 45 seconds or more, without moving, in a system call on a volume below the directory of a pod that the API server does not have. " +
			"A thread that does something else there than to ask whether the path exists (stat, statx) is another one than the loop's, and so is one that does other things than statx on a volume that is not CSI's. " +
			"The pod is 45 seconds past its deadline, its containers run, and SIGKILL has not been sent, though containerd and the shim answer. " +
			"The kubelet was there before the deletion: one that was started since gives the whole grace period again. " +
			"It is inferred until the kubelet itself says that its loop hangs (check syncloop of its /healthz), which it does after five minutes: another thread of it could hang there. " +
			"Until then it is not said of a pod on whose own volume a thread of the kubelet hangs too. " +
			"It is not said any more when that thread has hung for five and a half minutes and the kubelet still says ok. " +
			"Nor is it said of a static pod, which runs on whatever becomes of its object. " +
			"Where no such thread is seen the kubelet's own word is enough, when two readings, ten seconds or more apart, show it: check syncloop of its /healthz fails. " +
			"It fails too while the loop skips its rounds, as without a list of containers: the Node is not Ready then. It is said when the Node has been Ready for 20 seconds. Nor is it said when a thread of the kubelet hangs elsewhere. " +
			"It is not said when the check was well more than five minutes after the deletion: the loop has come round since. " +
			"Where the kubelet says so it is also said of a pod of which nothing is on the node and of which the kubelet has written nothing."},
		Remedy: "Make {behind} respond again. The kubelet then resumes by itself and stops the pods. " +
			"A restart of the kubelet helps only for a short time: it stops what has been deleted by then, and soon hangs there again.",
		Danger: "Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice.",
		Families: []diagnose.Family{{
			Name: notSeen,
			Meaning: "The kubelet's main loop has not come round for five minutes. What it waits for is none of what nodeagent sees. " +
				"Before the loop starts a pod that needs devices, it asks a device plugin for them, and waits for the answer without a limit. The plugin may be stopped, or hang itself. " +
				"Pods keep running as they were: none is started, stopped or removed. The node stays Ready.",
			First: "kubectl get pods -A --field-selector spec.nodeName={node},status.phase=Pending; check the plugin of the device such a pod requests",
			Remedy: "Find the pod that the kubelet waits to start: kubectl get pods -A --field-selector spec.nodeName={node},status.phase=Pending. " +
				"It has a resource of a device plugin in its limits. On the node, find that plugin's process: ps -eo pid,stat,comm. " +
				"If it is in state T, continue it. Else ask the plugin's owner, then end that process. The kubelet then resumes by itself. " +
				"Deleting the plugin's pod has no effect while the loop is stalled. If there is no such pod: systemctl restart kubelet on the node.",
			Danger: "Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice. " +
				"The pod that waits for the device is rejected when the plugin's process exits or the kubelet is restarted.",
		}, {
			Name:    fact.FamilyFUSE,
			Meaning: "A FUSE daemon, such as that of a CSI driver, does not answer. A daemon that has ended cannot be started again for a mount that is there.",
			First:   "on the node: find that volume's FUSE daemon in ps -eo pid,stat,comm, and why it does not respond",
			Avoid:   "aborting the FUSE connection unasked (loses pending writes)",
			Remedy: "On the node: find the volume's FUSE daemon in ps -eo pid,stat,comm, and why it does not respond. " +
				"If it cannot respond any more, ask the owners of all pods that use that file system. Then let its requests fail, on the node: {abort}. The kubelet then resumes by itself. " +
				"A restart of the kubelet helps only for a short time: it stops what has been deleted by then, and soon hangs there again.",
			Danger: "Aborting a connection affects every user of that file system, running pods included; pending writes are lost. " +
				"Do not force-delete the pods of this node: their containers keep running. A StatefulSet then starts the same pod twice.",
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		return diagnose.Result{Found: stalled(p), Open: mayStall(p)}
	},
}

// stalled returns the finding of a loop that hangs.
func stalled(p *fact.View) []diagnose.Finding {
	k := &p.Node.Kubelet
	if !awaitsLoop(p) || !p.Kill.Known || k.Process == nil || fact.Halted(k.Process) {
		return nil
	}
	if t := onStranger(p); t != nil {
		return stalledOn(p, t)
	}
	if !k.LoopStalls() || fact.OfNode(p, k.StalledSince) < fact.SlowDevice || cameRound(p) || maySkip(p) || seenToHang(p) {
		return nil
	}
	return []diagnose.Finding{{Confidence: diagnose.Proved, Family: notSeen, Objects: diagnose.Objects{Node: p.Node.Name}}}
}

// awaitsLoop reports whether the pod may wait for the kubelet's main loop: it is late, and as if nobody had asked for its end.
func awaitsLoop(p *fact.View) bool {
	return !p.Mirror && p.Overdue() >= stalls && (p.Delivery.Untouched || notBegun(p))
}

// stalledOn returns the finding of a loop of which that thread hangs on the volume of a pod that is gone.
func stalledOn(p *fact.View, t *evidence.Task) []diagnose.Finding {
	k := &p.Node.Kubelet
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Mount: diagnose.MountOf(p, t.Probe.Mount)}}
	switch {
	case k.LoopStalls():
		f.Confidence = diagnose.Proved
	case !p.Delivery.Untouched: // nobody knows what a pod waits for that was never begun with
		return nil
	case fact.KubeletBusyWithVolume(p) != nil && !fact.OnlyCounted(p): // the pod's own worker may hang, and the loop go on
		return nil
	case k.Health == fact.KubeletHealthy && t.Unchanged(p.Time) >= loopTold: // the kubelet would say so by now
		return nil
	}
	if f.Objects.Mount.Family == fact.FamilyFUSE {
		f.Family = fact.FamilyFUSE
	}
	return []diagnose.Finding{f}
}

// mayStall says that the loop may hang on what only the kubelet tells of, and does not tell yet,
// or to nobody who asks.
func mayStall(p *fact.View) []diagnose.Open {
	k := &p.Node.Kubelet
	told := k.Health != "" && p.Time.Sub(p.DeletionRequested) >= loopTold
	if !awaitsLoop(p) || k.LoopStalls() || told {
		return nil
	}
	return []diagnose.Open{diagnose.NotRead(p, evidence.Kubelet)} // nobody waits for what it may never tell
}

// loopRound is for how long the loop must not have come round for the kubelet's health check to fail.
const loopRound = 5 * time.Minute

// cameRound reports whether the loop, which hangs now, still came round some time after the deletion:
// it has had the pod stopped then, and something else holds it.
func cameRound(p *fact.View) bool {
	well := p.Node.Kubelet.StalledAfter
	return !well.IsZero() && well.Add(-loopRound).Sub(p.DeletionRequested) > fact.KillLatency
}

// maySkip reports whether the loop may not hang but skip its rounds, which fails the same health check:
// it does when PLEG is not healthy or containerd's status is not known, and the kubelet makes the
// Node not Ready then (syncLoop, pkg/kubelet/kubelet.go; runtimeErrors, pkg/kubelet/runtime.go). When the Node
// is Ready again, the loop may sleep for five seconds more.
func maySkip(p *fact.View) bool {
	r := p.Node.Ready
	return r == nil || r.Status != "True" || fact.OfNode(p, r.Transition) < fact.Restart && !r.Transition.IsZero()
}

// seenToHang reports whether a thread of the kubelet hangs on what the loop may wait for: anything but
// the volume of a pod that is in the API, which the loop does not look at, or a umount.
func seenToHang(p *fact.View) bool {
	k := &p.Node.Kubelet
	return k.Error != "" || slices.ContainsFunc(k.Blocked, func(t evidence.Task) bool {
		if t.Probe == nil || t.Probe.VolumePath == "" {
			return t.Unchanged(p.Time) >= fact.LeastStill && (t.Probe == nil || t.Probe.Syscall != "umount2")
		}
		return t.Probe.Syscall != "umount2" && slices.ContainsFunc(k.Strangers, func(uid string) bool { return strings.Contains(t.Probe.VolumePath, "/pods/"+uid+"/") })
	})
}

// notBegun reports whether nothing of a pod is on the node, and the kubelet has written nothing of
// it, as of one that it has not begun to start.
func notBegun(p *fact.View) bool {
	return p.Phase == "Pending" && p.NothingLeft() && fact.RuntimeIdle(p) && !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.ID != "" || c.Waiting || c.Running || c.Exit != nil
	})
}

// stalls is for how long a thread of the kubelet must have been blocked, and the pod be past
// its deadline: such threads are looked at only while a pod is.
const stalls = 45 * time.Second

// loopTold is for how long the loop may hang until the kubelet's health check says so: five minutes
// as a rule (SyncLoopHealthCheck, pkg/kubelet/kubelet.go), with the time of a reading.
const loopTold = 330 * time.Second

// onStranger returns a thread of the kubelet that has been blocked for long on a volume of a pod
// that is not in the API; of several the one that has been so for the longest time.
func onStranger(p *fact.View) *evidence.Task {
	var first *evidence.Task
	k := &p.Node.Kubelet
	for i := range k.Blocked {
		t := &k.Blocked[i]
		if t.Probe == nil || t.Probe.Mount == nil || t.Unchanged(p.Time) < stalls || !asks(t) ||
			!slices.ContainsFunc(k.Strangers, func(uid string) bool { return strings.Contains(t.Probe.VolumePath, "/pods/"+uid+"/") }) {
			continue
		}
		if first == nil || t.UnchangedSince.Before(first.UnchangedSince) {
			first = t
		}
	}
	return first
}

// asks reports whether a thread can be the main loop's, by what it asks of a volume: PathExists
// and then IsLikelyNotMountPoint of one that is CSI's, and the latter alone, with statx, of others
// (getMountedVolumePathListFromDisk, pkg/kubelet/kubelet_getters.go; k8s.io/mount-utils). Others
// that take a volume down, remove what is left of it or look how full it is, hang there without
// the loop.
func asks(t *evidence.Task) bool {
	switch t.Probe.Syscall {
	case "statx":
		return true
	case "stat", "lstat", "newfstatat":
		return strings.Contains(t.Probe.VolumePath, "/kubernetes.io~csi/")
	}
	return false
}
