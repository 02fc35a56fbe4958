package kubelet

import (
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// KubeletDown is a node whose kubelet does not run, does not stay up, or has been stopped by a signal.
var KubeletDown = &diagnose.Rule{
	Cause: "KubeletDown",
	Phases: []diagnose.Phase{
		diagnose.Startup, diagnose.PreStop, diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox,
		diagnose.DynamicResources, diagnose.Volumes, diagnose.Cleanup, diagnose.FinalDelete, diagnose.PhaseUnknown,
	},
	Doc: diagnose.Doc{
		Layer:     "kubelet",
		WholeNode: true,
		Title:     "the node's kubelet does not run",
		Who:       diagnose.ByNode,
		Message:   "the kubelet {how}, so no pod terminates",
		Phrases: map[string][]diagnose.Choice{
			"how": {
				{Variant: diagnose.Stopped, Text: "({comm}, PID {pid}) is paused (SIGSTOP or similar)"},
				{Variant: restarts, Text: "keeps exiting: never seen running for a full minute since {since}"},
				{Text: "has not been running since {since}"},
			},
			"proof": {
				{Variant: diagnose.Stopped, Text: "The kubelet's process ({comm}, PID {pid}) is in state T in at least two readings, three seconds or more apart"},
				{Variant: restarts, Text: "Since {since} each reading found no kubelet, or one started less than a minute before, and at least one of these has exited"},
				{Variant: refused, Text: "No process has had a kubelet's name since {since}. Connections to the kubelet's port are refused"},
				{Text: "No process has had a kubelet's name since {since}"},
			},
			"units": {units},
		},
		Seen: []string{"{proof}", "Without the kubelet no pod of the node is stopped, unmounted or removed; its containers keep running"},
		First: "ask your team if maintenance stopped the kubelet. If not, on the node, as root: start it (systemctl start kubelet; K3s, RKE2: unit in Fix). " +
			"If it exits again: read its log",
		Avoid: "a reboot (ends all pods of the node)",
		Meaning: "Every step of a pod's termination is the kubelet's: it stops the containers, unmounts the volumes and sends the API " +
			"server the delete with grace period 0. " +
			"Containers keep running without a kubelet. After some 50 seconds the node turns NotReady.",
		Remedy: "On the node: systemctl status kubelet and journalctl -u kubelet -n 100 show why it exited. " +
			"Repair the cause, then: systemctl start kubelet. Containers keep running. {units}.",
		Danger: "Do not force-delete the pods of this node: their containers keep running, with their volumes. A StatefulSet then starts the same pod twice. " +
			"Do not reboot the node without asking: that ends all its pods.",
		Families: []diagnose.Family{{
			Name:    diagnose.Stopped,
			Meaning: "The kubelet's process is stopped: it received SIGSTOP.",
			First:   "unless maintenance paused the kubelet, on the node, as root: {continue}",
			Remedy: "Find out who or what stopped the kubelet: it may be maintenance of the node. Then, on the node: {continue}. The " +
				"kubelet then resumes where it was.",
		}, {
			Name: restarts,
			Meaning: "Something ends the kubelet as soon as it is started: an error in its configuration, or a client certificate that has expired. " +
				"Where kubeadm has set it up, a kubelet whose client certificate has expired does not start (it looks for " +
				"bootstrap-kubelet.conf). " +
				"Elsewhere it may run, and KubeletDisconnected is reported.",
			First: "on the node: if the last lines of the kubelet's log (journalctl -u kubelet -n 50) name bootstrap-kubelet.conf: follow Fix. " +
				"If not: ask who last changed the kubelet",
			Remedy: "On the node: journalctl -u kubelet -n 50 shows why it exits. {units}. " +
				"If the log names bootstrap-kubelet.conf, the kubelet's client certificate has expired or is missing. " +
				"openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem shows when it expires. With kubeadm, on a control plane node: " +
				"kubeadm kubeconfig user --org system:nodes --client-name system:node:{node} > kubelet.conf. " +
				"Set server: in that file as in /etc/kubernetes/kubelet.conf of this node. " +
				"Replace /etc/kubernetes/kubelet.conf of this node by it, then: systemctl restart kubelet. Containers keep running.",
		}},
	},
	By: diagnose.Ways{
		diagnose.By[diagnose.ThePod]{
			Title: "The kubelet is stopped",
			From:  []evidence.Source{evidence.Kubelet},
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{Says: "A kubelet's process is in state T: a signal has stopped it.", Pod: diagnose.IfPod(kubeletStopped)},
				{Says: "Two readings three seconds or more apart show the same.", Pod: stoppedForLong},
			},
			Tell: diagnose.OfPod(tellStopped),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "The kubelet restarts again and again",
			From:  []evidence.Source{evidence.Kubelet},
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{Says: "No signal has stopped the kubelet's process (state T).", Pod: diagnose.IfPod(notStopped)},
				{Says: "No kubelet has run since before the pod's deletion.", Pod: diagnose.IfPod(startedSince)},
				{
					Says: "Each reading of three minutes found no kubelet, or one that was less than a minute old. One was found three minutes ago.",
					Pod:  youngForLong,
				},
				{Says: "One of those found is gone again.", Pod: diagnose.IfPodLater(goneAgain, diagnose.Restarting)},
			},
			Tell: diagnose.OfPod(tellRestarts),
		},
		diagnose.By[diagnose.ThePod]{
			Title: "No kubelet is there",
			From:  []evidence.Source{evidence.Kubelet},
			Facts: []diagnose.Fact[diagnose.ThePod]{
				{
					Says: "No process has one of the kubelet's names: kubelet; kubelite of MicroK8s; k3s-server and k3s-agent of K3s.",
					Pod:  diagnose.IfPod(noKubelet),
				},
				{
					Says: "A kubelet process was seen before. Or the node refuses connections to the kubelet's port, which responded before. " +
						"Without either, the kubelet may be part of a program with another name.",
					Pod: diagnose.IfPod(wasThere),
				},
				{Says: "The kubelet's port does not respond, so no kubelet has come back under another name.", Pod: diagnose.IfPod(portSilent)},
				{Says: "Readings over twenty seconds show no such process. A kubelet that is restarted is back sooner.", Pod: absentForLong},
				{Says: "The kubelet does not restart again and again, as above.", Pod: diagnose.IfPod(staysAway)},
				{Says: "It is inferred if no kubelet process was seen before: a network policy could refuse the connections as well."},
			},
			Tell: diagnose.OfPod(tellAbsent),
		},
	},
	Recurs: func(p *fact.View) (time.Duration, time.Time) {
		k := &p.Node.Kubelet
		if k.Process == nil || k.YoungSince.IsZero() {
			return 0, time.Time{}
		}
		return max(time.Second, fact.CrashLoop-fact.OfNode(p, k.YoungSince)), k.Process.Started()
	},
}

