// Package why says of terminating pods why they are still there: objects of the API in, answers out. It asks nobody. What the agent of a
// pod's node has found is read from the pod's condition; what the API alone shows is worked out here.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// Late is how far past its deadline a pod is late: the kubelet needs some seconds for what comes after the last container.
const Late = 10 * time.Second

// The causes that the API alone shows. All others are the agent's (docs/reasons).
const (
	NodeNotReady  = "NodeNotReady"         // the API server does not hear from the node's kubelet, or it says that it is not ready
	NodeGone      = "NodeGone"             // there is no Node of that name
	NotScheduled  = "NotScheduled"         // it has never been on a node
	InGracePeriod = diagnose.InGracePeriod // it is inside its grace period
	MirrorPod     = "MirrorPodDeleted"
	Finalizers    = "FinalizersPending"
)

// A View is what was read of a cluster. A map that is nil was not read; Unread says why.
type View struct {
	Now time.Time
	// Namespace, Node and Selector are what was asked about, "" for all.
	Namespace, Node, Selector string
	// Pods are the terminating ones that are asked for.
	Pods []*corev1.Pod
	// Nodes, and the Leases by which their kubelets say that they live, by name.
	Nodes  map[string]*corev1.Node
	Leases map[string]*coordinationv1.Lease
	// Agents are nodeagent's own pods by node.
	Agents map[string]*corev1.Pod
	// Claims are PersistentVolumeClaims by "namespace/name", and Volumes the PersistentVolumes by name.
	Claims  map[string]*corev1.PersistentVolumeClaim
	Volumes map[string]*corev1.PersistentVolume
	// Dependents are what a foreground deletion of an object waits for, by the object's UID.
	Dependents map[string][]string
	// Unread are what could not be read.
	Unread []Unread
}

// An Unread is what could not be read, and why, in words.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// Effect is what is not known for that.
	Effect string `json:"effect,omitempty"`
}

func (u Unread) String() string {
	if u.Effect == "" {
		return u.What + " (" + u.Why + ")"
	}
	return u.What + " (" + u.Why + "): " + u.Effect
}

// A Source is who says what an answer says.
type Source string

// The sources.
const (
	FromAgent Source = "agent" // the condition that the agent of the node has written
	FromAPI   Source = "api"   // the API's objects
	FromNone  Source = "none"  // nobody: no agent has said anything
)

// An Answer says of one terminating pod why it is still there.
type Answer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Deleted is when the deletion was asked for, and Deadline when the grace period ends.
	Deleted  time.Time `json:"deletedAt"`
	Deadline time.Time `json:"deadline"`
	// LateSeconds is how far it is past its deadline, 0 inside the grace period.
	LateSeconds int64 `json:"lateSeconds"`
	// Cause is the reason, "" where none is known.
	Cause string `json:"cause,omitempty"`
	// Phase is the stage of the termination, "" where the agent has not said.
	Phase string `json:"phase,omitempty"`
	// HeldBy is who holds the pod up, in few words.
	HeldBy string `json:"heldBy,omitempty"`
	// Who can act, in a few words, "" where the agent has not said.
	Who string `json:"who,omitempty"`
	// Message says what is stuck and why; Seen what shows it, Fix what is safe to do, Avoid what would do harm.
	Message string `json:"message,omitempty"`
	Seen    string `json:"seen,omitempty"`
	Fix     string `json:"fix,omitempty"`
	Avoid   string `json:"avoid,omitempty"`
	// Force answers whether a force delete is safe: no, not yet, yes or unknown; ForceWhy says why.
	Force    string `json:"forceDelete"`
	ForceWhy string `json:"forceDeleteWhy,omitempty"`
	Timeline string `json:"timeline,omitempty"`
	// Unverified reports whether the texts are quoted, because they are of another version, or not the agent's.
	Unverified bool `json:"unverified,omitempty"`
	// Source is who says so, and Said since when.
	Source Source    `json:"source"`
	Said   time.Time `json:"saidSince,omitzero"`
	// Agent is how the agent of the node is, and AgentSince since when, zero where that is not known.
	Agent      AgentState `json:"agent"`
	AgentSince time.Time  `json:"agentSince,omitzero"`
	// Also are what holds the object beside the cause.
	Also []string `json:"also,omitempty"`
}

// An AgentState is how nodeagent's pod of a node is.
type AgentState string

// The states of an agent.
const (
	AgentReady    AgentState = "ready"
	AgentNotReady AgentState = "not ready"
	AgentMissing  AgentState = "missing"
	AgentUnread   AgentState = "not read"
)

// Late reports whether the pod should have been gone for a while.
func (a *Answer) Late() bool { return time.Duration(a.LateSeconds)*time.Second >= Late }

