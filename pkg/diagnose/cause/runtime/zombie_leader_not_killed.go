package runtime

import (
	"slices"
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
	Doc: diagnose.Doc{
		Layer: "runtime",
		Title: "runc does not kill a container whose main thread has exited",
		Who:   diagnose.ByNode,
		Message: "container {container}: {program} (PID {pid}) still runs without its main thread, " +
			"so the container runtime believes it has stopped and sent no SIGKILL",
		Meaning: "The program's first thread has exited with pthread_exit or exit(2) and its other threads still run, which is allowed. The process " +
			"then shows as a zombie until the last thread has exited. By that state alone, runc decides that the container has stopped. It " +
			"sends no more signals to it, not even SIGKILL at the end of the grace period. The shim waits for an exit that never comes.",
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
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes},
		Of:   zombieLeaders,
		Facts: []diagnose.Fact[*evidence.Task]{
			{
				Says: "The process in state Z is in a container other than the pod's sandbox.",
				Is:   diagnose.If(inContainer), From: []evidence.Source{evidence.Containers},
			},
			{Says: "It is the first process (PID 1) of a PID namespace.", Is: diagnose.If(isNamespaceInit)},
			{Says: "Its parent is not in the pod, so that it is the container's first process.", Is: diagnose.If(parentIsOutside)},
			{Says: "It has more than one thread left.", Is: diagnose.If(hasThreads)},
			{Says: "No tracer, such as a debugger, has it.", Is: diagnose.If(isNotTraced)},
			{
				Says: "The shim says that the container runs.",
				Is:   diagnose.If(itsShimSaysRunning), From: []evidence.Source{evidence.Containers, evidence.Shims},
			},
			{
				Says: "No thread has a pending SIGKILL, or had one. With SIGKILL pending in a thread that hangs, it is ThreadStuckBehindZombieLeader.",
				Is:   diagnose.If(noThreadKilled),
			},
			{
				Says: "No thread but the first is exiting, or was: SIGKILL leaves no trace there.",
				Is:   diagnose.If(noThreadExits), From: []evidence.Source{evidence.Suspects},
			},
			{
				Says: "What at least one thread but the first does is known: it runs, or its stat could be read.",
				Is:   threadIsKnown, From: []evidence.Source{evidence.Suspects},
			},
			{
				Says: "Other threads than those of io_uring are left. io_uring threads take SIGKILL, and continue until their requests have ended.",
				Is:   diagnose.If(notOnlyRings), From: []evidence.Source{evidence.Suspects},
			},
			{Says: "Two readings show the same.", Is: zombieForLong},
			{Says: "The deadline is ten seconds past.", Pod: killIsDue},
			{
				Says: "The kubelet runs: its main thread is there, and not in uninterruptible sleep (D state).",
				Pod:  diagnose.IfPodLater(kubeletRuns, diagnose.Late), From: []evidence.Source{evidence.Kubelet},
			},
			{
				Says: "The kubelet is healthy, and was there before the deletion. Or it was restarted since, and has had the time to kill the pod again. " +
					"So the signal is not late for another reason.",
				Pod: diagnose.IfPodLater(killIsDelivered, diagnose.Late), From: []evidence.Source{evidence.Kubelet},
			},
			{Says: "On the node, runc --root /run/containerd/runc/k8s.io list shows the container as stopped."},
		},
		Tell: diagnose.Each(tellNotKilled),
	},
}

// zombieLeaders returns the processes of the pod in state Z.
func zombieLeaders(p *fact.View) (out []*evidence.Task) {
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Leader() && t.State == evidence.Zombie {
			out = append(out, t)
		}
	}
	return out
}

func inContainer(p *fact.View, t *evidence.Task) bool {
	c, ok := p.Container(t.Container)
	return ok && c.Kind != evidence.Sandbox
}

func isNamespaceInit(_ *fact.View, t *evidence.Task) bool { return t.NamespaceInit() }

func parentIsOutside(p *fact.View, t *evidence.Task) bool { return !fact.Foreign(p, t) }

func hasThreads(_ *fact.View, t *evidence.Task) bool { return t.Threads > 1 }

func isNotTraced(_ *fact.View, t *evidence.Task) bool { return t.TracerPID == 0 }

func itsShimSaysRunning(p *fact.View, t *evidence.Task) bool {
	c, ok := p.Container(t.Container)
	return ok && c.Task.Status == running
}

// noThreadKilled reports whether SIGKILL neither is nor was pending in a thread of the process.
func noThreadKilled(p *fact.View, leader *evidence.Task) bool {
	return !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.PID == leader.PID && (t.Killed() || t.WasKilled) })
}

// noThreadExits reports whether no thread other than the first is or was inside do_exit, where SIGKILL leaves no trace.
func noThreadExits(p *fact.View, leader *evidence.Task) bool {
	return !slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.PID == leader.PID && !t.Leader() && (fact.Exits(&t) || t.WasExiting)
	})
}

// threadIsKnown answers whether a thread other than the first is known not to be there. A sleeping thread of which stat
// could not be read, because it had gone or the node was too slow, may be.
func threadIsKnown(p *fact.View, leader *evidence.Task) diagnose.Holding {
	if slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool {
		return t.PID == leader.PID && !t.Leader() && (t.State == evidence.Runnable || t.Probe != nil && t.Probe.Start != 0)
	}) {
		return diagnose.Is(true)
	}
	return diagnose.NotRead("")
}

// notOnlyRings reports whether not only io_uring threads are left of a process whose leader has
// exited. They take SIGKILL and continue until their requests have ended (io_sq_thread,
// io_uring/sqpoll.c). One that was not probed, because it runs, is recognised by its name.
func notOnlyRings(p *fact.View, leader *evidence.Task) bool {
	some := false
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.PID != leader.PID || t.Leader() || t.State == evidence.Zombie || t.State == evidence.Dead {
			continue
		}
		if !t.IOWorker() && (t.Probe != nil || !strings.HasPrefix(t.Comm, "iou-")) {
			return true
		}
		some = true
	}
	return !some
}

func zombieForLong(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.LeastStill)
}

func killIsDue(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Deadline, fact.KillLatency, diagnose.Late)
}

func kubeletRuns(p *fact.View) bool {
	k := p.Node.Kubelet.Process
	return k != nil && k.State != evidence.Uninterruptible
}

// killIsDelivered reports whether the kubelet has had the pod killed. One that was started since the deletion has it killed once more.
func killIsDelivered(p *fact.View) bool {
	return p.Delivery.Likely || !p.Kill.Stayed && p.Kill.Done && p.Shim.State == fact.Acts
}

func tellNotKilled(p *fact.View, t *evidence.Task) diagnose.Finding {
	return diagnose.Finding{Container: p.ContainerName(t), Confidence: diagnose.Inferred, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t)}}
}
