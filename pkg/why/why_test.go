package why

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/hostile"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

var now = time.Date(2026, 3, 1, 3, 10, 0, 0, time.UTC)

// pod is one whose grace period of 30 s has been over for a while.
func pod(over time.Duration, change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	at := metav1.NewTime(now.Add(-over))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u1", DeletionTimestamp: &at, DeletionGracePeriodSeconds: &grace},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func told(reason, message string, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		})
	}
}

func toldNotStuck(p *corev1.Pod) {
	told(InGracePeriod, "Not stuck: sleep runs until it is killed.", time.Minute)(p)
	p.Status.Conditions[0].Status = corev1.ConditionFalse
}

func toldResolved(p *corev1.Pod) {
	told(verdict.Resolved, "The cause reported earlier is gone.", time.Minute)(p)
	p.Status.Conditions[0].Status = corev1.ConditionFalse
}

// wrote is when the agent last wrote about a pod.
func wrote(ago time.Duration) func(*corev1.Pod) {
	at := metav1.NewTime(now.Add(-ago))
	return func(p *corev1.Pod) {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: verdict.FieldManager, Subresource: "status", Time: &at})
	}
}

func node(status corev1.ConditionStatus, ago time.Duration) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, Reason: "R", LastTransitionTime: metav1.NewTime(now.Add(-ago))},
	}}}
}

func view(n *corev1.Node, p *corev1.Pod) *View {
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nodeagent-x"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	v := &View{Now: now, Pods: []*corev1.Pod{p}, Nodes: map[string]*corev1.Node{}, Agents: map[string]*corev1.Pod{"n1": agent}}
	if n != nil {
		v.Nodes["n1"] = n
	}
	return v
}

var verdictMessage = condition.Message{
	Cause: "Stuck in phase Kill: thread 7 (dd) is in D state.", Seen: "s.", ForceDelete: "no, a process still runs.", Timeline: "t.",
}.String()

