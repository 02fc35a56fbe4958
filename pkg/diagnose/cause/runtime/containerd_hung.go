package runtime

import (
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
		Evidence: []string{
			"containerd's socket accepts connections.",
			"A request for containerd's version, or for a record that does not exist in its metadata database, gets no response within two " +
				"seconds.",
			"Family Stopped: containerd's process is stopped. Two such requests, three seconds or more apart, are then enough.",
			"Family Blocked: containerd's main thread has been in uninterruptible sleep (D state) for ten seconds. Two such requests are enough " +
				"here as well.",
			"In all other cases, three such requests over " + fact.Answer.String() + " get no response.",
			"Not reported if containerd is not running: it then refuses connections, which is another cause (ContainerdDown).",
			"Not reported if only a single shim hangs: containerd itself then still responds (ShimHung).",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		c := p.Node.Containerd
		if c.Refused || c.UnansweredSince.IsZero() || c.Attempts < 2 || p.Time.Sub(c.UnansweredSince) < fact.LeastStill {
			return diagnose.Result{}
		}
		stopped := c.Process != nil && c.Process.State == evidence.Stopped && c.Process.Unchanged(p.Time) >= fact.LeastStill
		// A slow disk keeps a thread for longer than that, too.
		blocked := c.Process != nil && c.Process.State == evidence.Uninterruptible && !p.Pressed &&
			c.Process.Unchanged(p.Time) >= max(fact.Motionless(c.Process), fact.SlowDevice)
		if !stopped && !blocked && (c.Attempts < 3 || !fact.SilentForLong(p, c.UnansweredSince, c.Asked)) {
			return diagnose.Result{} // a busy node
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: c.UnansweredSince}}
		if c.Process != nil {
			f.Objects.Process = diagnose.ProcessOf(p, c.Process)
		}
		switch {
		case stopped:
			f.Family = diagnose.Stopped
		case blocked:
			f.Family = "Blocked"
			f.Objects.Thread = diagnose.ThreadOf(c.Process)
		}
		return diagnose.Found(f)
	},
}
