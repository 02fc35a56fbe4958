package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/go-cmp/cmp"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// The policies see each write that the role allows, and those that it does not. What they see is compared whole.
func TestPoliciesSeeEachWrite(t *testing.T) {
	m := daemonset(t)
	for _, c := range []struct {
		policy            policy
		groups, resources []string
	}{
		{m.pods, []string{""}, []string{"pods", "pods/*"}},
		{m.events, []string{"", "events.k8s.io"}, []string{"events"}},
	} {
		want := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
			Rule:       admissionv1.Rule{APIGroups: c.groups, APIVersions: []string{"v1"}, Resources: c.resources},
		}}}}
		if diff := cmp.Diff(want, c.policy.Spec.MatchConstraints); diff != "" {
			t.Errorf("policy %s sees something else (-want +got):\n%s", c.policy.Name, diff)
		}
	}
}

// A write is a request to the API server with the token of a node's agent. node is empty where the token names none; before and after are the object, nil
// where there is none.
type write[O any] struct {
	operation         admissionapi.Operation
	subresource, node string
	manager           string
	user              string
	groups            []string
	before, after     *O
}

// variables are what an expression of a policy knows of the request.
func (w *write[O]) variables(t *testing.T) map[string]any {
	t.Helper()
	// What is empty is absent, as in the API server.
	plain := func(o any) map[string]any {
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	options, err := json.Marshal(metav1.UpdateOptions{FieldManager: w.manager})
	if err != nil {
		t.Fatal(err)
	}
	r := &admissionapi.AdmissionRequest{Operation: w.operation, SubResource: w.subresource, Options: runtime.RawExtension{Raw: options}}
	r.UserInfo.Username, r.UserInfo.Groups = w.user, w.groups
	r.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=x"}}
	if w.node != "" {
		r.UserInfo.Extra["authentication.kubernetes.io/node-name"] = authenticationv1.ExtraValue{w.node}
	}
	out := map[string]any{"request": plain(r), "object": nil, "oldObject": nil}
	if w.before != nil {
		out["oldObject"] = plain(w.before)
	}
	if w.after != nil {
		out["object"] = plain(w.after)
	}
	return out
}

// compile returns what evaluates a policy for a request: the messages of the validations that refuse it. It knows the
// functions that Kubernetes 1.30 has, as far as they are those of CEL (k8s.io/apiserver/pkg/cel/environment/base.go).
func (p policy) compile(t *testing.T) func(request map[string]any) []string {
	t.Helper()
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(ext.StringsVersion(2)),
		cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	program := func(expression string) cel.Program {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		out, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var variables, validations, matches []cel.Program
	for _, c := range p.Spec.MatchConditions {
		matches = append(matches, program(c.Expression))
	}
	for _, v := range p.Spec.Variables {
		variables = append(variables, program(v.Expression))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, program(v.Expression))
	}
	return func(request map[string]any) (refused []string) {
		values := map[string]any{}
		request["variables"] = values
		for i, v := range variables {
			// One that has no value is an error of the expressions that use it only.
			if value, _, err := v.Eval(request); err == nil {
				values[p.Spec.Variables[i].Name] = value
			}
		}
		for _, c := range matches {
			if value, _, err := c.Eval(request); p.evaluatesMatches && (err != nil || value != types.True) {
				return nil // an error is no match: failurePolicy Ignore
			}
		}
		for i, v := range validations {
			// An error refuses, too: failurePolicy.
			if value, _, err := v.Eval(request); err != nil || value != types.True {
				refused = append(refused, p.Spec.Validations[i].Message)
			}
		}
		return refused
	}
}

// A deed is a change to what an agent does, and the messages of those that refuse it; none where it is allowed.
type deed[O any] struct {
	what    string
	change  func(*write[O])
	refused []string
}

// try checks which validations refuse each deed, and that each validation is the only one to refuse one.
func try[O any](t *testing.T, p policy, base func() *write[O], deeds []deed[O]) {
	t.Helper()
	judge := p.compile(t)
	var alone []string
	for _, d := range deeds {
		w := base()
		d.change(w)
		if diff := cmp.Diff(d.refused, judge(w.variables(t))); diff != "" {
			t.Errorf("policy %s, %s: refused by (-want +got):\n%s", p.Name, d.what, diff)
		}
		if len(d.refused) == 1 {
			alone = append(alone, d.refused[0])
		}
	}
	for _, v := range p.Spec.Validations {
		if !slices.Contains(alone, v.Message) {
			t.Errorf("policy %s: nothing is refused only because %s", p.Name, v.Message)
		}
	}
}

const (
	noNode   = "the token is not bound to a node"
	ownNode  = "the pod is on another node"
	ownName  = "nodeagent's Events are in its own name"
	foreign  = "the Event is somebody else's"
	confirms = "nodeagent may only confirm an Event"
)

// An agent's token changes one condition of the pods of its node, and nothing else of pods.
func TestOwnNode(t *testing.T) {
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u1", Labels: map[string]string{"app": "shop"},
		Finalizers: []string{"example.com/x"}}, Spec: corev1.PodSpec{NodeName: "node-1"}, Status: fullStatus()}
	before.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	own := corev1.PodCondition{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "ShimHung", Message: "Cause: Stuck in phase Runtime: the shim hangs."}
	base := func() *write[corev1.Pod] {
		w := &write[corev1.Pod]{operation: admissionapi.Update, subresource: "status", node: "node-1", manager: report.FieldManager,
			before: before.DeepCopy(), after: before.DeepCopy()}
		w.after.Status.Conditions = append(w.after.Status.Conditions, own)
		return w
	}
	on := func(node string) func(*write[corev1.Pod]) {
		return func(w *write[corev1.Pod]) { w.before.Spec.NodeName, w.after.Spec.NodeName = node, node }
	}
	const (
		statusOnly, metadata = "nodeagent may only change the status of pods", "nodeagent may not change a pod's metadata"
		conditions           = "nodeagent may only change conditions"
		ownCondition         = "nodeagent may only change its own condition"
		words                = "nodeagent's condition is there once, True or False, with at most 4096 characters, and begins as the agent's do"
	)
	try(t, daemonset(t).pods, base, []deed[corev1.Pod]{
		{"its condition", func(*write[corev1.Pod]) {}, nil},
		{"its condition again", func(w *write[corev1.Pod]) { w.before = w.after }, nil},
		{"a pod without conditions", func(w *write[corev1.Pod]) {
			w.before.Status, w.after.Status = corev1.PodStatus{}, corev1.PodStatus{Conditions: []corev1.PodCondition{own}}
		}, nil},
		{"a pod of another node", on("node-2"), []string{ownNode}},
		{"a pod of a node with a longer name", on("node-10"), []string{ownNode}},
		{"a pod of a node with a shorter name", on("node-"), []string{ownNode}},
		{"a pod of no node", on(""), []string{ownNode}},
		{"a pod of another node, moved", func(w *write[corev1.Pod]) { w.before.Spec.NodeName = "node-2" }, []string{ownNode}},
		{"a token of no node", func(w *write[corev1.Pod]) { w.node = "" }, []string{noNode, ownNode}},
		{"a token of no node, a pod of none", func(w *write[corev1.Pod]) { on("")(w); w.node = "" }, []string{noNode}},
		{"the pod itself", func(w *write[corev1.Pod]) { w.subresource = "" }, []string{statusOnly}},
		{"its resources", func(w *write[corev1.Pod]) { w.subresource = "resize" }, []string{statusOnly}},
		{"a pod deleted", func(w *write[corev1.Pod]) { w.operation, w.subresource, w.after = admissionapi.Delete, "", nil }, []string{statusOnly}},
		{"a pod created", func(w *write[corev1.Pod]) { w.operation, w.subresource, w.before = admissionapi.Create, "", nil }, []string{statusOnly}},
		{"a finalizer removed", func(w *write[corev1.Pod]) { w.after.Finalizers = nil }, []string{metadata}},
		{"another field manager", func(w *write[corev1.Pod]) { w.manager = "thief" }, []string{"nodeagent's field manager is nodeagent"}},
		{"the pod failed", func(w *write[corev1.Pod]) { w.after.Status.Phase = corev1.PodFailed }, []string{conditions}},
		{"the pod not ready", func(w *write[corev1.Pod]) { w.after.Status.Conditions[0].Status = corev1.ConditionFalse }, []string{ownCondition}},
		{"its condition twice", func(w *write[corev1.Pod]) { w.after.Status.Conditions = append(w.after.Status.Conditions, own) }, []string{words}},
		{"other words", func(w *write[corev1.Pod]) { w.after.Status.Conditions[1].Message = "Run curl" }, []string{words}},
	})
}

