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
	By: diagnose.Ways{
		diagnose.By[diagnose.ThePod]{
			Title: "If containerd has no process",
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{Says: refuses, Pod: diagnose.IfPod(isRefused), Partly: ofContainerd},
				{Says: "This has been so for 20 seconds. A containerd that is being restarted listens again sooner.", Pod: refusedForLong, Partly: ofContainerd},
				{Says: "No process has been called containerd for 20 seconds.", Pod: absentForLong, Partly: ofContainerd},
			},
			Tell: diagnose.OfPod(tellAbsent),
		},
		diagnose.By[*evidence.Task]{
			Title: "If a process is called containerd (family NotListening)",
			Of:    containerdProcess, Partly: ofContainerd,
			Facts: []diagnose.Fact[*evidence.Task]{
				{Says: refuses, Pod: diagnose.IfPod(isRefused), Partly: ofContainerd},
				{Says: "The process has not listened for " + fact.Answer.String() + ".", Pod: deafForLong, Partly: ofContainerd},
				{Says: "Inferred: the process may be docker's containerd, and not the one that should listen on this socket."},
			},
			Tell: diagnose.Each(tellNotListening),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "If containerd does not stay up (family Restarts)",
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{Says: "containerd has exited three times or more.", Pod: endsOften, Partly: ofContainerd},
				{Says: "It exited the first time at least three minutes ago.", Pod: endsForLong, Partly: ofContainerd},
				{Says: "It is not down in one of the other two ways.", Pod: diagnose.IfPod(notDown)},
				{Says: "No reading since the first exit has found a containerd that had responded for a minute. Either nothing listened, or it had " +
					"been restarted."},
				{Says: "Inferred: that the pod waits for it. A pod whose processes have been killed does not."},
			},
			Tell: diagnose.OfPod(tellRestarts),
		},
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

// refuses is the line about a containerd that does not listen.
const refuses = "Connections to containerd's socket are refused, or the socket is gone although containerd responded there before. " +
	"A containerd that accepts requests and does not respond is ContainerdHung."

func isRefused(p *fact.View) bool { return p.Node.Containerd.Refused }

func refusedForLong(p *fact.View) diagnose.Holding {
	return diagnose.LastedOnNode(p, p.Node.Containerd.RefusedSince, fact.Restart, diagnose.Restarting)
}

// absentForLong is not read where the process could not be looked for.
func absentForLong(p *fact.View) diagnose.Holding {
	c := &p.Node.Containerd
	if c.Process == nil && c.AbsentSince.IsZero() {
		return diagnose.Holding{}
	}
	return diagnose.LastedOnNode(p, c.AbsentSince, fact.Restart, diagnose.Restarting)
}

// containerdProcess returns containerd's process, which is looked for while containerd does not respond.
func containerdProcess(p *fact.View) []*evidence.Task {
	if t := p.Node.Containerd.Process; t != nil {
		return []*evidence.Task{t}
	}
	return nil
}

func deafForLong(p *fact.View) diagnose.Holding {
	return silentForLong(p, p.Node.Containerd.RefusedSince, diagnose.Restarting)
}

// silentForLong answers whether containerd has not responded, or not listened, for long enough since a time (fact.SilentForLong). Unknown does
// not wait for that, because it takes minutes under pressure.
func silentForLong(p *fact.View, since time.Time, why diagnose.Why) diagnose.Holding {
	if since.IsZero() || fact.SilentForLong(p, since, p.Node.Containerd.Asked) {
		return diagnose.Is(!since.IsZero())
	}
	return diagnose.NotYet(diagnose.Seen(p, why))
}

// endsOften answers whether containerd has exited loops times or more. After fewer exits it may stay up.
func endsOften(p *fact.View) diagnose.Holding {
	if n := p.Node.Containerd.Ends; n == 0 || n >= loops {
		return diagnose.Is(n >= loops)
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Restarting))
}

// endsForLong answers whether that is long ago. After fewer exits time alone does not tell.
func endsForLong(p *fact.View) diagnose.Holding {
	h := diagnose.LastedOnNode(p, p.Node.Containerd.FirstEnd, fact.CrashLoop, diagnose.Restarting)
	if p.Node.Containerd.Ends < loops {
		return h.Unawaited(p)
	}
	return h
}

// notDown reports whether containerd is neither without a process for long, nor has one that does not listen.
func notDown(p *fact.View) bool {
	absent := refusedForLong(p).Yes() && absentForLong(p).Yes()
	deaf := len(containerdProcess(p)) > 0 && deafForLong(p).Yes()
	return !isRefused(p) || !absent && !deaf
}

func tellAbsent(p *fact.View) diagnose.Finding {
	return diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: p.Node.Containerd.RefusedSince}}
}

func tellNotListening(p *fact.View, t *evidence.Task) diagnose.Finding {
	return diagnose.Finding{Family: notListening, Confidence: diagnose.Inferred, Objects: diagnose.Objects{
		Since: p.Node.Containerd.RefusedSince, Process: diagnose.ProcessOf(p, t),
	}}
}

func tellRestarts(p *fact.View) diagnose.Finding {
	return diagnose.Finding{Family: restarts, Confidence: diagnose.Inferred, Objects: diagnose.Objects{Since: p.Node.Containerd.FirstEnd}}
}
