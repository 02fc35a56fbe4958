package runtime

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// ContainerdDown is a containerd that does not run, or runs and does not listen.
var ContainerdDown = &diagnose.Rule{
	Cause:  "ContainerdDown",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.StopSignal, diagnose.Runtime, diagnose.Sandbox, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:     "runtime",
		WholeNode: true,
		Title:     "containerd is down: nothing listens on its socket",
		Message:   "{how}",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: restarts, Text: "containerd keeps exiting: since {since} it was never seen up for a whole minute. The kubelet's stop requests are lost"},
				{Variant: notListening, Text: "nothing has listened on containerd's socket since {since}, although {comm} (PID {pid}) runs. The kubelet can stop no container"},
				{Text: "containerd has been down since {since}: it has no process. The kubelet can stop no container"},
			},
			"seen": {
				{Variant: restarts, Text: "Since {since} containerd has exited at least 3 times, and was never seen responding for a whole minute"},
				{Variant: notListening, Text: "Connections to containerd's socket have failed since {since}; {comm} (PID {pid}) has not listened on it in that time"},
				{Text: "Connections to containerd's socket have failed since {since}, and no process of that name exists"},
			},
		},
		Meaning: "The kubelet stops containers through containerd. While containerd is down, no pod of the node can end. Containers keep running: their shims do not need it.",
		Evidence: []string{"The node refuses connections to containerd's socket, or the socket is gone after containerd has answered there. " +
			"Over twenty seconds there was no process called containerd, or over " + fact.Answer.String() + ", there was one that did not listen. " +
			"A containerd that is restarted listens again sooner. Whether a process of that name is the one that should listen, and not docker's, is not known: of one it is inferred. " +
			"It does not stay up when it has ended three times or more, first three minutes ago, and no reading since has found one that had answered for a minute: nobody listened, or it had been started anew. " +
			"That the pod waits for that is inferred, and not said of one whose processes have been killed. One that accepts requests and does not answer is another cause (ContainerdHung)."},
		Seen:  []string{"{seen}"},
		First: "on the node: journalctl -u containerd -n 100 says why it exited; repair that, then systemctl start containerd",
		Avoid: "killing shims or rebooting (both end running containers)",
		Remedy: "On the node: systemctl status containerd and journalctl -u containerd -n 100 say why it exited. Repair that. Then systemctl start containerd. " +
			"Containers keep running while it starts, and the kubelet then stops the pod. " + otherUnit,
		Danger: "Do not kill containerd-shim processes: that ends their containers. Do not reboot the node: that ends all its pods. " +
			"A force delete leaves the containers running with no API object tracking them.",
		Families: []diagnose.Family{{
			Name: restarts,
			Meaning: "Something ends containerd soon after it is started, and it is started again and again. What the kubelet asks it for is lost each time: " +
				"a stop that waits for the grace period begins anew, and may never get to SIGKILL.",
			First: "on the node: journalctl -u containerd -n 200 says why it exits (panic, configuration, database, out of memory); repair that",
			Remedy: "On the node: journalctl -u containerd -n 200 says why it exits, for example a panic, or an error in its configuration or database. " +
				"journalctl -k shows whether the kernel killed it for lack of memory. " +
				"systemctl show -p Result,NRestarts,MemoryMax,RuntimeMaxUSec containerd shows whether systemd ends it. " +
				"Repair that: the kubelet then stops the pod without further action. " +
				"Containers keep running while it restarts only if systemctl show -p KillMode containerd prints KillMode=process. " + otherUnit,
		}, {
			Name:    notListening,
			Meaning: "containerd has a process that does not listen: it ends and is started again and again, or it waits for something at its start, such as the lock of its metadata database.",
			First:   "on the node: journalctl -u containerd -n 100 shows why it exits or what its start waits for; repair that",
			Remedy: "On the node: journalctl -u containerd -n 100 shows whether containerd keeps exiting, and why, or what its start waits for. Repair that. " +
				"Check for a second containerd with the same root directory: it holds the lock of the metadata database. " +
				"ps -C containerd -o pid,ppid,lstart lists both, and no shims. " +
				"The process named here may also belong to docker. " + otherUnit,
		}},
	},
	Check: func(p *fact.View) diagnose.Result {
		c := &p.Node.Containerd
		refused := c.Refused && !c.RefusedSince.IsZero()
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: c.RefusedSince}}
		switch {
		case refused && fact.OfNode(p, c.AbsentSince) >= fact.Restart && fact.OfNode(p, c.RefusedSince) >= fact.Restart:
		case refused && c.Process != nil && fact.SilentForLong(p, c.RefusedSince, c.Asked):
			f.Family, f.Objects.Process = notListening, diagnose.ProcessOf(p, c.Process)
			f.Confidence = diagnose.Inferred // that the process is the one that should listen
		case c.Ends >= loops && fact.OfNode(p, c.FirstEnd) >= fact.CrashLoop:
			f.Family, f.Objects.Since, f.Confidence = restarts, c.FirstEnd, diagnose.Inferred
		default:
			return diagnose.Result{} // it may be about to be started again
		}
		return diagnose.Found(f)
	},
}

// otherUnit is where to look on nodes whose containerd has no unit of its own.
const otherUnit = "K3s and RKE2 run containerd as a child process: look at their unit (k3s, k3s-agent, rke2-server or rke2-agent)."

// The families of ContainerdDown: a containerd that has a process, and one that ends again and again, as often as loops.
const (
	notListening = "NotListening"
	restarts     = "Restarts"
	loops        = 3
)
