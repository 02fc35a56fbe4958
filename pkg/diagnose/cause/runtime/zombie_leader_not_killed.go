package runtime

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ZombieLeaderNotKilled is a container that runc takes for stopped because its
// first thread has ended, while other threads live.
var ZombieLeaderNotKilled = &diagnose.Rule{
	Cause:  "ZombieLeaderNotKilled",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Shims, evidence.Kubelet},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "runc does not kill a container whose main thread has exited",
		Message: "container {container}: the main thread of {program} (PID {pid}) has exited, but others still run. runc takes it for stopped and never sent SIGKILL",
		Meaning: "The program's first thread has ended with pthread_exit or exit(2) and its other threads still run, which is allowed. " +
			"The process then shows as a zombie until the last thread has ended. runc decides by that state alone that the container has stopped, " +
			"and sends it no signal any more, not even SIGKILL at the end of the grace period; the shim waits for an end that nobody brings about.",
		Evidence: []string{"The container's first process is in state Z with more than one thread left, no thread has SIGKILL pending although the deadline is ten seconds past, " +
			"and two readings show the same. " +
			"The kubelet runs, is well and was there before the deletion, and the shim answers that the container runs, so the signal is not late for another reason. runc --root /run/containerd/runc/k8s.io list on the node shows the container as stopped. " +
			"When SIGKILL is pending in a thread that hangs, it is ThreadStuckBehindZombieLeader. " +
			"Not meant is a process of which only threads of io_uring are left: they take SIGKILL and go on until their requests have ended."},
		Seen: []string{
			"PID {pid} is a zombie with other threads left, and none of them has a pending SIGKILL",
			"The shim says that container {container} runs",
		},
		First: "on the node: {terminate}; if it still runs, see More",
		Avoid: "SIGKILL first (loses unwritten data)",
		Remedy: "On the node: {terminate}. runc may not have sent the stop signal either, so this lets the threads finish. " +
			"If they still run after a minute, send the signal that runc did not: {kill}. The pod then terminates immediately. " +
			"For the next time, let the program's main thread wait for its other threads.",
		Danger: "SIGKILL loses what the running threads have not written, as at the end of any grace period. " +
			"A force delete leaves them running with no API object tracking them.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if k := p.Node.Kubelet.Process; p.Overdue() < fact.KillLatency || k == nil || k.State == evidence.Uninterruptible || !p.Delivery.Likely {
			return diagnose.Result{} // it may not have had it killed yet
		}
		var out []diagnose.Finding
		for i := range p.Tasks {
			t := &p.Tasks[i]
			c, ok := p.Container(t.Container)
			if !ok || c.Kind == evidence.Sandbox || c.Task.Status != "running" || !t.Leader() || t.State != evidence.Zombie || t.Threads < 2 ||
				!t.NamespaceInit() || fact.Foreign(p, t) || t.TracerPID != 0 || t.Unchanged(p.Time) < fact.LeastStill || anyKilled(p, t.PID) || onlyRings(p, t) {
				continue
			}
			out = append(out, diagnose.Finding{Container: c.Name, Confidence: diagnose.Inferred, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t)}})
		}
		return diagnose.Found(out...)
	},
}

// anyKilled reports whether SIGKILL is or was pending in a thread of the process, or
// that a thread besides the first is inside do_exit, where SIGKILL leaves no
// trace.
func anyKilled(p *fact.View, pid int) bool {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.PID == pid && (t.Killed() || t.WasKilled || !t.Leader() && fact.Exits(t)) {
			return true
		}
	}
	return false
}

// onlyRings reports whether all that is left of the process of a leader that has ended are
// threads that io_uring has started. They take SIGKILL and go on until their requests have
// ended (io_sq_thread, io_uring/sqpoll.c). One that was not probed, because it runs, is told by
// its name.
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
