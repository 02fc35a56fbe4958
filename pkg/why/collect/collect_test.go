package collect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	metafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nodeagent-io/nodeagent/pkg/why"
)

var now = time.Date(2026, 3, 1, 3, 10, 0, 0, time.UTC)

func terminating(namespace, name, node string) *corev1.Pod {
	at := metav1.NewTime(now.Add(-time.Minute))
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u-1", DeletionTimestamp: &at}, Spec: corev1.PodSpec{NodeName: node}}
}

func agent(node string) *corev1.Pod {
	controls := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nodeagent-system", Name: "nodeagent-" + node,
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &controls}},
		Labels:          map[string]string{"app.kubernetes.io/name": "nodeagent", "app.kubernetes.io/component": "agent"}}, Spec: corev1.PodSpec{NodeName: node}}
}

func clients(objects ...runtime.Object) (Clients, *fake.Clientset) {
	c := fake.NewSimpleClientset(objects...)
	scheme := runtime.NewScheme()
	_ = metav1.AddMetaToScheme(scheme)
	return Clients{Client: c, Metadata: metafake.NewSimpleMetadataClient(scheme)}, c
}

// deny refuses a verb on a resource.
func deny(c *fake.Clientset, verb, resource string) {
	c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
	})
}

func TestView(t *testing.T) {
	running := terminating("shop", "web-1", "n1")
	running.DeletionTimestamp = nil
	lost := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	web := terminating("shop", "web-0", "n1")
	web.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}}
	c, _ := clients(web, running, terminating("other", "x", "gone"), lost, agent("n1"), claim,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}})
	v, err := View(t.Context(), c, Query{})
	if err != nil || len(v.Pods) != 2 || len(v.Unread) != 0 {
		t.Fatalf("%v: %+v", err, v)
	}
	if v.Nodes["n1"] == nil || v.Nodes["gone"] != nil || v.Agents["n1"] == nil || v.Claims["shop/data"] == nil || v.Volumes["pv-1"] == nil {
		t.Errorf("%+v", v)
	}
	if v, err := View(t.Context(), c, Query{Namespace: "shop", Names: []string{"web-0"}}); err != nil || len(v.Pods) != 1 {
		t.Errorf("%v: %+v", err, v)
	}
}

// Who may only list pods may ask for one.
func TestListIsEnough(t *testing.T) {
	c, fakes := clients(terminating("shop", "web-0", "n1"))
	deny(fakes, "get", "pods")
	if v, err := View(t.Context(), c, Query{Namespace: "shop", Names: []string{"web-0"}}); err != nil || len(v.Pods) != 1 {
		t.Errorf("%v: %+v", err, v)
	}
}

// A pod of a tenant that looks like the agent is none.
func TestImpostor(t *testing.T) {
	evil, other := agent("n1"), agent("n1")
	evil.Namespace, evil.OwnerReferences = "a", nil
	other.Namespace = "b"
	c, _ := clients(terminating("shop", "web-0", "n1"), evil, other, agent("n1"))
	if v, err := View(t.Context(), c, Query{}); err != nil || v.Agents["n1"].Namespace != "nodeagent-system" {
		t.Errorf("%v: %+v", err, v.Agents)
	}
	c, _ = clients(terminating("shop", "web-0", "n1"), evil)
	if v, err := View(t.Context(), c, Query{}); err != nil || len(v.Agents) != 0 {
		t.Errorf("%v: %+v", err, v.Agents)
	}
	// Installed elsewhere, it is where its permissions are, however many pods of others look like it.
	binding := &rbacv1.ClusterRoleBinding{Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "observe"}}}
	binding.Name = "nodeagent"
	ours, second := agent("n1"), agent("n2")
	ours.Namespace, second.Namespace = "observe", "b"
	c, fakes := clients(terminating("shop", "web-0", "n1"), other, second, ours, binding)
	if v, err := View(t.Context(), c, Query{}); err != nil || len(v.Agents) != 1 || v.Agents["n1"].Namespace != "observe" {
		t.Errorf("%v: %+v", err, v.Agents)
	}
	deny(fakes, "get", "clusterrolebindings")
	if v, err := View(t.Context(), c, Query{}); err != nil || v.Agents != nil || len(v.Unread) != 1 ||
		!strings.Contains(v.Unread[0].Effect, "namespaces b, observe") {
		t.Errorf("%v: %+v, %+v", err, v.Agents, v.Unread)
	}
	c, _ = clients(terminating("shop", "web-0", "n1"), other)
	if v, err := View(t.Context(), c, Query{}); err != nil || len(v.Agents) != 0 {
		t.Errorf("%v: %+v", err, v.Agents)
	}
	c, fakes = clients(terminating("shop", "web-0", "n1"), ours)
	deny(fakes, "get", "clusterrolebindings")
	if v, err := View(t.Context(), c, Query{}); err != nil || v.Agents["n1"] == nil {
		t.Errorf("%v: %+v", err, v.Agents)
	}
}