func TestJudge(t *testing.T) {
	const late = 5 * time.Minute
	ready, lost, unready := node(corev1.ConditionTrue, time.Hour), node(corev1.ConditionUnknown, 4*time.Minute), node(corev1.ConditionFalse, 6*time.Minute)
	says := told("UninterruptibleSleep", verdictMessage, 2*time.Minute)
	before := told("UninterruptibleSleep", verdictMessage, 20*time.Minute)
	finalizer := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }
	done := func(p *corev1.Pod) {
		p.DeletionGracePeriodSeconds = new(int64)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}}}}
	}
	forced := func(p *corev1.Pod) {
		p.DeletionGracePeriodSeconds = new(int64)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "h"} }
	for name, c := range map[string]struct {
		v             *View
		cause, force  string
		source        Source
		stuck, heldBy string
	}{
		"the agent says": {view(ready, pod(late, says)), "UninterruptibleSleep", "no", FromAgent, "thread 7",
			"kernel: thread 7 (dd) is in D state"},
		"the agent says one line": {view(ready, pod(late, told("ShimHung", "Blocked in phase Kill: it hangs.", time.Minute))), "ShimHung",
			"unknown", FromAgent, "it hangs", ""},
		"the node is lost":                  {view(lost, pod(late)), NodeNotReady, "no", FromAPI, "Ready is Unknown", "node: not ready for 4m"},
		"the node is lost since":            {view(lost, pod(late, before)), NodeNotReady, "no", FromAPI, "Ready is Unknown", "node: not ready for 4m"},
		"the agent gets through from there": {view(lost, pod(late, says)), "UninterruptibleSleep", "no", FromAgent, "thread 7", "kernel"},
		"the agent has rewritten it since":  {view(lost, pod(late, before, wrote(time.Minute))), "UninterruptibleSleep", "no", FromAgent, "thread 7", "kernel"},
		"only the object, node lost":        {view(lost, pod(late, finalizer, done)), Finalizers, "no", FromAPI, "example.com/x", "finalizer: example.com/x"},
		"only the object, node gone":        {view(nil, pod(late, finalizer, done)), Finalizers, "no", FromAPI, "example.com/x", "finalizer: example.com/x"},
		"only the object, node not ready":   {view(unready, pod(late, finalizer, done)), Finalizers, "no", FromAPI, "example.com/x", "finalizer: example.com/x"},
		"forced, node lost": {view(lost, pod(late, finalizer, forced)), Finalizers, "no", FromAPI, "The pod was force-deleted",
			"finalizer: example.com/x"},
		"forced, node gone for days":         {view(nil, pod(72*time.Hour, finalizer, forced)), Finalizers, "no", FromAPI, "The pod was force-deleted", "finalizer"},
		"forced, and the agent gets through": {view(lost, pod(late, finalizer, forced, says)), "UninterruptibleSleep", "no", FromAgent, "thread 7", "kernel"},
		"only the object, an older verdict": {view(ready, pod(late, finalizer, done, before)), Finalizers, "no", FromAPI, "example.com/x",
			"finalizer: example.com/x"},
		"a mirror pod, node not ready": {view(unready, pod(late, mirror)), MirrorPod, "no", FromAPI, "static pod", "kubelet"},
		"not ready since it was late": {view(node(corev1.ConditionFalse, 5*time.Second), pod(late)), "", "unknown", FromNone,
			"has written no condition", "not known"},
		"the agent took it back": {view(ready, pod(late, toldNotStuck)), "", "unknown", FromAgent,
			"reports no cause at present. It wrote last (InGracePeriod): Not stuck", "not known"},
		"the cause is gone":                  {view(ready, pod(late, toldResolved)), "", "unknown", FromAgent, "It wrote last (Resolved): ", "the cause is gone"},
		"there is no such node":              {view(nil, pod(late)), NodeGone, "no", FromAPI, "Node object n1 does not exist", "does not exist"},
		"the kubelet is not ready":           {view(unready, pod(late)), NodeNotReady, "no", FromAPI, "Probably stuck: node n1 reports", "node: not ready for 6m"},
		"the kubelet is not ready, in grace": {view(unready, pod(-time.Minute)), InGracePeriod, "no", FromAPI, "Not stuck", "SIGKILL in 60s"},
		"not ready, and the agent says":      {view(unready, pod(late, before)), "UninterruptibleSleep", "no", FromAgent, "thread 7", "kernel"},
		"a finalizer":                        {view(ready, pod(late, finalizer, done)), Finalizers, "no", FromAPI, "example.com/x", "finalizer: example.com/x"},
		"a finalizer, and it runs":           {view(ready, pod(late, finalizer)), "", "unknown", FromNone, "has written no condition", "nodeagent on n1"},
		"a finalizer, and it was forced":     {view(ready, pod(late, finalizer, forced)), "", "unknown", FromNone, "has written no condition", "nodeagent on n1"},
		"a mirror pod":                       {view(ready, pod(late, mirror)), MirrorPod, "no", FromAPI, "static pod", "kubelet"},
		"in its grace period":                {view(ready, pod(-20*time.Second)), InGracePeriod, "no", FromAPI, "Not stuck", "SIGKILL in 20s"},
		"in its grace period, by the agent":  {view(ready, pod(-20*time.Second, toldNotStuck)), InGracePeriod, "no", FromAgent, "Not stuck: sleep", "SIGKILL in 20s"},
		"in its grace period, taken back": {view(ready, pod(-20*time.Second, func(p *corev1.Pod) {
			toldNotStuck(p)
			p.Status.Conditions[0].Message = "Container main is inside its grace period. Whether it will be killed when that is over is not known: x."
		})), InGracePeriod, "no", FromAgent, "Whether it will be killed", "who has to kill it does not act"},
		"about to end": {view(ready, pod(4*time.Second)), InGracePeriod, "no", FromAPI, "some seconds", "finishing"},
		"never on a node": {view(ready, pod(late, func(p *corev1.Pod) { p.Spec.NodeName = "" })), NotScheduled, "no", FromAPI,
			"never scheduled", "API"},
		"never on a node, with a finalizer": {view(ready, pod(late, finalizer, func(p *corev1.Pod) { p.Spec.NodeName = "" })), Finalizers, "no", FromAPI,
			"example.com/x", "finalizer"},
		"nobody knows": {view(ready, pod(late)), "", "unknown", FromNone, "has written no condition",
			"nodeagent on n1 has written no condition"},
	} {
		a := Judge(c.v)[0]
		if a.Cause != c.cause || a.Force != c.force || a.Source != c.source || !strings.Contains(a.Message, c.stuck) || !strings.Contains(a.HeldBy, c.heldBy) {
			t.Errorf("%s: %+v", name, a)
		}
		for _, text := range []string{a.Message, a.Seen, a.Fix, a.Avoid, a.ForceWhy, a.HeldBy} {
			if err := plain.Check(text); err != nil && a.Source != FromAgent {
				t.Errorf("%s: %v", name, err)
			}
		}
		if grace := *c.v.Pods[0].DeletionGracePeriodSeconds; a.Late() != (a.LateSeconds >= 10) || grace > 0 && a.Deadline.Sub(a.Deleted) != 30*time.Second {
			t.Errorf("%s: late %v, deleted %s, deadline %s", name, a.Late(), a.Deleted, a.Deadline)
		}
	}
}

