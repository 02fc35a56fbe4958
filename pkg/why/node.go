package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// lostNode answers for a pod of a node that does not exist, or from which the API server has heard nothing for a while: nothing that is
// on it ends, and what its agent said before may not hold. An agent that has said something since then gets through where the kubelet does not.
// What keeps a pod that was force-deleted, as the pod garbage collector does, is its finalizers.
func (v *View) lostNode(p *corev1.Pod, said *corev1.PodCondition, a *Answer) bool {
	if p.Spec.NodeName == "" || v.Nodes == nil {
		return false
	}
	if said != nil && !written(p, said) {
		said = nil
	}
	node := v.Nodes[p.Spec.NodeName]
	var c *corev1.NodeCondition
	if node != nil {
		c = NodeReady(node)
		if c == nil || c.Status != corev1.ConditionUnknown || said != nil && lastWrote(p, said).After(c.LastTransitionTime.Time) {
			return false
		}
	}
	switch {
	case len(p.Finalizers) > 0 && forced(p):
		return v.kept(p, said, a)
	case node == nil:
		a.Cause, a.Source = NodeGone, FromAPI
		a.HeldBy = "node: " + p.Spec.NodeName + " does not exist"
		a.Message = fmt.Sprintf("The Node object %s does not exist any more. The machine may still run. The pod garbage collector deletes the pod object "+
			"within two minutes.", p.Spec.NodeName)
		a.Fix = "If the machine still runs, shut it down now: the pod's processes continue to write. If the pod remains, check that kube-controller-manager " +
			"runs: its pod garbage collector deletes it."
		a.Avoid = "Do not force-delete while the machine may still run: a StatefulSet then starts the same pod twice."
		a.Force, a.ForceWhy = "no", "its processes may still run on that machine"
		return true
	}
	v.notReady(p, node, c, a)
	if said != nil {
		a.Also = append(a.Also, fmt.Sprintf("nodeagent reported at %s, before that: %s. If the machine still runs, see kubectl describe pod",
			clock(lastWrote(p, said)), said.Reason))
	}
	return true
}

// unreadyNode answers for a pod without a verdict whose kubelet says that it is not ready, and said so before the pod was late.
func (v *View) unreadyNode(p *corev1.Pod, _ *corev1.PodCondition, a *Answer) bool {
	node := v.Nodes[p.Spec.NodeName]
	if node == nil {
		return false
	}
	c := NodeReady(node)
	if c == nil || c.Status != corev1.ConditionFalse || !a.Late() || c.LastTransitionTime.After(a.Deadline.Add(Late)) {
		return false
	}
	v.notReady(p, node, c, a)
	return true
}

func (v *View) notReady(p *corev1.Pod, node *corev1.Node, c *corev1.NodeCondition, a *Answer) {
	since := c.LastTransitionTime.Time
	a.Cause, a.Source, a.Said = NodeNotReady, FromAPI, since
	a.HeldBy = "node: not ready for " + Age(v.Now.Sub(since))
	a.Message = fmt.Sprintf("Node %s is not ready: its condition Ready is %s (%s) since %s.", node.Name, c.Status, c.Reason, clock(since))
	var seen []string
	if l := v.Leases[node.Name]; l != nil && l.Spec.RenewTime != nil {
		seen = append(seen, fmt.Sprintf("Its Lease was renewed last at %s.", clock(l.Spec.RenewTime.Time)))
		if c.Status == corev1.ConditionUnknown {
			a.HeldBy = "node: Lease not renewed for " + Age(v.Now.Sub(l.Spec.RenewTime.Time))
		}
	}
	var taints []string
	for _, t := range node.Spec.Taints {
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
	}
	if slices.Sort(taints); len(taints) > 0 {
		seen = append(seen, "Taints: "+strings.Join(taints, ", ")+".")
	}
	waiting := v.exclusive(p)
	if len(waiting) > 0 {
		seen = append(seen, "Volumes that may have to be detached from it before another node gets them: "+strings.Join(waiting, ", ")+".")
	}
	if c.Status == corev1.ConditionFalse && c.Message != "" {
		seen = append(seen, fmt.Sprintf("Its kubelet reports %q.", c.Message))
	}
	a.Seen = strings.Join(seen, " ")
	if len(p.Finalizers) > 0 {
		a.HeldBy += ", then finalizers"
	}
	if c.Status == corev1.ConditionUnknown {
		a.Force, a.ForceWhy = "no", "its processes may still run, which the API cannot show"
		if outOfService(node) {
			a.Fix = fmt.Sprintf("Node %s has the taint %s already: the pod garbage collector force-deletes its terminating pods, and their volumes are "+
				"detached. If the machine still runs, shut it down now. If the pod remains for a minute, check that kube-controller-manager runs. "+
				"Remove the taint before the node is used again: kubectl taint node %s %[2]s-.", node.Name, corev1.TaintNodeOutOfService,
				inCommand(node.Name, "NODE"))
			a.Avoid = "Do not force-delete while the machine may still run: its processes continue to write, and a replacement may write beside them."
			return
		}
		a.Fix = fmt.Sprintf("Bring node %s back: its kubelet then terminates the pod. Only if the machine is confirmed to be powered off (BMC, hypervisor "+
			"or cloud API), force-delete all its pods and detach their volumes: "+
			"kubectl taint node %s %s=nodeshutdown:NoExecute. Remove that taint before the node is used again.", node.Name,
			inCommand(node.Name, "NODE"), corev1.TaintNodeOutOfService)
		a.Avoid = "Do not force-delete or set that taint while the machine may still run: its processes continue to write, and a replacement may write beside them."
		return
	}
	a.Message = fmt.Sprintf("Probably stuck: node %s reports since %s that it is not ready (%s).", node.Name, clock(since), c.Reason)
	a.Fix = "Repair what its kubelet reports: kubectl describe node " + inCommand(node.Name, "NODE") + ". If that is what holds the pod, the pod then terminates."
	a.Avoid = "Do not force-delete: the pod's processes may still run."
	a.Force, a.ForceWhy = "no", "its processes may still run"
}

// outOfService reports whether a node has the taint for which the pod garbage collector force-deletes its pods (gcTerminating,
// pkg/controller/podgc), whatever its effect.
func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// NodeReady returns the condition Ready of a node, nil for none.
func NodeReady(n *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}

// elsewhere says what kind of node it is where nodeagent cannot run, "" where it can.
func elsewhere(n *corev1.Node) string {
	switch {
	case n == nil:
		return ""
	case n.Labels[corev1.LabelOSStable] == "windows":
		return "windows"
	case n.Labels["type"] == "virtual-kubelet":
		return "virtual-kubelet"
	case n.Labels["eks.amazonaws.com/compute-type"] == "fargate":
		return "fargate"
	}
	return ""
}

// exclusive names the volumes of a pod that only one node may have at a time.
func (v *View) exclusive(p *corev1.Pod) []string {
	var out []string
	for _, vol := range p.Spec.Volumes {
		if vol.PersistentVolumeClaim == nil {
			continue
		}
		claim := v.Claims[p.Namespace+"/"+vol.PersistentVolumeClaim.ClaimName]
		if claim == nil || slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
			return m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany
		}) {
			continue
		}
		name := "PVC " + claim.Name
		if pv := v.Volumes[claim.Spec.VolumeName]; pv != nil && pv.Spec.CSI != nil {
			name += " (" + pv.Spec.CSI.Driver + ")"
		}
		out = append(out, name)
	}
	return out
}

// Age is a time span as kubectl prints it.
func Age(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// clock is a time of day in UTC, with the day where that is another one than the one that is read on.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
