package runtime

import (
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// ContainerdDown is a containerd that has no process, or one that does not listen on its socket.
var ContainerdDown = &diagnose.Rule{
	Cause:  "ContainerdDown",
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.StopSignal, diagnose.Runtime, diagnose.Sandbox, diagnose.PhaseUnknown},
	Doc: diagnose.Doc{
		Layer:     "runtime",
		WholeNode: true,
		Title:     "containerd is down: nothing listens on its socket",
		Who:       diagnose.ByNode,
		Message:   "{how}",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: restarts, Text: "containerd keeps exiting: since {since} it was never seen up for a whole minute. The kubelet's stop requests are lost"},
				{Variant: notListening, Text: "nothing has listened on containerd's socket since {since}, although {comm} (PID {pid}) runs. " +
					"The kubelet can stop no container"},
				{Text: "containerd has been down since {since}: it has no process. The kubelet can stop no container"},
			},
			"seen": {
				{Variant: restarts, Text: "Since {since} containerd has exited at least 3 times, and was never seen responding for a whole minute"},
				{Variant: notListening, Text: "Connections to containerd's socket have failed since {since}; {comm} (PID {pid}) has not listened on it in that time"},
				{Text: "Connections to containerd's socket have failed since {since}, and no process of that name exists"},
			},
		},
		Meaning: "The kubelet stops containers through containerd. While containerd is down, no pod on the node can terminate. Containers keep " +
			"running, because their shims do not need containerd.",
		Evidence: []string{
			"Connections to containerd's socket are refused, or the socket is gone although containerd responded there before.",
			"Either no process has been called containerd for 20 seconds. A containerd that is being restarted listens again sooner.",
			"Or such a process exists, but has not listened for " + fact.Answer.String() + " (family NotListening).",
			"Or containerd does not stay up (family Restarts). It has exited three times or more, the first time at least three minutes ago.",
			"Family Restarts: no reading since then has found a containerd that had responded for a minute. Either nothing listened, or it had " +
				"been restarted.",
			"Inferred for NotListening: the process may be docker's containerd, and not the one that should listen on this socket.",
			"Inferred for Restarts: that the pod waits for it. This family is not reported if the pod's processes have been killed.",
			"Not reported if containerd accepts requests and does not respond: that is ContainerdHung.",
		},
		Seen: []string{"{seen}"},
		First: "on the node, as root: if containerd's log (journalctl -u containerd) shows an error, repair it. " +
			"Then start containerd (K3s, RKE2: their unit)",
		Avoid: "killing shims or rebooting (ends containers)",
		Remedy: "On the node: systemctl status containerd and journalctl -u containerd -n 100 say why it exited. Repair that. Then systemctl start containerd. " +
			"Containers keep running while it starts, and the kubelet then stops the pod. " + otherUnit,
		Danger: "Do not kill containerd-shim processes: that ends their containers. Do not reboot the node: that ends all its pods. " +
			"A force delete leaves the containers running with no API object tracking them.",
		Families: []diagnose.Family{{
			Name: restarts,
			Meaning: "Something makes containerd exit soon after each start, and it is restarted again and again. The kubelet's requests are lost each " +
				"time. A stop that waits for the grace period begins again, and may never reach SIGKILL.",
			First: "on the node, as root: repair the last error before an exit in containerd's log (journalctl -u containerd). " +
				"If no error: dmesg | grep '(containerd)'",
			Remedy: "On the node: journalctl -u containerd -n 200 says why it exits, for example a panic, or an error in its configuration or database. " +
				"journalctl -k shows whether the kernel killed it for lack of memory. " +
				"systemctl show -p Result,NRestarts,MemoryMax,RuntimeMaxUSec containerd shows whether systemd ends it. " +
				"Repair that: the kubelet then stops the pod without further action. " +
				"Containers keep running while it restarts only if systemctl show -p KillMode containerd prints KillMode=process. " + otherUnit,
		}, {
			Name: notListening,
			Meaning: "containerd has a process that does not listen. It exits and is restarted again and again, or its start waits for something, such " +
				"as the lock of its metadata database.",
			First: "on the node, as root: containerd's log (journalctl -u containerd) shows what keeps it from starting: repair that. " +
				"If not: Fix",
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
			return diagnose.Result{} // it may be starting again
		}
		return diagnose.Found(f)
	},
	Recurs: func(p *fact.View) (time.Duration, time.Time) {
		c := &p.Node.Containerd
		since := fact.Latest(c.AnsweringSince, c.ConnectedSince)
		up := fact.OfNode(p, since)
		switch {
		case c.Refused || up >= evidence.Young:
			return 0, since
		case c.FirstEnd.IsZero():
			return evidence.Young - up + fact.CrashLoop, since
		}
		return max(time.Second, fact.CrashLoop-fact.OfNode(p, c.FirstEnd)), since
	},
}

// otherUnit is where to look on nodes whose containerd has no unit of its own.
const otherUnit = "K3s and RKE2 run containerd as a child process: look at their unit (k3s, k3s-agent, rke2-server or rke2-agent)."

// The families of ContainerdDown: a containerd whose process does not listen, and one that has exited loops times or more.
const (
	notListening = "NotListening"
	restarts     = "Restarts"
	loops        = 3
)
