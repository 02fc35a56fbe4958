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
	Needs: []evidence.Source{evidence.Kubelet},
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
		Evidence: []string{
			"In readings over twenty seconds, no process has one of the kubelet's names: kubelet; kubelite of MicroK8s; k3s-server and " +
				"k3s-agent of K3s. A kubelet that is restarted is back sooner.",
			"A kubelet process was seen before. Or the node refuses connections to the kubelet's port, which responded before; a " +
				"network policy could refuse them as well.",
			"Stopped: a kubelet in state T, in two readings three seconds or more apart, has been stopped by a signal.",
			"Restarts: each reading of three minutes found no kubelet, or one that was less than a minute old. One was found three " +
				"minutes ago, and one of those found is gone again. A kubelet that has run since before the pod's deletion does not count.",
			"It is inferred if no kubelet process was seen before.",
			"Not reported if neither a process was seen nor the port responded before: the kubelet may be part of a program with " +
				"another name.",
			"Not reported while the kubelet responds.",
		},
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
	Check: func(p *fact.View) diagnose.Result {
		k := &p.Node.Kubelet
		if t := k.Process; t != nil && t.State == evidence.Stopped {
			if t.Unchanged(p.Time) < fact.LeastStill {
				return diagnose.Result{}
			}
			return diagnose.Found(diagnose.Finding{Family: diagnose.Stopped, Confidence: diagnose.Proved, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t)}})
		}
		// One that runs since before the deletion has been there for the pod.
		if since := k.Process.Started(); !since.IsZero() && since.Before(p.DeletionRequested) {
			return diagnose.Result{}
		}
		if fact.OfNode(p, k.YoungSince) >= fact.CrashLoop && p.Node.Time.Sub(k.StartSeen) >= fact.CrashLoop && (k.Starts > 1 || k.Starts == 1 &&
			k.Process == nil && !k.AbsentSince.IsZero()) {
			return diagnose.Found(diagnose.Finding{Family: restarts, Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: k.YoungSince}})
		}
		if k.Process != nil || p.Kubelet.State != fact.Gone || fact.OfNode(p, k.AbsentSince) < fact.Restart || answers(k) || k.LastSeen.IsZero() && k.Health == "" {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Since: k.AbsentSince}}
		if k.LastSeen.IsZero() {
			f.Confidence = diagnose.Inferred
		}
		if k.Refused {
			f.Variants = []string{refused}
		}
		return diagnose.Found(f)
	},
	Recurs: func(p *fact.View) (time.Duration, time.Time) {
		k := &p.Node.Kubelet
		if k.Process == nil || k.YoungSince.IsZero() {
			return 0, time.Time{}
		}
		return max(time.Second, fact.CrashLoop-fact.OfNode(p, k.YoungSince)), k.Process.Started()
	},
}

// answers reports whether the kubelet's port responds: the kubelet may have come back under another name.
func answers(k *evidence.KubeletService) bool {
	return k.Health == "ok" || strings.HasPrefix(k.Health, "failing checks: ")
}

const (
	refused  = "Refused"  // the variant in which the kubelet's port refuses connections
	restarts = "Restarts" // the family of a kubelet that does not stay up
)

// units are the names of the kubelet's systemd unit on other distributions.
var units = diagnose.Choice{Text: "The unit is k3s or k3s-agent with K3s, rke2-server or rke2-agent with RKE2, k0scontroller or k0sworker with k0s"}