func kubeletStopped(p *fact.View) bool {
	t := p.Node.Kubelet.Process
	return t != nil && t.State == evidence.Stopped
}

func notStopped(p *fact.View) bool { return !kubeletStopped(p) }

func stoppedForLong(p *fact.View) diagnose.Holding {
	t := p.Node.Kubelet.Process
	if t == nil {
		return diagnose.Is(false)
	}
	return diagnose.Still(p, t, fact.LeastStill)
}

// startedSince reports whether no kubelet is known to run since before the deletion: such a one has been there for the pod.
func startedSince(p *fact.View) bool {
	since := p.Node.Kubelet.Process.Started()
	return since.IsZero() || !since.Before(p.DeletionRequested)
}

// youngForLong answers whether no kubelet has stayed up since one was found.
func youngForLong(p *fact.View) diagnose.Holding {
	k := &p.Node.Kubelet
	if k.YoungSince.IsZero() || k.Starts == 0 {
		return diagnose.Is(false)
	}
	return diagnose.LastedOnNode(p, fact.Latest(k.YoungSince, k.StartSeen), fact.CrashLoop, diagnose.Restarting)
}

// goneAgain reports whether one of the kubelets found has ended: the one that is there may stay up.
func goneAgain(p *fact.View) bool {
	k := &p.Node.Kubelet
	return k.Starts > 1 || k.Starts == 1 && k.Process == nil && !k.AbsentSince.IsZero()
}

func noKubelet(p *fact.View) bool {
	return p.Node.Kubelet.Process == nil && !p.Node.Kubelet.AbsentSince.IsZero()
}

func wasThere(p *fact.View) bool {
	k := &p.Node.Kubelet
	return !k.LastSeen.IsZero() || k.Refused && k.Health != ""
}

func portSilent(p *fact.View) bool {
	h := p.Node.Kubelet.Health
	return h != fact.KubeletHealthy && !strings.HasPrefix(h, "failing checks: ")
}

func absentForLong(p *fact.View) diagnose.Holding {
	return diagnose.LastedOnNode(p, p.Node.Kubelet.AbsentSince, fact.Restart, diagnose.Restarting)
}

func staysAway(p *fact.View) bool { return !youngForLong(p).Yes() || !goneAgain(p) }

func tellStopped(p *fact.View) diagnose.Finding {
	of := diagnose.Objects{Process: diagnose.ProcessOf(p, p.Node.Kubelet.Process)}
	return diagnose.Finding{Family: diagnose.Stopped, Confidence: diagnose.Proved, Objects: of}
}

func tellRestarts(p *fact.View) diagnose.Finding {
	return diagnose.Finding{Family: restarts, Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: p.Node.Kubelet.YoungSince}}
}

func tellAbsent(p *fact.View) diagnose.Finding {
	k := &p.Node.Kubelet
	f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: k.AbsentSince}}
	if k.LastSeen.IsZero() {
		f.Confidence = diagnose.Inferred
	}
	if k.Refused {
		f.Variants = []string{refused}
	}
	return f
}

const (
	refused  = "Refused"  // the variant in which the kubelet's port refuses connections
	restarts = "Restarts" // the family of a kubelet that does not stay up
)

// units are the names of the kubelet's systemd unit on other distributions.
var units = diagnose.Choice{Text: "The unit is k3s or k3s-agent with K3s, rke2-server or rke2-agent with RKE2, k0scontroller or k0sworker with k0s"}