func TestAgentState(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*View)
		want   AgentState
		stuck  string
	}{
		"ready":     {func(*View) {}, AgentReady, "has written no condition"},
		"not ready": {func(v *View) { v.Agents["n1"].Status.Conditions = nil }, AgentNotReady, "is not ready"},
		"missing":   {func(v *View) { delete(v.Agents, "n1") }, AgentMissing, "No nodeagent runs"},
		"not read":  {func(v *View) { v.Agents = nil }, AgentUnread, "could not be read"},
	} {
		v := view(node(corev1.ConditionTrue, time.Hour), pod(time.Minute))
		c.change(v)
		if a := Judge(v)[0]; a.Agent != c.want || !strings.Contains(a.Message, c.stuck) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// What an agent said that does not run any more may have changed.
func TestStaleVerdict(t *testing.T) {
	v := view(node(corev1.ConditionTrue, time.Hour), pod(time.Hour, told("FinalDeleteRejected", condition.Message{Cause: "Stuck in phase FinalDelete: " +
		"x.", ForceDelete: "yes, all containers have exited, and nothing of the pod has been left on the node since 03:05:00 UTC."}.String(), 3*time.Hour)))
	if a := Judge(v)[0]; a.Force != "yes" || len(a.Also) > 0 {
		t.Errorf("%+v", a)
	}
	lost := &v.Agents["n1"].Status.Conditions[0] // it said so when its node was lost already
	lost.Status, lost.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Add(-4*time.Hour))
	if a := Judge(v)[0]; a.Force != "yes" || len(a.Also) > 0 {
		t.Errorf("%+v", a)
	}
	delete(v.Agents, "n1")
	if a := Judge(v)[0]; a.Force != "unknown" || !strings.HasPrefix(a.HeldBy, "last known: ") || len(a.Also) != 1 || !strings.Contains(a.Also[0],
		"may have changed") {
		t.Errorf("%+v", a)
	}
}

// nodeagent runs on Linux nodes with a kubelet.
func TestElsewhere(t *testing.T) {
	for label, value := range map[string]string{"kubernetes.io/os": "windows", "type": "virtual-kubelet", "eks.amazonaws.com/compute-type": "fargate"} {
		n := node(corev1.ConditionTrue, time.Hour)
		n.Labels = map[string]string{label: value}
		v := view(n, pod(time.Hour))
		delete(v.Agents, "n1")
		if a := Judge(v)[0]; !strings.Contains(a.Message, value) || strings.Contains(a.Fix, "journalctl") {
			t.Errorf("%s: %+v", value, a)
		}
	}
}

// What was known of the pod before its node was lost is not hidden: the machine may run.
func TestLostNodeShowsWhatWasReported(t *testing.T) {
	v := view(node(corev1.ConditionUnknown, 4*time.Minute), pod(5*time.Minute, told("KubeletDown", verdictMessage, 20*time.Minute)))
	if a := Judge(v)[0]; a.Cause != NodeNotReady || len(a.Also) != 1 || !strings.Contains(a.Also[0], "before that: KubeletDown") {
		t.Errorf("%s, also %q", a.Cause, a.Also)
	}
}

