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
		Layer:   "runtime",
		Title:   "containerd is down: nothing listens on its socket",
		Message: "containerd {how}",
		Phrases: map[string][]diagnose.Choice{"how": {
			{Variant: restarts, Text: "does not stay up: since it ended at {since} it has never been seen to answer for a minute, and has ended again each time that it was started. What the kubelet asks it for is lost each time"},
			{Variant: notListening, Text: "is down: nothing has listened on its socket since {since}, though a process {comm} (PID {pid}) runs, which may be another one, as docker has. The kubelet cannot stop any container of this node"},
			{Text: "is down: nothing has listened on its socket since {since}, and it has no process. The kubelet cannot stop any container of this node"},
		}},
		Meaning: "The kubelet stops containers through containerd. While containerd is down, no pod of the node can end. Containers keep running: their shims do not need it.",
		Evidence: "The node refuses connections to containerd's socket, or the socket is gone after containerd has answered there. " +
			"Over twenty seconds there was no process called containerd, or over " + fact.Answer.String() + ", there was one that did not listen. " +
			"A containerd that is restarted listens again sooner. Whether a process of that name is the one that should listen, and not docker's, is not known: of one it is inferred. " +
			"It does not stay up when it has ended three times or more, first three minutes ago, and no reading since has found one that had answered for a minute: nobody listened, or it had been started anew. " +
			"That the pod waits for that is inferred, and not said of one whose processes have been killed. One that accepts requests and does not answer is another cause (ContainerdHung).",
		Remedy: "On the node: systemctl status containerd and journalctl -u containerd -n 100 say why it ended; then systemctl start containerd. Containers keep running through its start. " +
			otherUnit,
		Danger: "Do not force-delete the pods: their containers go on, unseen. Do not kill containerd-shim processes: that ends the containers. A reboot ends all pods of the node.",
		Families: []diagnose.Family{{
			Name: restarts,
			Meaning: "Something ends containerd soon after it is started, and it is started again and again. What the kubelet asks it for is lost each time: " +
				"a stop that waits for the grace period begins anew, and may never get to SIGKILL.",
			Remedy: "On the node: journalctl -u containerd -n 200 says why it ends, as with a panic or an error of its configuration or database; journalctl -k whether the kernel killed it for want of memory; " +
				"systemctl show -p Result,NRestarts,MemoryMax,RuntimeMaxUSec containerd whether systemd ends it. Repair that, and the kubelet goes on by itself. Containers keep running through its starts where systemctl show -p KillMode containerd says process. " +
				otherUnit,
		}, {
			Name:    notListening,
			Meaning: "containerd has a process that does not listen: it ends and is started again and again, or it waits for something at its start, such as the lock of its metadata database.",
			Remedy: "On the node: journalctl -u containerd -n 100 says whether containerd ends again and again, and why, or what it waits for at its start. " +
				"A second containerd with the same root directory (ps -C containerd -o pid,ppid,lstart lists both, and no shims) holds the lock of the metadata database. " +
				otherUnit,
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
const otherUnit = "K3s and RKE2 run containerd as their child: look at the unit of that name."

// The families of ContainerdDown: a containerd that has a process, and one that ends again and again, as often as loops.
const (
	notListening = "NotListening"
	restarts     = "Restarts"
	loops        = 3
)
