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
	Needs:  []evidence.Source{evidence.Kubelet, evidence.Processes, evidence.Containers, evidence.Shims},
	Partly: []evidence.Source{evidence.NodeObject},
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
		Evidence: []string{
			"The pod is 45 seconds past its deadline. Its containers run, and SIGKILL has not been sent, though containerd and the shim " +
				"respond.",
			"A kubelet thread has been blocked for 45 seconds or more, without moving, in a system call on a volume below a pod's " +
				"directory. The API server does not have that pod.",
			"The system call checks whether the path exists: stat or statx on a CSI volume, only statx on other volumes. A thread in " +
				"another system call is not the main loop's.",
			"The kubelet was there before the deletion. One that was started since gives the whole grace period again.",
			"It is inferred until the kubelet itself reports that its loop hangs (check syncloop of its /healthz), which it does after " +
				"five minutes. Another thread of it could hang there.",
			"Without such a thread: check syncloop of /healthz fails in two readings ten seconds or more apart, and the Node has been " +
				"Ready for 20 seconds. While the loop only skips rounds, as without a list of containers, the Node is not Ready.",
			"If the check fails, it is also reported for a pod that has nothing on the node and about which the kubelet has written " +
				"nothing.",
			"Not reported for a static pod, which runs whatever happens to its object. Until the check fails, not reported for a pod on " +
				"whose own volume a kubelet thread hangs too.",
			"Not reported if the thread has hung for five and a half minutes and the kubelet still reports ok.",
			"Without such a thread, not reported if a kubelet thread hangs elsewhere. Nor if the check was ok more than five minutes " +
				"after the deletion: the loop has come round since.",
		},
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

// awaitsLoop reports whether the pod may wait for the kubelet's main loop: it is late, and nothing has begun to stop it.
func awaitsLoop(p *fact.View) bool {
	return !p.Mirror && p.Overdue() >= stalls && (p.Delivery.NoStopSeen || notBegun(p))
}

// stalledOn returns the finding of a loop whose thread hangs on the volume of a pod that is gone.
func stalledOn(p *fact.View, t *evidence.Task) []diagnose.Finding {
	k := &p.Node.Kubelet
	f := diagnose.Finding{Confidence: diagnose.Inferred, Objects: diagnose.Objects{Thread: diagnose.ThreadOf(t), Mount: diagnose.MountOf(p, t.Probe.Mount)}}
	switch {
	case k.LoopStalls():
		f.Confidence = diagnose.Proved
	case !p.Delivery.NoStopSeen: // what a pod waits for that was never started is not known
		return nil
	case fact.KubeletBusyWithVolume(p) != nil && !fact.OnlyCounted(p): // the pod's own worker may hang, and the loop work
		return nil
	case k.Health == fact.KubeletHealthy && t.Unchanged(p.Time) >= loopTold: // the health check would fail by now
		return nil
	}
	if f.Objects.Mount.Family == fact.FamilyFUSE {
		f.Family = fact.FamilyFUSE
	}
	return []diagnose.Finding{f}
}

// mayStall returns what is open while the loop may hang on what only the kubelet's health check shows, and that does not fail yet or cannot be
// read.
func mayStall(p *fact.View) []diagnose.Open {
	k := &p.Node.Kubelet
	told := k.Health != "" && p.Time.Sub(p.DeletionRequested) >= loopTold
	if !awaitsLoop(p) || k.LoopStalls() || told {
		return nil
	}
	return []diagnose.Open{diagnose.OpenUnread(p, evidence.Kubelet)} // without a time: it may never be readable
}

// loopRound is for how long the loop must not have come round for the kubelet's health check to fail.
const loopRound = 5 * time.Minute

// cameRound reports whether the loop, which hangs now, still came round some time after the deletion. It has then had the pod stopped, and
// something else holds the pod.
func cameRound(p *fact.View) bool {
	well := p.Node.Kubelet.StalledAfter
	return !well.IsZero() && well.Add(-loopRound).Sub(p.DeletionRequested) > fact.KillLatency
}

// maySkip reports whether the loop may only skip its rounds, which fails the same health check. It skips them when PLEG is not healthy or
// containerd's status is not known. The kubelet then makes the Node not Ready (syncLoop, pkg/kubelet/kubelet.go; runtimeErrors,
// pkg/kubelet/runtime.go). When the Node is Ready again, the loop may sleep for five seconds more.
func maySkip(p *fact.View) bool {
	r := p.Node.Ready
	return r == nil || r.Status != "True" || fact.OfNode(p, r.Transition) < fact.Restart && !r.Transition.IsZero()
}

// seenToHang reports whether a thread of the kubelet hangs on what the loop may wait for. That is anything but an umount, or the volume of a pod that
// is in the API, which the loop does not look at.
func seenToHang(p *fact.View) bool {
	k := &p.Node.Kubelet
	return k.Error != "" || slices.ContainsFunc(k.Blocked, func(t evidence.Task) bool {
		if t.Probe == nil || t.Probe.VolumePath == "" {
			return t.Unchanged(p.Time) >= fact.LeastStill && (t.Probe == nil || t.Probe.Syscall != "umount2")
		}
		return t.Probe.Syscall != "umount2" && slices.ContainsFunc(k.Strangers,
			func(uid string) bool { return strings.Contains(t.Probe.VolumePath, "/pods/"+uid+"/") })
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

// onStranger returns the thread of the kubelet that has been blocked longest on a volume of a pod that is not in the API; nil when none has been for
// long.
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

// asks reports whether a thread can be the main loop's, by its system call on a volume. The loop calls PathExists and then IsLikelyNotMountPoint on a
// CSI volume, and only the latter, with statx, on others (getMountedVolumePathListFromDisk, pkg/kubelet/kubelet_getters.go; k8s.io/mount-utils).
// Threads that tear a volume down, remove what is left of it or check how full it is hang there without the loop.
func asks(t *evidence.Task) bool {
	switch t.Probe.Syscall {
	case "statx":
		return true
	case "stat", "lstat", "newfstatat":
		return strings.Contains(t.Probe.VolumePath, "/kubernetes.io~csi/")
	}
	return false
}
