package bed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// label is on the pods of all incidents; its value is the scenario's name.
const label = "scenario"

// A Scenario is one incident: what it needs, what is broken, and what is wanted of the agent.
type Scenario struct {
	Name string
	// Story is what is broken, in a line.
	Story string
	Tier  Tier
	Place
	Fault
	Want
}

// A Tier says when an incident runs.
type Tier int

const (
	// Matrix is for make matrix only.
	Matrix Tier = iota
	// Sentinel is for make test too, and so for each change.
	Sentinel
)

func (t Tier) String() string { return [...]string{"matrix", "sentinel"}[t] }

// A Check is one more row of the table: how the agent behaves, apart from what it says of
// an incident. What it does is in test/e2e.
type Check struct {
	Name, Story string
	Tier        Tier
	On          Extent
}

// An Extent is what a check takes for itself.
type Extent int

const (
	// Nothing is for a check that runs beside incidents.
	Nothing Extent = iota
	// ANode is for what stops a node's agent.
	ANode
	// TheCluster is for what all nodes suffer from.
	TheCluster
	// AKernel is for what asks a kernel, and may hang it: on a virtual machine, and in the
	// matrix on each of the kernels.
	AKernel
)

// A Place is what an incident needs of its node.
type Place struct {
	Needs []Need
	// Everywhere reports whether it runs on every node that offers that, not only on
	// the cheapest one.
	Everywhere bool
	// Alone reports whether nothing else can run on the node meanwhile.
	Alone bool
	// Hungry reports whether it takes much memory or time of the processors: no two such run at once on a virtual machine.
	Hungry bool
	// NoExec reports whether nothing can be executed in containers meanwhile.
	NoExec bool
	// Long reports whether it takes minutes by its nature, so that it begins first and nothing waits for
	// it at the end.
	Long bool
}

// A Fault is a pod, and what is broken of what its termination depends on.
type Fault struct {
	// Pod is the manifest, without name, namespace and node. Its grace period is
	// for a node of ordinary speed.
	Pod  corev1.PodSpec
	Made Made
	// Finalizers are put on the pod.
	Finalizers []string
	// Starting reports whether the pod does not get over its start: Break waits for
	// what is wanted of it then.
	Starting bool
	// Prepare sets up on the node what the pod needs; Break breaks it when the
	// pod runs, before it is deleted.
	Prepare, Break Step
	// Proof is the scenario's own reading, on the node, of the kernel's files:
	// a shell script that ends with 0 when the fault is really there. It is
	// asked again until it does.
	Proof string
	// Heal ends the fault; the pod must be deleted then. nil means that it is
	// deleted without that.
	Heal Step
}

// Made says what makes the pod.
type Made int

const (
	// Plain is a pod that the test makes itself.
	Plain Made = iota
	// Static is a static pod: its manifest is put on the node, and what is deleted is
	// its mirror pod.
	Static
	// OfSet is a pod that a StatefulSet makes, and makes again.
	OfSet
)

// A Want is what the agent has to say, and when.
type Want struct {
	// Cause, Family and Says are what the agent must find and name; no Cause
	// means that it must be silent. What Says holds stands in the Event, or, where it begins
	// with the label of a line of the condition ("Fix: kill -CONT"), in that line. NAMESPACE
	// stands for the pod's namespace.
	Cause, Family string
	Says          []string
	// Force is what the captured evidence must answer about a force delete; "" means
	// that nobody asks.
	Force string
	When  When
	// Waits are what the condition of a pod inside its grace period must say, of an innocent that is
	// there for more than a minute.
	Waits []string
	// Late reports whether what proves the cause comes so late that Unknown or KubeletLate may stand before.
	Late bool
	// Stays is for how long the verdict is watched before Heal: it must neither change nor be withdrawn.
	Stays time.Duration
	// Ends has the exit codes with which containers end by themselves, long before the grace period does. It is
	// asked of pods without a Cause.
	Ends map[string]int32
	// Then is the verdict that may come when Heal has ended the fault, and something else keeps the pod.
	Then string
	// NoCondition reports whether the agent's condition cannot be written, so that the Event alone
	// tells the verdict.
	NoCondition bool
}

// When is the part of the termination in which the verdict comes.
type When int

const (
	// Overdue is past the deadline.
	Overdue When = iota
	// InGrace is inside the grace period: the verdict must not come later.
	InGrace
	// WhenGone is for a verdict that may come as an Event when the pod has been
	// deleted already.
	WhenGone
)

// A Step is something that is done on the node for a pod.
type Step = func(context.Context, *Node, *corev1.Pod) error