// Judge answers for all pods of a view, the most overdue first.
func Judge(v *View) []Answer {
	out := make([]Answer, 0, len(v.Pods))
	for _, p := range v.Pods {
		out = append(out, v.judge(p))
	}
	slices.SortStableFunc(out, func(a, b Answer) int {
		return cmp.Or(cmp.Compare(b.LateSeconds, a.LateSeconds), a.Deadline.Compare(b.Deadline), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// judge goes through who can know, from who makes all others wrong to who knows least: the object alone is left, its node is lost, the agent
// on that has said something, the API.
func (v *View) judge(p *corev1.Pod) Answer {
	a := v.base(p)
	said := agentsCondition(p, corev1.ConditionTrue)
	for _, answers := range []func(*View, *corev1.Pod, *corev1.PodCondition, *Answer) bool{
		(*View).objectAlone, (*View).lostNode, (*View).agentSays, (*View).apiShows, (*View).unreadyNode, (*View).nobodyKnows,
	} {
		if answers(v, p, said, &a) {
			break
		}
	}
	if a.Source == FromAPI {
		a.Who = whoActs(a.Cause)
	}
	if len(p.Finalizers) > 0 && a.Cause != Finalizers {
		a.Also = append(a.Also, "finalizers keep the object when its containers have exited: "+strings.Join(p.Finalizers, ", "))
	}
	if node := v.beside(p, &a); node != "" {
		if a.Cause == Finalizers && !ended(p) {
			node += "; if its machine runs, the pod's processes may run, too"
		}
		a.Also = append(a.Also, node)
	}
	return a
}

// beside says what is wrong with the node of a pod for which another cause is reported, "" for nothing.
func (v *View) beside(p *corev1.Pod, a *Answer) string {
	if v.Nodes == nil || p.Spec.NodeName == "" || a.Cause == NodeGone || a.Cause == NodeNotReady {
		return ""
	}
	n := v.Nodes[p.Spec.NodeName]
	if n == nil {
		return "the Node object " + p.Spec.NodeName + " does not exist any more"
	}
	c := NodeReady(n)
	if c == nil || c.Status == corev1.ConditionTrue {
		return ""
	}
	return fmt.Sprintf("the condition Ready of node %s is %s (%s) since %s", n.Name, c.Status, c.Reason, clock(c.LastTransitionTime.Time))
}

func (v *View) base(p *corev1.Pod) Answer {
	a := Answer{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName,
		Deadline: p.DeletionTimestamp.Time, Deleted: p.DeletionTimestamp.Time,
		Force: "unknown", Source: FromNone,
	}
	if g := p.DeletionGracePeriodSeconds; g != nil && *g < mostGrace {
		a.Deleted = a.Deadline.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	if first := firstDeadline(p, a.Deleted); first.After(a.Deadline) {
		a.Deadline = first
	}
	// The kubelet's last delete moves the deadline back to the deletion.
	if finallyDeleted(p) {
		if end := lastExit(p); end.After(a.Deadline) {
			a.Deadline = end
		}
	}
	if late := v.Now.Sub(a.Deadline); late > 0 {
		a.LateSeconds = int64(late / time.Second)
	}
	a.Agent, a.AgentSince = v.agent(p.Spec.NodeName)
	return a
}

// firstDeadline returns when the kubelet has a pod killed that was deleted again with a shorter grace period, by what the agent wrote of it
// before or since: the kubelet keeps to the first one. Zero where the agent has written nothing of the kind, or something that the grace period
// of the specification does not bear out, as whoever may patch the status can.
func firstDeadline(p *corev1.Pod, deleted time.Time) time.Time {
	c, g := agentsCondition(p, corev1.ConditionFalse), p.Spec.TerminationGracePeriodSeconds
	if c == nil || c.Reason != InGracePeriod || g == nil || *g >= mostGrace || ended(p) {
		return time.Time{}
	}
	if at := diagnose.KilledAt(c.Message, deleted); !at.After(deleted.Add(time.Duration(*g) * time.Second)) {
		return at
	}
	return time.Time{}
}

func (v *View) agent(node string) (AgentState, time.Time) {
	switch p, found := v.Agents[node]; {
	case v.Agents == nil:
		return AgentUnread, time.Time{}
	case node == "" || !found:
		return AgentMissing, time.Time{}
	default:
		for _, c := range p.Status.Conditions {
			if c.Type != corev1.PodReady {
				continue
			}
			if c.Status == corev1.ConditionTrue {
				return AgentReady, c.LastTransitionTime.Time
			}
			return AgentNotReady, c.LastTransitionTime.Time
		}
		return AgentNotReady, time.Time{}
	}
}

// mostGrace is the longest grace period in seconds that a time can be counted with.
const mostGrace = 1 << 31

// agentsCondition is the agent's condition of a pod, nil for none.
func agentsCondition(p *corev1.Pod, status corev1.ConditionStatus) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == verdict.ConditionType && c.Status == status {
			return c
		}
	}
	return nil
}

// agentSays takes over what the agent of the node has found.
func (v *View) agentSays(p *corev1.Pod, said *corev1.PodCondition, a *Answer) bool {
	if said == nil {
		return false
	}
	a.Cause, a.Source, a.Said = said.Reason, FromAgent, lastWrote(p, said)
	m, ok := condition.Parse(said.Message)
	if !ok { // of an agent that wrote one line
		a.Message, a.HeldBy = said.Message, heldBy(said.Reason, said.Message)
		return true
	}
	if !written(p, said) {
		a.Unverified = true
		a.Message, a.Who, a.Seen, a.Fix, a.Avoid = quoted(m.Cause), quoted(m.Who), quoted(m.Seen), quoted(m.Fix), quoted(m.Avoid)
		a.HeldBy, a.Force, a.ForceWhy = "its condition is "+unverified, "unknown", "the condition is "+unverified
		return true
	}
	a.Message, a.Who, a.Seen, a.Fix, a.Avoid, a.Timeline = m.Cause, m.Who, m.Seen, m.Fix, m.Avoid, m.Timeline
	a.Phase, a.HeldBy = phaseOf(m.Cause), heldBy(said.Reason, m.Cause)
	a.Force, a.ForceWhy = forceOf(m.ForceDelete)
	if m.ForceDelete == "" && !a.Late() {
		a.Force, a.ForceWhy = inGrace()
	}
	if a.Cause == Finalizers {
		a.HeldBy = "finalizer: " + strings.Join(p.Finalizers, ", ")
		v.foreground(p, a)
	}
	// Who does not run cannot take back what no longer holds. The pods of a lost node are not Ready, whatever they do.
	if a.Agent == AgentMissing || a.Agent == AgentNotReady && !a.Said.After(a.AgentSince) {
		const stale = "nodeagent has not run on this node since then"
		a.HeldBy = "last known: " + a.HeldBy
		a.Also = append(a.Also, stale+": it may have changed")
		if a.Force == "yes" {
			a.Force, a.ForceWhy = "unknown", stale
		}
	}
	return true
}

// unverified says of a condition whose advice has no text that is known.
const unverified = "of another version, or not the agent's"

// written reports whether a pod's condition may be an agent's by its text: not one with advice that no agent of this version, or of the two
// releases before it, gives.
func written(p *corev1.Pod, said *corev1.PodCondition) bool {
	m, ok := condition.Parse(said.Message)
	return !ok || (m.Who == "" || diagnose.SaidWho(m.Who)) && cause.Wrote(said.Reason, m.Fix, m.Avoid, m.ForceDelete, subjectOf(p))
}

// subjectOf returns what the commands in a pod's condition may be about.
func subjectOf(p *corev1.Pod) cause.Subject {
	onNode, _ := verdict.NodeUID(string(p.UID), p.Annotations)
	of := cause.Subject{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, UIDs: []string{string(p.UID), onNode}}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			of.Own(statuses[i].ContainerID)
		}
	}
	return of
}

// quoted is how a text that may be anybody's stands in ours; "" for none.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strconv.QuoteToASCII(text)
}

