package runtime

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ContainerdDown is a containerd that does not run, or runs and does not listen.
var ContainerdDown = &diagnose.Rule{
	Cause:  "ContainerdDown",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "containerd is down: nothing listens on its socket",
		Message: "containerd is down: nothing has listened on its socket since {since}, {which}. The kubelet cannot stop any container of this node",
		Phrases: map[string][]diagnose.Choice{"which": {
			{Variant: notListening, Text: "though a process {comm} (PID {pid}) runs, which may be another one, as docker has"},
			{Text: "and it has no process"},
		}},
		Meaning: "The kubelet stops containers through containerd. While containerd is down, no pod of the node can end. Containers keep running: their shims do not need it.",
		Evidence: "The node refuses connections to containerd's socket, or the socket is gone after containerd has answered there. " +
			"Over twenty seconds there was no process called containerd, or over a minute in which the node was not short of processors, memory or I/O (/proc/pressure), or over five minutes, there was one that did not listen. " +
			"A containerd that is restarted listens again sooner. Whether a process of that name is the one that should listen, and not docker's, is not known: of one it is inferred. One that accepts requests and does not answer is another cause (ContainerdHung).",
		Remedy: "On the node: systemctl status containerd and journalctl -u containerd -n 100 say why it ended; then systemctl start containerd. Containers keep running through its start. " +
			"K3s and RKE2 run containerd as their child: look at the unit of that name.",
		Danger: "Do not force-delete the pods: their containers go on, unseen. Do not kill containerd-shim processes: that ends the containers. A reboot ends all pods of the node.",
		Families: []diagnose.Family{{
			Name:    notListening,
			Meaning: "containerd has a process that does not listen: it ends and is started again and again, or it waits for something at its start, such as the lock of its metadata database.",
			Remedy: "On the node: journalctl -u containerd -n 100 says whether containerd ends again and again, and why, or what it waits for at its start. " +
				"A second containerd with the same root directory (ps -C containerd -o pid,ppid,lstart lists both, and no shims) holds the lock of the metadata database.",
		}},
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		c := &p.Node.Containerd
		if !c.Refused || c.RefusedSince.IsZero() {
			return nil
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: c.RefusedSince}}
		switch {
		case fact.OfNode(p, c.AbsentSince) >= fact.Restart && fact.OfNode(p, c.RefusedSince) >= fact.Restart:
		case c.Process != nil && fact.SilentForLong(&p.Node, c.RefusedSince, c.Asked):
			f.Family, f.Objects.Process = notListening, diagnose.ProcessOf(p, c.Process)
			f.Confidence = diagnose.Inferred // that the process is the one that should listen
		default:
			return nil // it may be about to be started again
		}
		return []diagnose.Finding{f}
	},
}

// notListening is a containerd that has a process.
const notListening = "NotListening"