// What keeps a force-deleted pod of a node that is lost or gone is its finalizer; the node is said beside it.
func TestForcedOnLostNode(t *testing.T) {
	forced := func(p *corev1.Pod) {
		p.DeletionGracePeriodSeconds, p.Finalizers = new(int64), []string{"example.com/x"}
		p.Status.Phase = corev1.PodFailed // as the pod garbage collector leaves it; it writes no statuses of containers
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	ended := func(p *corev1.Pod) {
		forced(p)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}
	lost := node(corev1.ConditionUnknown, time.Hour)
	const unheard = "the condition Ready of node n1 is Unknown (R) since 2026-03-01 02:10:00 UTC"
	const mayRun = "; if its machine runs, the pod's processes may run, too"
	for name, c := range map[string]struct {
		v    *View
		also string
	}{
		"gone":        {view(nil, pod(72*time.Hour, forced)), "the Node object n1 does not exist any more" + mayRun},
		"gone, ended": {view(nil, pod(72*time.Hour, ended)), "the Node object n1 does not exist any more"},
		"lost":        {view(lost, pod(time.Hour, forced)), unheard + mayRun},
		"lost, ended": {view(lost, pod(time.Hour, ended)), unheard},
	} {
		a := Judge(c.v)[0]
		if a.Cause != Finalizers || a.Force != "no" || len(a.Also) != 1 || a.Also[0] != c.also {
			t.Errorf("%s: %+v", name, a)
		}
	}
	// What the agent wrote of the finalizer is better than what the API shows, also of before.
	told := told(Finalizers, condition.Message{Cause: "Stuck in phase Finalizers: example.com/x (set by \"m\")."}.String(), 2*time.Hour)
	if a := Judge(view(node(corev1.ConditionUnknown, time.Hour), pod(time.Hour, forced, told)))[0]; a.Source != FromAgent || a.Cause != Finalizers {
		t.Errorf("%+v", a)
	}
}

// A taint that is there is not advised.
func TestTaintIsThere(t *testing.T) {
	n := node(corev1.ConditionUnknown, time.Hour)
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	a := Judge(view(n, pod(time.Hour)))[0]
	if a.Cause != NodeNotReady || strings.Contains(a.Fix, "=nodeshutdown") || strings.Contains(a.Avoid, "set that taint") ||
		!strings.Contains(a.Fix, "kube-controller-manager") || !strings.Contains(a.Fix, "kubectl taint node n1 node.kubernetes.io/out-of-service-.") {
		t.Errorf("%+v", a)
	}
	for _, text := range []string{a.Fix, a.Avoid} {
		if err := plain.Check(text); err != nil {
			t.Error(err)
		}
	}
}

func TestNodeNotReady(t *testing.T) {
	claim := func(name string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{mode}, VolumeName: "pv-" + name}}
	}
	of := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	n := node(corev1.ConditionUnknown, 4*time.Minute)
	n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute}, {Key: "example.com/x",
		Effect: corev1.TaintEffectNoSchedule}}
	v := view(n, pod(time.Hour, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{of("data"), of("shared"), of("unread"), {Name: "tmp"}}
	}))
	renewed := metav1.NewMicroTime(now.Add(-5 * time.Minute))
	v.Leases = map[string]*coordinationv1.Lease{"n1": {Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}}
	v.Claims = map[string]*corev1.PersistentVolumeClaim{"shop/data": claim("data", corev1.ReadWriteOnce), "shop/shared": claim("shared", corev1.ReadWriteMany)}
	v.Volumes = map[string]*corev1.PersistentVolume{"pv-data": {Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}}}}}
	a := Judge(v)[0]
	const want = "Its Lease was renewed last at 2026-03-01 03:05:00 UTC. Taints: node.kubernetes.io/unreachable:NoExecute. " +
		"Volumes that may have to be detached from it before another node gets them: PVC data (ebs.csi.aws.com)."
	if a.Seen != want {
		t.Errorf("seen %q", a.Seen)
	}
	if !strings.Contains(a.Fix, "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute") {
		t.Errorf("fix %q", a.Fix)
	}
}