// lastWrote returns when the agent last wrote about a pod by the API server's clock. The condition's own time is from when it began to be true.
func lastWrote(p *corev1.Pod, said *corev1.PodCondition) time.Time {
	for _, m := range p.ManagedFields {
		if m.Manager == verdict.FieldManager && m.Subresource == "status" && m.Time != nil {
			return m.Time.Time
		}
	}
	return said.LastTransitionTime.Time
}

// forceOf splits the answer about a force delete into its word and the reason.
func forceOf(line string) (word, why string) {
	for _, word := range []string{"not yet", "no", "yes", "unknown"} {
		if rest, ok := strings.CutPrefix(line, word); ok && (rest == "" || strings.ContainsAny(rest[:1], ",.:")) {
			return word, strings.TrimLeft(rest, ",.: ")
		}
	}
	return "unknown", line
}

// phaseOf returns the phase that a Cause line names (docs/condition.md), "" for none.
func phaseOf(cause string) string {
	lead, _, ok := strings.Cut(cause, ": ")
	if strings.HasPrefix(lead, "WHOLE NODE") {
		_, cause, _ = strings.Cut(cause, ": ")
		lead, _, ok = strings.Cut(cause, ": ")
	}
	_, phase, found := strings.Cut(lead, " in phase ")
	if !ok || !found {
		return ""
	}
	return phase
}
