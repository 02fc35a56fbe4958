package runtime

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZombieLeaderNotKilled is a container that runc takes for stopped, because its main thread
// has exited. Other threads still run.
var ZombieLeaderNotKilled = &diagnose.Rule{
	Cause:  "ZombieLeaderNotKilled",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Shims, evidence.Kubelet},
	Doc: diagnose.Doc{
		Layer: "runtime",
		Title: "runc does not kill a container whose main thread has exited",
		Who:   diagnose.ByNode,
		Message: "container {container}: {program} (PID {pid}) still runs without its main thread, " +
			"so the container runtime believes it has stopped and sent no SIGKILL",
		Meaning: "The program's first thread has exited with pthread_exit or exit(2) and its other threads still run, which is allowed. The process " +
			"then shows as a zombie until the last thread has exited. By that state alone, runc decides that the container has stopped. It " +
			"sends no more signals to it, not even SIGKILL at the end of the grace period. The shim waits for an exit that never comes.",
		Evidence: []string{
			"The container's first process is in state Z, with more than one thread left.",
			"No thread has a pending SIGKILL, although the deadline is ten seconds past.",
			"Two readings show the same.",
			"The kubelet runs, is healthy, and was there before the deletion. The shim says that the container runs. So the signal is not late " +
				"for another reason.",
			"On the node, runc --root /run/containerd/runc/k8s.io list shows the container as stopped.",
			"Not reported if SIGKILL is pending in a thread that hangs: that is ThreadStuckBehindZombieLeader.",
			"Not reported if only io_uring threads of the process are left: these take SIGKILL, and continue until their requests have ended.",
		},
		Seen: []string{
			"PID {pid} is a zombie with other threads left, and none of them has a pending SIGKILL",
			"The shim says that container {container} runs",
		},
		First: "on the node, as root: {terminate}. " +
			"If it still runs after a minute: with the app owner's OK, SIGKILL (Fix)",
		Avoid: "SIGKILL first (loses unwritten data)",
		Remedy: "On the node: {terminate}. runc may not have sent the stop signal either, so this lets the threads finish. " +
			"If they still run after a minute, send the signal that runc did not: {kill}. The pod then terminates immediately. " +
			"For the next time, let the program's main thread wait for its other threads.",
		Danger: "SIGKILL loses what the running threads have not written, as at the end of any grace period. " +
			"A force delete leaves them running with no API object tracking them.",
	},
	Check: func(p *fact.View) diagnose.Result {
		// A kubelet that was started since the deletion has it killed once more.
		again := !p.Kill.Stayed && p.Kill.Done && p.Shim.State == fact.Acts
		if k := p.Node.Kubelet.Process; p.Overdue() < fact.KillLatency || k == nil || k.State == evidence.Uninterruptible || !p.Delivery.Likely && !again {
			return diagnose.Result{} // the kubelet may not have had it killed yet
		}
		var out []diagnose.Finding
		for i := range p.Tasks {
			t := &p.Tasks[i]
			c, ok := p.Container(t.Container)
			if !ok || c.Kind == evidence.Sandbox || c.Task.Status != "running" || !t.Leader() || t.State != evidence.Zombie || t.Threads < 2 ||
				!t.NamespaceInit() || fact.Foreign(p, t) || t.TracerPID != 0 || t.Unchanged(p.Time) < fact.LeastStill || mayBeKilled(p, t.PID) || onlyRings(p, t) {
				continue
			}
			out = append(out, diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t)}})
		}
		return diagnose.Found(out...)
	},
}

// mayBeKilled reports whether SIGKILL is or was pending in a thread of the process, or a thread
// other than the first is or was inside do_exit, where SIGKILL leaves no trace. A sleeping thread
// of which stat could not be read, because it had gone or the node was too slow, may be there, too.
func mayBeKilled(p *fact.View, pid int) bool {
	known := false
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.PID != pid {
			continue
		}
		if t.Killed() || t.WasKilled || !t.Leader() && (fact.Exits(t) || t.WasExiting) {
			return true
		}
		known = known || !t.Leader() && (t.State == evidence.Runnable || t.Probe != nil && t.Probe.Start != 0)
	}
	return !known
}

// onlyRings reports whether only io_uring threads are left of a process whose leader has
// exited. They take SIGKILL and continue until their requests have ended (io_sq_thread,
// io_uring/sqpoll.c). One that was not probed, because it runs, is recognised by its name.
func onlyRings(p *fact.View, leader *evidence.Task) bool {
	some := false
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.PID != leader.PID || t.Leader() || t.State == evidence.Zombie || t.State == evidence.Dead {
			continue
		}
		if !t.IOWorker() && (t.Probe != nil || !strings.HasPrefix(t.Comm, "iou-")) {
			return false
		}
		some = true
	}
	return some
}
