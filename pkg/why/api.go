package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/finalizer"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// objectAlone answers for a pod of which the API shows that only the object is left, whatever is with its node.
func (v *View) objectAlone(p *corev1.Pod, said *corev1.PodCondition, a *Answer) bool {
	return len(p.Finalizers) > 0 && forced(p) && ended(p) && v.kept(p, said, a)
}

// whoActs says who acts on a cause that the API shows, in the words of the agent.
func whoActs(reason string) string {
	f := diagnose.Finding{Who: cause.Who()[reason]}
	if reason == NodeGone || reason == NodeNotReady {
		f.Who, f.NotApp, f.Ends = diagnose.ByNode, true, reason == NodeGone // the garbage collector deletes the object
	}
	return f.SaysWho()
}

// kept answers for a pod that its finalizers keep.
func (v *View) kept(p *corev1.Pod, said *corev1.PodCondition, a *Answer) bool {
	if said != nil && said.Reason == Finalizers {
		return v.agentSays(p, said, a)
	}
	v.finalizers(p, a)
	return true
}

// apiShows answers from the pod alone. A pod on whose node an agent runs is left to that until it is late.
func (v *View) apiShows(p *corev1.Pod, _ *corev1.PodCondition, a *Answer) bool {
	switch {
	case p.Spec.NodeName == "" && len(p.Finalizers) == 0:
		a.Cause, a.Source, a.HeldBy = NotScheduled, FromAPI, "API: not scheduled"
		a.Message = "The pod was never scheduled and has no finalizer: the API server deletes it immediately."
		a.Force, a.ForceWhy = "no", "it would change nothing"
	case len(p.Finalizers) > 0 && (p.Spec.NodeName == "" || finallyDeleted(p)):
		v.finalizers(p, a)
	case mirror(p) && a.Late():
		a.Cause, a.Source, a.HeldBy = MirrorPod, FromAPI, "kubelet: it is the mirror of a static pod"
		a.Message = "The pod is the mirror of a static pod: its deletion does not stop that one, and the kubelet creates the mirror again."
		a.Fix = "To stop the static pod, ask its owner, then move its manifest out of the kubelet's staticPodPath on the node " +
			"(/etc/kubernetes/manifests on most nodes)."
		a.Avoid = "Do not kill its processes: the kubelet restarts them. Static pods are often the control plane itself."
		a.Force, a.ForceWhy = "no", "it would change nothing"
	case !a.Late():
		a.Cause, a.Source = InGracePeriod, FromAPI
		a.HeldBy = "program: SIGKILL in " + Age(a.Deadline.Sub(v.Now))
		a.Message = "Not stuck: the pod is inside its grace period until " + clock(a.Deadline) + "."
		if c := agentsCondition(p, corev1.ConditionFalse); c != nil && c.Reason == InGracePeriod && a.LateSeconds == 0 {
			a.Source, a.Said, a.Message = FromAgent, lastWrote(p, c), c.Message
			if !strings.HasPrefix(c.Message, "Not stuck: ") {
				a.HeldBy = "not known: who has to kill it does not act"
			}
		}
		if a.LateSeconds > 0 {
			a.HeldBy = "kubelet: finishing"
			a.Message = "The grace period ended at " + clock(a.Deadline) + ". The kubelet needs some seconds for what comes after the last container."
		}
		a.Force, a.ForceWhy = inGrace()
	default:
		return false
	}
	return true
}

// nobodyKnows says how to ask where the cause is not known.
func (v *View) nobodyKnows(p *corev1.Pod, _ *corev1.PodCondition, a *Answer) bool {
	pod := inCommand(p.Name, "POD")
	kind := elsewhere(v.Nodes[p.Spec.NodeName])
	switch told := agentsCondition(p, corev1.ConditionFalse); {
	case kind != "":
		a.HeldBy = "not known: nodeagent does not run on " + kind + " nodes"
		a.Message = "nodeagent does not run on " + kind + " nodes, and the API alone does not show what holds the pod."
		a.Fix = "Look for the pod in the log of that node's kubelet, or ask its provider."
	case a.Agent == AgentReady && told != nil:
		a.Source, a.Said = FromAgent, lastWrote(p, told)
		a.HeldBy = "not known: nodeagent reports no cause at present"
		a.Message = fmt.Sprintf("nodeagent reports no cause at present. It wrote last (%s): %s", told.Reason, told.Message)
		a.Fix = v.readAgent(p)
		if told.Reason == verdict.Resolved {
			a.HeldBy = "not known: nodeagent reports that the cause is gone"
			a.Fix = "If the cause was just repaired, wait: the kubelet tries again within about two minutes. " + a.Fix
		}
	case a.Agent == AgentReady:
		a.HeldBy = "not known: nodeagent on " + a.Node + " has written no condition"
		a.Message = "nodeagent on this node is ready, and has written no condition on the pod."
		a.Fix = v.readAgent(p)
	case a.Agent == AgentNotReady:
		a.HeldBy = "not known: nodeagent on " + a.Node + " is not ready"
		a.Message = "nodeagent on this node is not ready."
		if v.Nodes == nil {
			a.Message += " The node may be lost: nodes could not be read."
		}
		a.Fix = "Read why: kubectl describe pod " + v.agentName(a.Node) + "."
	case a.Agent == AgentMissing:
		a.HeldBy = "not known: no nodeagent on " + a.Node
		a.Message = "No nodeagent runs on this node, and the API alone does not show what holds the pod."
		a.Fix = "On the node, read the kubelet's errors about this pod: journalctl -u kubelet --since=-10min | grep -F " + pod +
			". Check why nodeagent does not run there: kubectl get pods -A -l " + AgentSelector + " -o wide."
	case a.Agent == AgentUnread:
		a.HeldBy = "not known: nodeagent's pods could not be read"
		a.Message = "No nodeagent has written a condition on the pod, and whether one runs on this node could not be read."
		a.Fix = "Ask whoever may list the pods of nodeagent."
	}
	a.ForceWhy = "the cause is not known"
	a.Avoid = "Do not force-delete before the cause is known: the pod's processes may still run and write."
	return true
}

