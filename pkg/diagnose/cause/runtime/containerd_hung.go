package runtime

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ContainerdHung is a containerd that accepts questions and does not answer.
var ContainerdHung = &diagnose.Rule{
	Cause:  "ContainerdHung",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd accepts requests and does not answer",
		Message: "containerd{which} does not answer: repeated requests have got no answer since {since}. The kubelet cannot stop any container of this node",
		Phrases: map[string][]diagnose.Choice{"which": {
			{Variant: diagnose.Stopped, Text: " (PID {pid}, stopped by a signal)"},
			{Text: " (PID {pid})"},
			{Text: ""},
		}},
		Meaning: "The kubelet stops containers through containerd. While containerd hangs, no pod of the node can end, and after some two minutes the node turns NotReady (container runtime is down).",
		Evidence: "Requests for its version and for a record that does not exist were not answered within two seconds, though the socket accepts connections: " +
			"two of them, three seconds or more apart, when its process is stopped or for ten seconds in uninterruptible sleep, else three over " +
			"" + fact.Answer.String() + ". " +
			"A containerd that is not running refuses the connection and is a different cause; a single shim that hangs leaves containerd itself answering (ShimHung).",
		Remedy: "On the node: save a goroutine dump, which goes to containerd's log: {dump}; then, if its unit has KillMode=process, systemctl restart containerd. Containers keep running through the restart.",
		Danger: "Do not kill containerd-shim processes and do not reboot before the dump is saved. Without KillMode=process in containerd's unit, a restart kills every container. " +
			"A force delete leaves the containers running, unseen.",
		Families: []diagnose.Family{
			{
				Name:    diagnose.Stopped,
				Meaning: "containerd's process is stopped: somebody or something sent it SIGSTOP.",
				Remedy:  "On the node: {continue}; containerd continues immediately. Then find who stopped it.",
			},
			{
				Name:    "Blocked",
				Meaning: "containerd's main thread is in uninterruptible sleep: as a rule its own storage does not answer.",
				Remedy:  "On the node: repair the storage below containerd's root directory; the thread sleeps in {function}. With fanotify there a program that scans files, such as a virus scanner, has not answered: restart that. A restart of containerd cannot end a process in this state.",
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
