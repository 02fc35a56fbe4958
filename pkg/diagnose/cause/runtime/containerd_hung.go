package runtime

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ContainerdHung is a containerd that accepts requests and does not respond.
var ContainerdHung = &diagnose.Rule{
	Cause:  "ContainerdHung",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Doc: diagnose.Doc{
		Layer:     "runtime",
		WholeNode: true,
		Title:     "containerd accepts connections but does not respond",
		Who:       diagnose.ByNode,
		Message:   "{how}. The kubelet can stop no container",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: diagnose.Stopped, Text: "containerd (PID {pid}) is paused (SIGSTOP or similar) and has not responded since {since}"},
				{Variant: blocked, Text: "containerd (PID {pid}) has not responded since {since}: its main thread hangs in the kernel (D state)"},
				{Text: "containerd (PID {pid}) accepts connections but has not responded since {since}"},
				{Text: "containerd accepts connections but has not responded since {since}"},
			},
			"state": {
				{Variant: diagnose.Stopped, Text: "Its process (PID {pid}) is in state T (stopped)"},
				{Variant: blocked, Text: "Its main thread {thread} is in D state in {function}"},
				{Text: "Its process (PID {pid}) exists"},
			},
			"save": {{Text: "{dump}"}, {Text: "send SIGUSR1 to containerd"}},
		},
		Meaning: "The kubelet stops containers through containerd. While containerd hangs, no pod on the node can terminate. After some two minutes, " +
			"the node turns NotReady (container runtime is down).",
		Seen: []string{"Its socket accepts connections, but repeated requests have had no response since {since}", "{state}"},
		First: "on the node, as root: save the dump and do the check under Fix. Restart containerd only if it passes. " +
			"If not, wait, and ask the node team",
		Avoid: "restarting containerd before that check (can end all pods)",
		Remedy: "On the node: save a goroutine dump, which goes to containerd's log: {save}. " +
			"Then, if systemctl show -p KillMode containerd prints KillMode=process: systemctl restart containerd. " +
			"Containers then keep running through the restart. If it hangs again, report the dump to the maintainers of containerd.",
		Danger: "Do not restart containerd with a KillMode other than process: that kills every container on the node. Do not kill " +
			"containerd-shim processes: that ends their containers. " +
			"Do not reboot before the dump is saved. A force delete leaves the containers running with no API object tracking them.",
		Families: []diagnose.Family{
			{
				Name:    diagnose.Stopped,
				Meaning: "containerd's process is stopped: a user or a program sent it SIGSTOP.",
				First:   resumes,
				Avoid:   "restarting containerd (can end all pods)",
				Remedy:  "On the node: {continue}. containerd resumes immediately, and the kubelet then stops the pod. Then find out who stopped it.",
				Danger: "Do not restart containerd with a KillMode other than process: that kills every container on the node. " +
					"Do not kill containerd-shim processes: that ends their containers. Do not reboot the node: that ends all its pods. " +
					"A force delete leaves the containers running with no API object tracking them.",
			},
			{
				Name:    blocked,
				Meaning: "containerd's main thread is in uninterruptible sleep (D state). As a rule, its own storage does not respond.",
				First: "on the node, as root: if dmesg or iostat -x 1 shows that containerd's disk hangs, ask the storage team to repair it. " +
					"If not: Fix",
				Avoid: "restarting containerd (no help, can end all pods)",
				Remedy: "On the node: repair the storage of containerd's root directory (dmesg and iostat -x 1 show its errors and load). " +
					"The thread sleeps in {function}. If that is a fanotify function, a permission listener (antivirus, EDR) has not responded: restart that listener. " +
					"Restarting containerd cannot end a process in D state.",
			},
		},
	},
	By: diagnose.Ways{
		diagnose.By[*evidence.Task]{
			Title:  "If containerd's process is stopped (family Stopped)",
			Partly: ofContainerd,
			Of:     containerdProcess,
			Facts: slices.Concat(silent[*evidence.Task](), silentTwice, []diagnose.Fact[*evidence.Task]{
				{Says: "The process is stopped (state T).", Is: diagnose.If(isStopped)},
				{Says: "It has been so for three seconds.", Is: stoppedForLong},
			}),
			Tell: diagnose.Each(tellHungAsStopped),
		},
		diagnose.By[*evidence.Task]{
			Title:  "If containerd's main thread hangs in the kernel (family Blocked)",
			Partly: ofContainerd,
			Of:     containerdProcess,
			Facts: slices.Concat(silent[*evidence.Task](), silentTwice, []diagnose.Fact[*evidence.Task]{
				{Says: "The main thread is in uninterruptible sleep (D state).", Is: diagnose.If(isBlocked)},
				{
					Says: "The node is not under pressure (PSI): a slow disk keeps a thread in D state, too.",
					Pod:  diagnose.IfPodLater(notPressed, diagnose.Slow),
				},
				{Says: "The main thread has been in D state for ten seconds. For longer, where it waits for what may be slow.", Is: blockedForLong},
			}),
			Tell: diagnose.Each(tellHungAsBlocked),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "In all other cases",
			Facts: append(silent[diagnose.ThePod](), []diagnose.Fact[diagnose.ThePod]{
				{Says: "Three such requests or more have had no response.", Pod: silentThrice},
				{Says: "This has been so for " + fact.Answer.String() + ". A busy node responds late.", Pod: unansweredForLong, Partly: ofContainerd},
				{Says: "The process is not held in one of the other two ways.", Pod: diagnose.IfPod(notHeld)},
			}...),
			Tell: diagnose.OfPod(tellHung),
		},
	},
}