// It creates Events in the name of its node, and confirms these.
func TestOwnEvents(t *testing.T) {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0.17c", Labels: map[string]string{"app.kubernetes.io/managed-by": "nodeagent"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: report.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate,
				APIVersion: "events.k8s.io/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:note":{},"f:metadata":{"f:labels":{".":{}}}}`)}}},
		EventTime: metav1.NewMicroTime(time.Unix(1, 0)), Type: corev1.EventTypeWarning, Reason: "ShimHung", Action: "Terminating",
		Note: "Stuck: the shim hangs", ReportingController: "nodeagent.io/nodeagent", ReportingInstance: "node-1",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "u1"},
	}
	create := func() *write[eventsv1.Event] {
		return &write[eventsv1.Event]{operation: admissionapi.Create, node: "node-1", manager: report.FieldManager, after: event.DeepCopy()}
	}
	instance := func(node string) func(*write[eventsv1.Event]) {
		return func(w *write[eventsv1.Event]) { w.after.ReportingInstance = node }
	}
	about := func(node string) func(*write[eventsv1.Event]) {
		return func(w *write[eventsv1.Event]) {
			w.after.Namespace = metav1.NamespaceDefault
			w.after.Regarding = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node}
		}
	}
	// confirm turns the creation of an Event into an update of its series.
	confirm := func(change func(*write[eventsv1.Event])) func(*write[eventsv1.Event]) {
		return func(w *write[eventsv1.Event]) {
			change(w)
			w.operation, w.before = admissionapi.Update, w.after.DeepCopy()
			w.after.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(2, 0))}
		}
	}
	as := func(*write[eventsv1.Event]) {}
	const (
		manager = "nodeagent's field manager is nodeagent, and its Events have no generateName"
		managed = "nodeagent's Events have only its own managedFields, and few"
		whom    = "nodeagent's Events are about pods and its own node"
		small   = "nodeagent's Events are small and new"
		words   = "the reasons of nodeagent's Events are names of causes, and their notes begin as the agent's do"
	)
	try(t, daemonset(t).events, create, []deed[eventsv1.Event]{
		{"its Event", as, nil},
		{"its Event about its node", about("node-1"), nil},
		{"its Event confirmed", confirm(as), nil},
		{"an Event of another node's agent", instance("node-2"), []string{ownName}},
		{"an Event of the agent of a node with a longer name", instance("node-10"), []string{ownName}},
		{"an Event of the agent of a node with a shorter name", instance("node-"), []string{ownName}},
		{"an Event of nobody", instance(""), []string{ownName}},
		{"an Event of the kubelet", func(w *write[eventsv1.Event]) { w.after.ReportingController = "kubelet" }, []string{ownName}},
		{"the Event of another node's agent confirmed", confirm(instance("node-2")), []string{foreign}},
		{"the Event of the agent of a node with a longer name confirmed", confirm(instance("node-10")), []string{foreign}},
		{"the Event of the agent of a node with a shorter name confirmed", confirm(instance("node-")), []string{foreign}},
		{"the Event of nobody confirmed", confirm(instance("")), []string{foreign}},
		{"the Event of the kubelet confirmed", confirm(func(w *write[eventsv1.Event]) { w.after.ReportingController = "kubelet" }), []string{foreign}},
		{"the Event of another node's agent made its own", func(w *write[eventsv1.Event]) {
			confirm(as)(w)
			w.before.ReportingInstance = "node-2"
		}, []string{foreign, confirms}},
		{"its Event made another node's agent's", func(w *write[eventsv1.Event]) {
			confirm(as)(w)
			w.after.ReportingInstance = "node-2"
		}, []string{confirms}},
		{"a token of no node", func(w *write[eventsv1.Event]) { w.node = "" }, []string{noNode, ownName}},
		{"a token of no node, an Event confirmed", func(w *write[eventsv1.Event]) { confirm(as)(w); w.node = "" }, []string{noNode, foreign}},
		{"a token of no node, the Event of nobody confirmed", func(w *write[eventsv1.Event]) { confirm(instance(""))(w); w.node = "" }, []string{noNode}},
		{"an Event about another node", about("node-2"), []string{whom}},
		{"an Event deleted", func(w *write[eventsv1.Event]) {
			w.operation, w.before, w.after = admissionapi.Delete, w.after, nil
		}, []string{"nodeagent may not delete Events"}},
		{"another field manager", func(w *write[eventsv1.Event]) { w.manager = "thief" }, []string{manager}},
		{"managedFields of another manager", func(w *write[eventsv1.Event]) { w.after.ManagedFields[0].Manager = "thief" }, []string{managed}},
		{"a long field", func(w *write[eventsv1.Event]) { w.after.Regarding.FieldPath = strings.Repeat("x", 1<<20) }, []string{small}},
		{"other words", func(w *write[eventsv1.Event]) { w.after.Note = "Run curl" }, []string{words}},
		{"another pod's name", func(w *write[eventsv1.Event]) { w.after.Name = "coredns.17c" }, []string{"the name of nodeagent's Event begins with the pod's"}},
	})
}

// Nobody but the agents and the kubelets adds or changes the agent's condition, and who does not touch it is not disturbed.
func TestOwnCondition(t *testing.T) {
	p := daemonset(t).condition
	want := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/status"}},
	}}}}
	if diff := cmp.Diff(want, p.Spec.MatchConstraints); diff != "" {
		t.Errorf("it sees something else (-want +got):\n%s", diff)
	}
	if *p.Spec.FailurePolicy != admissionv1.Ignore {
		t.Error("writes of others fail when it cannot be evaluated")
	}
	if b := p.binding.Spec; b.PolicyName != p.Name || !slices.Contains(b.ValidationActions, admissionv1.Deny) || b.MatchResources != nil {
		t.Errorf("binding %+v", b)
	}
	p.evaluatesMatches = true
	own := corev1.PodCondition{Type: verdict.ConditionType, Status: corev1.ConditionTrue, Reason: "ShimHung", Message: "Cause: Stuck: the shim hangs."}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue}
	const refuses = "only nodeagent changes the condition nodeagent.io/TerminationBlocked; read the pod again, and leave the condition as it is"
	const other = "only nodeagent writes as the field manager nodeagent; use another one"
	// wrote has the agent's entry of managedFields say that it wrote at some time before, and after.
	wrote := func(w *write[corev1.Pod], before, after time.Duration) {
		for p, at := range map[*corev1.Pod]time.Duration{w.before: before, w.after: after} {
			t := metav1.NewTime(time.Unix(1_800_000_000, 0).Add(at))
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "gate", Subresource: "status"}, {Manager: "nodeagent", Subresource: "status", Time: &t}}
		}
	}
	change := func(change func(c *corev1.PodCondition)) corev1.PodCondition {
		c := own
		change(&c)
		return c
	}
	const account = "system:serviceaccount:" + namespace + ":" + name
	base := func() *write[corev1.Pod] {
		w := &write[corev1.Pod]{operation: admissionapi.Update, subresource: "status", user: "system:serviceaccount:mesh:gate",
			groups: []string{"system:serviceaccounts", "system:authenticated"}, before: &corev1.Pod{}, after: &corev1.Pod{}}
		w.before.Status.Conditions = []corev1.PodCondition{ready, own}
		return w
	}
	after := func(conditions ...corev1.PodCondition) func(*write[corev1.Pod]) {
		return func(w *write[corev1.Pod]) { w.after.Status.Conditions = conditions }
	}
	forges := after(ready, change(func(c *corev1.PodCondition) { c.Message = "Fix: run this." }))
	try(t, p, base, []deed[corev1.Pod]{
		{"a gate, by a patch that leaves the others", after(ready, own, gate), nil},
		{"a gate, in another order", after(gate, own, ready), nil},
		{"a gate, by a JSON merge patch with the list as it was before the condition came", after(ready, gate), nil},
		{"a gate, by a JSON merge patch with the list as it is", after(ready, own, gate), nil},
		{"no conditions", after(), nil},
		{"a message", forges, []string{refuses}},
		{"a reason", after(change(func(c *corev1.PodCondition) { c.Reason = "ShimDead" })), []string{refuses}},
		{"a status", after(change(func(c *corev1.PodCondition) { c.Status = corev1.ConditionFalse })), []string{refuses}},
		{"a gate, by a client that does not know a field", func(w *write[corev1.Pod]) {
			w.before.Status.Conditions[1].ObservedGeneration = 2
			after(ready, own, gate)(w)
		}, nil},
		{"a second one", after(own, change(func(c *corev1.PodCondition) { c.Message = "Fix: run this." })), []string{refuses}},
		{"a first one", func(w *write[corev1.Pod]) { w.before.Status.Conditions = nil; after(own)(w) }, []string{refuses}},
		{"a first one of a pod without a status", func(w *write[corev1.Pod]) { w.before = &corev1.Pod{}; after(own)(w) }, []string{refuses}},
		{"the agent", func(w *write[corev1.Pod]) { w.user = account; forges(w) }, nil},
		{"a kubelet", func(w *write[corev1.Pod]) { w.user, w.groups = "system:node:n1", []string{"system:nodes"}; forges(w) }, nil},
		{"an account of another namespace of the agent's name", func(w *write[corev1.Pod]) {
			w.user = "system:serviceaccount:evil:" + name
			forges(w)
		}, []string{refuses}},
		{"somebody without groups", func(w *write[corev1.Pod]) { w.groups = nil; forges(w) }, []string{refuses}},
		{"a gate, in the agent's name", func(w *write[corev1.Pod]) { w.manager = "nodeagent"; after(ready, own, gate)(w) }, []string{other}},
		{"a gate, and the agent wrote before", func(w *write[corev1.Pod]) { wrote(w, 0, 0); after(ready, own, gate)(w) }, nil},
		{"a gate, and the agent wrote just now", func(w *write[corev1.Pod]) { wrote(w, 0, time.Hour); after(ready, own, gate)(w) }, []string{other}},
		{"a gate of a pod without the condition, in the agent's name", func(w *write[corev1.Pod]) {
			w.manager = "nodeagent"
			w.before.Status.Conditions = []corev1.PodCondition{ready}
			after(ready, gate)(w)
		}, nil},
	})
}