// One of several that is not there is said, and the others are answered for.
func TestOneIsMissing(t *testing.T) {
	c, _ := clients(terminating("shop", "web-0", "n1"))
	v, err := View(t.Context(), c, Query{Namespace: "shop", Names: []string{"web-0", "web-9"}})
	if err != nil || len(v.Pods) != 1 || len(v.Unread) != 1 || v.Unread[0].What != "pod web-9" {
		t.Errorf("%v: %+v", err, v)
	}
}

func TestUnknownNode(t *testing.T) {
	c, _ := clients()
	if _, err := View(t.Context(), c, Query{Node: "typo"}); err == nil || !strings.Contains(err.Error(), `node "typo" not found`) {
		t.Errorf("%v", err)
	}
}

func TestNotFound(t *testing.T) {
	running := terminating("shop", "web-1", "n1")
	running.DeletionTimestamp = nil
	c, _ := clients(running)
	for name, want := range map[string]string{
		"web-1": `pod "web-1" in namespace "shop" is not being deleted`,
		"nope":  `pod "nope" not found in namespace "shop": it was deleted, or the name or namespace is wrong; -A lists all that terminate`,
	} {
		if _, err := View(t.Context(), c, Query{Namespace: "shop", Names: []string{name}}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What may not be read is said, and the rest is answered.
func TestPartialView(t *testing.T) {
	for what, c := range map[string]struct {
		verb, resource string
		lack           func(*why.View) bool
	}{
		"get nodes": {"get", "nodes", func(v *why.View) bool { return v.Nodes == nil }},
		"get leases in namespace kube-node-lease":      {"get", "leases", func(v *why.View) bool { return v.Leases == nil }},
		"get persistentvolumeclaims in namespace shop": {"get", "persistentvolumeclaims", func(v *why.View) bool { return len(v.Claims) == 0 }},
		"get persistentvolumes":                        {"get", "persistentvolumes", func(v *why.View) bool { return v.Volumes == nil }},
		"list pods in namespace nodeagent-system":      {"list", "pods", func(v *why.View) bool { return v.Agents == nil }},
	} {
		pod := terminating("shop", "web-0", "n1")
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}}
		all, fakes := clients(pod, claim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		deny(fakes, c.verb, c.resource)
		v, err := View(t.Context(), all, Query{Namespace: "shop", Names: []string{"web-0"}})
		if err != nil || !c.lack(v) || len(v.Unread) != 1 || v.Unread[0] != (why.Unread{What: what, Why: "forbidden", Effect: effects[what]}) {
			t.Errorf("%s: %v: %+v", what, err, v)
			continue
		}
		if a := why.Judge(v); len(a) != 1 {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

// Many are listed instead of asked for one by one.
func TestManyAreListed(t *testing.T) {
	var objects []runtime.Object
	for i := range 30 {
		name := fmt.Sprint("n", i)
		p := terminating("shop", "web-"+name, name)
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
		objects = append(objects, p, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}},
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}})
	}
	all, fakes := clients(objects...)
	v, err := View(t.Context(), all, Query{})
	if err != nil || len(v.Nodes) != 30 || len(v.Leases) != 30 || len(v.Claims) != 30 || len(v.Volumes) != 30 {
		t.Fatalf("%v: %d nodes, %d leases, %d claims, %d volumes", err, len(v.Nodes), len(v.Leases), len(v.Claims), len(v.Volumes))
	}
	if n := len(fakes.Actions()); n > 10 {
		t.Errorf("%d requests", n)
	}
}

func TestExplain(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	for want, c := range map[string]struct {
		err error
		q   Query
	}{
		"you may not list pods in all namespaces: use -n NAMESPACE, or ask for that permission":    {forbidden, Query{}},
		"you may not list pods in shop: ask for that permission":                                   {forbidden, Query{Namespace: "shop"}},
		"the API server did not answer in time; kubectl get --raw /readyz says whether it is well": {context.DeadlineExceeded, Query{}},
		"x": {errors.New("x"), Query{}},
	} {
		if got := Explain(c.err, c.q); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseServices(t *testing.T) {
	const body = `{"items":[
		{"metadata":{"name":"v1."},"spec":{},"status":{"conditions":[{"type":"Available","status":"True"}]}},
		{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"service":{"namespace":"kube-system","name":"metrics-server"}},
		 "status":{"conditions":[{"type":"Available","status":"False","reason":"MissingEndpoints","message":"none","lastTransitionTime":"2026-03-01T03:00:00Z"}]}}]}`
	got, unread := parseServices([]byte(body))
	if len(unread) != 0 || len(got) != 1 || got[0].Name != "v1beta1.metrics.k8s.io" || got[0].Service != "kube-system/metrics-server" ||
		got[0].Reason != "MissingEndpoints" {
		t.Errorf("%+v, %+v", got, unread)
	}
	if _, unread := parseServices([]byte("no")); len(unread) != 1 || !strings.Contains(unread[0].What, "apiservices") {
		t.Errorf("%+v", unread)
	}
}