// Manifest returns the scenario's pod on a node.
func (s *Scenario) Manifest(n *Node) *corev1.Pod {
	spec := *s.Pod.DeepCopy()
	spec.NodeName = n.Name
	grace := n.grace(*spec.TerminationGracePeriodSeconds)
	if s.When == InGrace || s.Ends != nil { // its verdict has to be told in it, by an agent that may be late, or it has to end in a part of it
		grace = max(grace, *spec.TerminationGracePeriodSeconds)
	}
	for i := range spec.Containers {
		scaleSleeps(&spec.Containers[i], *s.Pod.TerminationGracePeriodSeconds, grace)
	}
	spec.TerminationGracePeriodSeconds = &grace
	// A network of its own costs an emulated node more than the rest of a pod.
	spec.HostNetwork = n.Kind == kindVM && !slices.Contains(s.Needs, PodNetwork)
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, corev1.RestartPolicyNever)
	no := false
	spec.AutomountServiceAccountToken = &no
	spec.EnableServiceLinks = &no
	spec.DNSPolicy = corev1.DNSDefault // the cluster has no DNS of its own
	for i := range spec.Containers {
		spec.Containers[i].ImagePullPolicy = cmp.Or(spec.Containers[i].ImagePullPolicy, corev1.PullNever)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: n.Namespace(), Finalizers: s.Finalizers,
			Labels: map[string]string{label: s.Name},
		},
		Spec: spec,
	}
}

// scaleSleeps has the hooks of a container that sleep take the same part of the grace period as
// before: the API server refuses one that sleeps for longer.
func scaleSleeps(c *corev1.Container, grace, scaled int64) {
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PreStop, c.Lifecycle.PostStart} {
		if h != nil && h.Sleep != nil {
			h.Sleep.Seconds = h.Sleep.Seconds * scaled / grace
		}
	}
}

// OnNode is a step that runs a shell script on the node. UID_ in it is the pod's
// UID, CGROUP its form in cgroup names, NAME its name, GRACE its grace period and
// NODE the node's address.
func OnNode(script string) Step {
	return func(ctx context.Context, n *Node, p *corev1.Pod) error {
		_, err := n.Exec(ctx, n.Script(script, p))
		return err
	}
}

// Script fills the pod's names into a script for the node.
func (n *Node) Script(text string, p *corev1.Pod) string {
	uid := runtimeUID(p)
	return fmt.Sprintf("UID_=%s; CGROUP=%s; NAME=%s; GRACE=%d; NODE=%s\nset -e\n%s\n%s",
		uid, strings.ReplaceAll(uid, "-", "_"), p.Name, *p.Spec.TerminationGracePeriodSeconds, n.Address, functions, text)
}

// functions are shell functions for scripts on the node. tasks prints the
// thread IDs in the pod's cgroups, whatever driver and version made them,
// statuses and stacks the names of these files of theirs; some STATE [PENDING] succeeds when
// one of them is in the state with the pending signals (hexadecimal, as the
// kernel prints them); wchan PID prints the kernel function that a task sleeps
// in, without what compilers append to names; end SIGNAL FILE signals the processes whose
// PIDs stand in the file, if they are there. They start as few programs as they
// can: on an emulated processor that is what costs.
const functions = `
tasks() {
  for root in /sys/fs/cgroup /sys/fs/cgroup/pids; do
    for pod in $root/kubepods*/*pod$CGROUP* $root/kubepods*/*/*pod$CGROUP* $root/kubepods*/pod$UID_ $root/kubepods*/*/pod$UID_; do
      for file in $pod/cgroup.threads $pod/tasks $pod/*/cgroup.threads $pod/*/tasks; do
        [ ! -e $file ] || while read -r task; do echo $task; done <$file
      done
    done
  done
}
statuses() { for task in $(tasks); do echo /proc/$task/status; done; }
stacks() { for task in $(tasks); do echo /proc/$task/stack; done; }
some() {
  files=$(statuses)
  [ -n "$files" ] && awk -v state="$1" -v pending="$2" '
    $1=="State:"{is=$2==state}
    $1=="SigPnd:" && is && (pending=="" || $2~pending"$"){found=1; exit}
    END{exit !found}' $files 2>/dev/null
}
end() {
  [ -e $2 ] || return 0
  for pid in $(cat $2); do kill -$1 $pid 2>/dev/null || [ ! -e /proc/$pid ]; done
}
wchan() { function=; read -r function </proc/$1/wchan || [ -n "$function" ] && echo "${function%%.*}"; }
`