func TestFinalizerOwner(t *testing.T) {
	at := metav1.NewTime(now.Add(-time.Hour))
	p := pod(time.Minute, func(p *corev1.Pod) {
		p.DeletionGracePeriodSeconds = new(int64)
		p.Finalizers = []string{"example.com/x", metav1.FinalizerDeleteDependents}
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "backup\x1b[31m", Time: &at,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"example.com/x\"":{}}}}`)}, {Manager: "none"}}
	})
	v := view(node(corev1.ConditionTrue, time.Hour), p)
	v.Dependents = map[string][]string{"u1": {"configmaps/a", "configmaps/b"}}
	a := Judge(v)[0]
	if want := `example.com/x was set by "backup\x1b[31m", which last changed the pod at 2026-03-01 02:10:00 UTC.`; a.Seen != want {
		t.Errorf("seen %q", a.Seen)
	}
	if !strings.HasSuffix(a.Message, " The foreground deletion waits for configmaps/a, configmaps/b.") ||
		!strings.HasPrefix(a.Fix, "Read what holds the first of them: kubectl get configmaps/a -n shop -o yaml. ") {
		t.Errorf("message %q, fix %q", a.Message, a.Fix)
	}
}

func TestOrder(t *testing.T) {
	v := view(node(corev1.ConditionTrue, time.Hour), pod(time.Minute))
	for i, over := range []time.Duration{-time.Minute, time.Hour, -time.Second, 20 * time.Second} {
		v.Pods = append(v.Pods, pod(over, func(p *corev1.Pod) { p.Name = string(rune('a' + i)) }))
	}
	var names []string
	for _, a := range Judge(v) {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "b web-0 d c a" {
		t.Errorf("order %s", got)
	}
}

func TestForceOf(t *testing.T) {
	for line, want := range map[string][2]string{
		"no, a process runs.": {"no", "a process runs."}, "not yet: x": {"not yet", "x"}, "yes": {"yes", ""}, "unknown, y": {"unknown", "y"},
		"nothing": {"unknown", "nothing"}, "": {"unknown", ""},
	} {
		if word, why := forceOf(line); word != want[0] || why != want[1] {
			t.Errorf("%q: %q, %q", line, word, why)
		}
	}
}

// What is taken over from the agent's causes are their names: each layer has somebody who holds a pod up. Each cause that the API shows has
// a page.
func TestNamesOfCauses(t *testing.T) {
	for _, r := range cause.All() {
		if layers[r.Doc.Layer] == "" && r.Cause != diagnose.Unrecognised.Cause {
			t.Errorf("%s: nobody is named for layer %s", r.Cause, r.Doc.Layer)
		}
	}
	for _, name := range []string{MirrorPod, Finalizers, NodeNotReady, NodeGone, NotScheduled} {
		if _, ok := cause.Explain(name); !ok {
			t.Errorf("%s has no page", name)
		}
	}
}

func TestPhaseOf(t *testing.T) {
	for cause, want := range map[string]string{
		"Stuck in phase Kill: x in phase Volumes: y":         "Kill",
		"WHOLE NODE n1: Probably stuck in phase Delivery: x": "Delivery",
		"Stuck in an unknown phase: x":                       "",
		"x":                                                  "",
	} {
		if got := phaseOf(cause); got != want {
			t.Errorf("%q: %q", cause, got)
		}
	}
}

// What others chose does nothing in a terminal.
func TestHostileText(t *testing.T) {
	for what, text := range hostile.Texts() {
		p := pod(time.Hour, told("ShimHung", "Cause: Stuck in phase Kill: "+text+"\nFix: "+text+"\n", time.Minute),
			func(p *corev1.Pod) { p.Finalizers = []string{text} })
		v := view(node(corev1.ConditionTrue, time.Hour), p)
		v.Unread = []Unread{{What: text, Why: text}}
		answers := Judge(v)
		for _, s := range []Style{{}, {Width: 80}, {Wide: true, Names: true}} {
			var b strings.Builder
			s.Table(&b, answers, v)
			s.Details(&b, answers, v)
			if i := strings.IndexFunc(b.String(), func(r rune) bool {
				return r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r == 0x202e || r == 0x2066)
			}); i >= 0 {
				t.Errorf("%s: %q", what, b.String()[i:])
			}
		}
		if _, err := json.Marshal(answers); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTable(t *testing.T) {
	v := view(node(corev1.ConditionTrue, time.Hour), pod(5*time.Minute, told("UninterruptibleSleep", verdictMessage, time.Minute)))
	v.Pods = append(v.Pods, pod(-20*time.Second, func(p *corev1.Pod) { p.Name = "front-6d9c-x2lp"; p.UID = types.UID("u2") }))
	v.Unread = []Unread{{What: "get nodes", Why: "forbidden", Effect: "lost nodes are not recognized"}}
	var b strings.Builder
	const wide = `NAMESPACE  NAME             NODE  SINCE  LATE  CAUSE                 FORCE DELETE  HELD BY