// ofContainerd is the source of what is known of containerd itself.
var ofContainerd = []evidence.Source{evidence.Containerd}

// silent are the facts about a containerd that does not respond, and silentTwice those where two requests are enough.
func silent[T any]() []diagnose.Fact[T] {
	return []diagnose.Fact[T]{
		{
			Says: "containerd's socket accepts connections. A containerd that is not running refuses them, which is another cause (ContainerdDown).",
			Pod:  diagnose.IfPod(accepts), Partly: ofContainerd,
		},
		{
			Says: "A request for containerd's version, or for a record that does not exist in its metadata database, gets no response within two " +
				"seconds. If only a single shim hangs, containerd itself still responds (ShimHung).",
			Pod: diagnose.IfPod(isSilent), Partly: ofContainerd,
		},
	}
}

var silentTwice = []diagnose.Fact[*evidence.Task]{
	{Says: "Two such requests or more have had no response.", Pod: unansweredTwice},
	{Says: "The first of them was made three seconds ago or more.", Pod: unansweredApart, Partly: ofContainerd},
}

func accepts(p *fact.View) bool { return !p.Node.Containerd.Refused }

func isSilent(p *fact.View) bool { return !p.Node.Containerd.UnansweredSince.IsZero() }

func unansweredTwice(p *fact.View) diagnose.Holding { return unanswered(p, 2) }

func silentThrice(p *fact.View) diagnose.Holding { return unanswered(p, 3) }

// unanswered answers whether so many requests have had no response: not yet as long as the next one may have none either.
func unanswered(p *fact.View, requests int) diagnose.Holding {
	return diagnose.IsOr(p.Node.Containerd.Attempts >= requests, diagnose.Seen(p, diagnose.Slow))
}

func unansweredApart(p *fact.View) diagnose.Holding {
	return diagnose.Lasted(p, p.Node.Containerd.UnansweredSince, fact.LeastStill, diagnose.Slow)
}

func unansweredForLong(p *fact.View) diagnose.Holding {
	return silentForLong(p, p.Node.Containerd.UnansweredSince, diagnose.Slow)
}

func isStopped(_ *fact.View, t *evidence.Task) bool { return t.State == evidence.Stopped }

func stoppedForLong(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, fact.LeastStill)
}

func isBlocked(_ *fact.View, t *evidence.Task) bool { return t.State == evidence.Uninterruptible }

func notPressed(p *fact.View) bool { return !p.Pressed }

func blockedForLong(p *fact.View, t *evidence.Task) diagnose.Holding {
	return diagnose.Still(p, t, max(fact.Motionless(t), fact.SlowDevice))
}

// notHeld reports whether containerd's process is neither stopped nor blocked for long.
func notHeld(p *fact.View) bool {
	return !slices.ContainsFunc(containerdProcess(p), func(t *evidence.Task) bool {
		return isStopped(p, t) && stoppedForLong(p, t).Yes() || isBlocked(p, t) && !p.Pressed && blockedForLong(p, t).Yes()
	})
}

func tellHungAsStopped(p *fact.View, _ *evidence.Task) diagnose.Finding {
	f := tellHung(p)
	f.Family = diagnose.Stopped
	return f
}

func tellHungAsBlocked(p *fact.View, t *evidence.Task) diagnose.Finding {
	f := tellHung(p)
	f.Family, f.Objects.Thread = blocked, diagnose.ThreadOf(t)
	return f
}

func tellHung(p *fact.View) diagnose.Finding {
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: p.Node.Containerd.UnansweredSince}}
	for _, t := range containerdProcess(p) {
		f.Objects.Process = diagnose.ProcessOf(p, t)
	}
	return f
}