// AgentSelector selects nodeagent's own pods (deploy/daemonset.yaml).
const AgentSelector = "app.kubernetes.io/name=nodeagent,app.kubernetes.io/component=agent"

func (v *View) readAgent(p *corev1.Pod) string {
	return "Read the pod's Events: kubectl describe pod " + inCommand(p.Name, "POD") + " -n " + inCommand(p.Namespace, "NAMESPACE") +
		". Then read the agent's log: kubectl logs " + v.agentName(p.Spec.NodeName) + "."
}

// agentName names the agent of a node as kubectl takes it.
func (v *View) agentName(node string) string {
	if p := v.Agents[node]; p != nil {
		return inCommand(p.Name, "AGENT-POD") + " -n " + inCommand(p.Namespace, "NAMESPACE")
	}
	return "AGENT-POD -n NAMESPACE"
}

// finalizers answers for a pod of which only the object is left, as far as its status says.
func (v *View) finalizers(p *corev1.Pod, a *Answer) {
	a.Cause, a.Source = Finalizers, FromAPI
	names := strings.Join(p.Finalizers, ", ")
	a.HeldBy = "finalizer: " + names
	a.Message = "A finalizer keeps the API object: " + names + ". By its status no container of the pod runs."
	if running(p) {
		a.Message = "A finalizer keeps the API object: " + names + ". The pod was force-deleted: its grace period is 0, while its status shows " +
			"containers that run."
	}
	a.Seen = strings.Join(setBy(p), " ")
	a.Fix = "Check that the controller of the finalizer runs, and look for the pod in its log. It removes the finalizer when its cleanup is done."
	a.Avoid = "Do not remove the finalizer by hand: that skips the cleanup."
	a.Force, a.ForceWhy = "no", "a force delete removes no finalizers"
	v.foreground(p, a)
}

// inGrace is the answer about a force delete of a pod inside its grace period.
func inGrace() (force, because string) { return "no", "it is inside its grace period" }

// setBy says who has set the finalizers, and when that one last changed the pod.
func setBy(p *corev1.Pod) (facts []string) {
	for _, s := range finalizer.Setters(p.ManagedFields, p.Finalizers) {
		line := fmt.Sprintf("%s was set by %q", s.Finalizer, s.Manager)
		if !s.Changed.IsZero() {
			line += ", which last changed the pod at " + clock(s.Changed)
		}
		facts = append(facts, line+".")
	}
	return facts
}

// foreground adds what the foreground deletion of a pod waits for.
func (v *View) foreground(p *corev1.Pod, a *Answer) {
	waits := v.Dependents[string(p.UID)]
	if len(waits) == 0 || !slices.Contains(p.Finalizers, metav1.FinalizerDeleteDependents) {
		return
	}
	a.Message += " The foreground deletion waits for " + few(waits) + "."
	if kind, name, _ := strings.Cut(waits[0], "/"); objectName.MatchString(kind) && objectName.MatchString(name) {
		a.Fix = "Read what holds the first of them: kubectl get " + waits[0] + " -n " + inCommand(p.Namespace, "NAMESPACE") + " -o yaml. " + a.Fix
	}
}

// few names the first of many.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// finallyDeleted reports whether only the object of a pod is left: the kubelet's final delete has made the grace period 0
// (as a force delete does), and no container runs by its status.
func finallyDeleted(p *corev1.Pod) bool { return forced(p) && !running(p) }

// forced reports whether a pod's grace period is 0: by the kubelet's final delete, or by a force delete.
func forced(p *corev1.Pod) bool {
	grace := p.DeletionGracePeriodSeconds
	return grace != nil && *grace == 0
}

// running reports whether a container of a pod runs by its status.
func running(p *corev1.Pod) bool {
	return slices.ContainsFunc(containers(p), func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// ended reports whether all containers of a pod have exited by their status.
func ended(p *corev1.Pod) bool {
	all := containers(p)
	return len(all) > 0 && !slices.ContainsFunc(all, func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil })
}

// lastExit returns when the last container of a pod exited, zero where its status does not say.
func lastExit(p *corev1.Pod) (last time.Time) {
	for _, s := range containers(p) {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

func containers(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
}

func mirror(p *corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// layers are who holds a pod up by the layer of the agent's cause.
var layers = map[string]string{
	"signal": "program", "kernel": "kernel", "runtime": "containerd", "network": "network", "storage": "volume", "kubelet": "kubelet", "api": "API",
}

// heldBy says who holds a pod up by the agent's cause and the first part of its words.
func heldBy(reason, words string) string {
	who := ""
	for _, r := range cause.All() {
		if r.Cause == reason {
			who = layers[r.Doc.Layer]
		}
	}
	for _, phase := range []string{" in phase ", " in an unknown phase: "} {
		if i := strings.Index(words, phase); i >= 0 {
			if _, rest, ok := strings.Cut(words[i:], ": "); ok {
				words = rest
			}
		}
	}
	for _, end := range []string{". ", "; ", ", so "} {
		words, _, _ = strings.Cut(words, end)
	}
	words = strings.TrimSuffix(words, ".")
	if who == "" {
		return words
	}
	return who + ": " + words
}