shop       web-0            n1    5m30s  5m    UninterruptibleSleep  no            kernel: thread 7 (dd) is in D …
shop       front-6d9c-x2lp  n1    10s    -     InGracePeriod         no            program: SIGKILL in 20s
`
	const narrow = `NAMESPACE  NAME             LATE  CAUSE                 FORCE DELETE  HELD BY
shop       web-0            5m    UninterruptibleSleep  no
  kernel: thread 7 (dd) is in D state
shop       front-6d9c-x2lp  -     InGracePeriod         no
  program: SIGKILL in 20s
`
	const about = `
2 pods are terminating, 1 of them late.
Details: kubectl why-terminating web-0 -n shop
Not read: get nodes (forbidden): lost nodes are not recognized.
`
	for width, want := range map[int]string{114: wide, 80: narrow} {
		b.Reset()
		Style{Names: true, Width: width}.Table(&b, Judge(v), v)
		if got := b.String(); got != want+about {
			t.Errorf("got\n%s\nwant\n%s", got, want+about)
		}
	}
	b.Reset()
	Style{Wide: true, Width: 80}.Table(&b, Judge(v), v)
	if head := "NAME             NODE  SINCE  LATE  PHASE  CAUSE                 WHO ACTS  AGENT  FORCE DELETE  HELD BY\n"; !strings.HasPrefix(b.String(), head) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), head)
	}
	b.Reset()
	Style{}.Table(&b, nil, &View{})
	if got := b.String(); got != "No pods are terminating.\n" {
		t.Errorf("got %q", got)
	}
}

// No line is wider than the terminal, whatever the names.
func TestTableFits(t *testing.T) {
	v := view(nil, pod(5*time.Minute, told("UninterruptibleSleep", verdictMessage, time.Minute), func(p *corev1.Pod) {
		p.Namespace, p.Name, p.Spec.NodeName = strings.Repeat("n", 63), strings.Repeat("p", 253), strings.Repeat("m", 63)
	}))
	v.Nodes = nil
	for _, width := range []int{80, 120} {
		var b strings.Builder
		Style{Names: true, Width: width}.Table(&b, Judge(v), v)
		table, _, _ := strings.Cut(b.String(), "\n\n")
		for line := range strings.Lines(table) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns of %d: %s", n, width, line)
			}
		}
		if !strings.Contains(table, "kernel: thread 7 (dd)") || !strings.Contains(table, "Uninterruptible") {
			t.Errorf("width %d: who holds it is not said:\n%s", width, table)
		}
	}
}

func TestSummary(t *testing.T) {
	for want, c := range map[string]struct {
		n, late   int
		namespace string
	}{
		"No pods are terminating.": {0, 0, ""},
		"No pods are terminating in namespace shop. Use -A for all namespaces.": {0, 0, "shop"},
		"1 pod is terminating, and it is late.":                                 {1, 1, ""},
		"1 pod is terminating in namespace shop, and it is not late.":           {1, 0, "shop"},
		"3 pods are terminating, none of them late.":                            {3, 0, ""},
		"3 pods are terminating in namespace shop, 2 of them late.":             {3, 2, "shop"},
	} {
		if got := summary(c.n, c.late, &View{Namespace: c.namespace}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A command is copied, so it stands alone, whole; what is not one is wrapped.
func TestFix(t *testing.T) {
	for text, want := range map[string]string{
		"Make sure that no snapshot or backup runs at all: a thaw spoils it. Then, on the node: fsfreeze -u /var/lib/some/where/far/away; the thread then " +
			"resumes. Wait.": `Fix           Make sure that no snapshot or backup
              runs at all: a thaw spoils it.
              Then, on the node:
                fsfreeze -u /var/lib/some/where/far/away
              The thread then resumes.
              Wait.
`,
		"On the node: dmesg | grep -i error shows why.": `Fix           On the node: dmesg | grep -i error
              shows why.
`,
		"Find what holds it: find the owner.": `Fix           Find what holds it: find the owner.
`,
		"Look: cat /proc/5/stat, then wait.": `Fix           Look:
                cat /proc/5/stat
              Then wait.
`,
	} {
		var b strings.Builder
		Style{Width: 50}.fix(&b, text)
		if b.String() != want {
			t.Errorf("got\n%s\nwant\n%s", b.String(), want)
		}
	}
}

func TestDetails(t *testing.T) {
	v := view(node(corev1.ConditionTrue, time.Hour), pod(5*time.Minute, told("UninterruptibleSleep", verdictMessage, time.Minute)))
	v.Unread = []Unread{{What: "get nodes", Why: "forbidden"}}
	var b strings.Builder
	Style{}.Details(&b, Judge(v), v)
	const want = `shop/web-0 on n1 is 5m late.

Cause         UninterruptibleSleep
Phase         StopSignal > [Kill] · Runtime · Sandbox · Volumes · FinalDelete
Why           Stuck: thread 7 (dd) is in D state.
Seen          s.
Force delete  no: a process still runs.
Timeline      t.
Reported by   nodeagent on n1 for 60s; it is Ready
More          kubectl why-terminating explain UninterruptibleSleep

Not read: get nodes (forbidden).
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The final delete moves the deadline back: who waited for an hour with right is not late since then.
func TestLateSinceTheLastExit(t *testing.T) {
	p := pod(time.Hour, func(p *corev1.Pod) {
		p.DeletionGracePeriodSeconds, p.Finalizers = new(int64), []string{"example.com/x"}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}}}}
	})
	if a := Judge(view(node(corev1.ConditionTrue, time.Hour), p))[0]; a.LateSeconds != 60 || !a.Deleted.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v", a)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 90 * time.Second: "90s", 125 * time.Second: "2m5s", 120 * time.Second: "2m", 20 * time.Minute: "20m", 170 * time.Minute: "170m",
		5*time.Hour + 3*time.Minute: "5h3m", 50 * time.Hour: "2d2h", 48 * time.Hour: "2d",
	} {
		if got := Age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// A pod that is deleted again with a shorter grace period is late when its first one is over, as the agent has written, and as the specification
// bears out.
func TestDeletedAgain(t *testing.T) {
	says := func(until string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			told(InGracePeriod, "Not stuck: container main is inside its grace period of 10m0s. Process app (PID 7 on the node) was sent SIGTERM at "+
				"03:04:00 UTC. Unless it exits first, it will be killed at "+until+" UTC. That it was deleted again with a shorter grace period has no "+
				"effect on this kubelet.", time.Minute)(p)
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}
	}
	grace := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
	}
	for name, tc := range map[string]struct {
		change []func(*corev1.Pod)
		cause  string
		says   string
	}{
		"the agent says until when":       {[]func(*corev1.Pod){says("03:14:00"), grace(600)}, InGracePeriod, "has no effect on this kubelet"},
		"on another day":                  {[]func(*corev1.Pod){says("2026-03-02 03:14:00"), grace(172800)}, InGracePeriod, "has no effect on this kubelet"},
		"that is over, too":               {[]func(*corev1.Pod){says("03:09:00"), grace(600)}, "", "reports no cause at present"},
		"longer than the specification's": {[]func(*corev1.Pod){says("03:40:00"), grace(600)}, "", "reports no cause at present"},
		"the agent says nothing":          {[]func(*corev1.Pod){grace(600)}, "", "has written no condition"},
	} {
		a := Judge(view(node(corev1.ConditionTrue, time.Hour), pod(3*time.Minute, tc.change...)))[0]
		if a.Cause != tc.cause || !strings.Contains(a.Message, tc.says) || (a.LateSeconds > 0) != (tc.cause == "") {
			t.Errorf("%s: %s, late by %d s: %s", name, a.Cause, a.LateSeconds, a.Message)
		}
	}
}

// Who acts is known of what the API shows, too, and is not repeated of a condition that anybody may have written.
func TestWhoActs(t *testing.T) {
	const admin = "the node admin. The app has not caused it. It does not end by itself."
	for reason, want := range map[string]string{
		NodeNotReady: admin, NodeGone: "the node admin. The app has not caused it. It ends by itself.", InGracePeriod: "",
		Finalizers: "the controller owner. Whether the app has caused it is not known. It does not end by itself.",
	} {
		if got := whoActs(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if got := person(&Answer{Who: admin}); got != "node admin" {
		t.Errorf("got %q", got)
	}
	if got := person(&Answer{Who: quoted(admin), Unverified: true}); got != "" {
		t.Errorf("of an unverified condition: %q", got)
	}
}
