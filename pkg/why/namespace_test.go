package why

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/hostile"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

func TestJudgeNamespace(t *testing.T) {
	deleted := metav1.NewTime(now.Add(-time.Hour))
	namespace := func() *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &deleted}}
	}
	service := APIService{Name: "v1beta1.metrics.k8s.io", Service: "kube-system/metrics-server", Reason: "MissingEndpoints"}
	at := now.Add(-time.Minute)
	held := Object{Resource: "widgets.example.com", Name: "w", Finalizers: []string{"example.com/x"}, Deleted: at}
	unasked := Object{Resource: "services", Name: "lb", Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}}
	claim := Object{Resource: "persistentvolumeclaims", Name: "data", Finalizers: []string{"kubernetes.io/pvc-protection"}, Deleted: at}
	web := Object{Resource: "pods", Name: "web-0", Finalizers: []string{"batch.kubernetes.io/job-tracking"}, Deleted: at}
	fails := func(v *NamespaceView, kind corev1.NamespaceConditionType, message string) {
		v.Namespace.Status.Conditions = append(v.Namespace.Status.Conditions, corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Message: message})
	}
	refuses := func(errors string, left ...Object) func(*NamespaceView) {
		return func(v *NamespaceView) {
			v.Left = left
			fails(v, corev1.NamespaceDeletionContentFailure, "Failed to delete all resource types, 1 remaining: "+errors)
		}
	}
	running := Object{Resource: "pods", Name: "web-0"}
	free := Object{Resource: "configmaps", Name: "kube-root-ca.crt"}
	for name, c := range map[string]struct {
		change func(*NamespaceView)
		held   bool
		stuck  string
		fix    string
	}{
		"not deleted": {func(v *NamespaceView) { v.Namespace.DeletionTimestamp = nil }, false, "not being deleted", ""},
		"a dead APIService": {func(v *NamespaceView) {
			v.Services, v.Left = []APIService{service}, []Object{held}
			fails(v, corev1.NamespaceDeletionDiscoveryFailure, "m")
		}, true, "APIService v1beta1.metrics.k8s.io is not available (MissingEndpoints)", "(kube-system/metrics-server)"},
		"a finalizer": {func(v *NamespaceView) { v.Left = []Object{held, free} }, true, "1 object is kept by finalizers; the first is widgets.example.com/w " +
			"(example.com/x).", "redeploy it in another one"},
		"pods": {func(v *NamespaceView) { v.Left = []Object{running, {Resource: "pods", Name: "web-1", Deleted: at}} }, true,
			"2 objects are left, 1 terminating pod, which must end first.", "kubectl why-terminating -n shop"},
		"pods that nobody has deleted": {func(v *NamespaceView) { v.Left = []Object{running} }, false, "still at work", ""},
		"a webhook that is dead, and pods that nobody has deleted": {refuses(`Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": `+
			`failed to call webhook: Post "https://kyverno-svc.kyverno.svc:443/validate": no endpoints available for service "kyverno-svc"`, running), true,
			"The API server cannot call webhook validate.kyverno.svc-fail, so it rejects the deletion", "Bring the Service of the webhook back"},
		"a webhook that denies, before a finalizer": {refuses(`admission webhook "a.example.com" denied the request: no, admission webhook "b.example.com" `+
			`denied the request: no`, held), true, "is denied by webhooks a.example.com, b.example.com. 1 object is kept by finalizers", "Do what its answer asks for"},
		"a policy that denies": {refuses("configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: no"), true,
			"is denied by ValidatingAdmissionPolicy keep.", "ask its owner"},
		"a conversion webhook, before a finalizer": {refuses(`conversion webhook for example.com/v1, Kind=Widget failed: Post "https://w": service "w" not found`,
			held), true, "the conversion webhook of example.com/v1, Kind=Widget, so it can neither list nor delete its objects. 1 object is kept by", "spec.conversion"},
		"another failure does not come before pods": {refuses("unexpected items still remain in namespace: shop for gvr: /v1, Resource=pods", web), true,
			"1 object is left, 1 terminating pod", "kubectl why-terminating -n shop"},
		"a group that cannot be listed, APIServices not readable": {func(v *NamespaceView) {
			v.Left, v.Unread = []Object{held}, []Unread{{What: "apiservices", Why: "forbidden"}}
			fails(v, corev1.NamespaceDeletionDiscoveryFailure, "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "+
				"metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1")
		}, true, "The API server cannot list the kinds of metrics.k8s.io/v1beta1, so it cannot list their objects, and the namespace remains. 1 object is kept",
			"kubectl get apiservices. Check that the controller"},
		"an APIService that is down, and not to blame": {func(v *NamespaceView) { v.Services, v.Left = []APIService{service}, []Object{held} }, true,
			"1 object is kept by finalizers", "redeploy"},
		"a pod, its claim, and what comes later": {func(v *NamespaceView) { v.Left = []Object{claim, web, unasked} }, true,
			"3 objects are left, 1 terminating pod, which must end first.", "kubectl why-terminating -n shop"},
		"not asked to go yet": {func(v *NamespaceView) { v.Left = []Object{unasked} }, false, "still at work", ""},
		"another failure":     {refuses("m"), true, "fails to delete the content", "what the message names"},
		"kinds that could not be listed": {func(v *NamespaceView) { v.Unread = []Unread{{What: "widgets", Why: "forbidden"}} }, true,
			"could not be listed", "permission"},
		"a finalizer in its spec": {func(v *NamespaceView) {
			v.Namespace.Spec.Finalizers = []corev1.FinalizerName{"kubernetes", "example.com/z"}
		}, true, "The namespace itself has finalizers: example.com/z", "controllers"},
		"its own finalizer": {func(v *NamespaceView) { v.Namespace.Finalizers = []string{"example.com/y"} }, true,
			"The namespace itself has finalizers: example.com/y", "controllers"},
		"at work":         {func(v *NamespaceView) { v.Left = []Object{free} }, false, "still at work", ""},
		"about to finish": {func(*NamespaceView) {}, false, "will finish soon", ""},
	} {
		v := &NamespaceView{Now: now, Namespace: namespace()}
		c.change(v)
		a := JudgeNamespace(v)
		if a.Held != c.held || !strings.Contains(a.Message, c.stuck) || !strings.Contains(a.Fix, c.fix) {
			t.Errorf("%s: %+v", name, a)
		}
		for _, text := range []string{a.Message, a.Fix, a.Avoid} {
			if err := plain.Check(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if (a.Avoid != "") == a.Deleted.IsZero() || a.Avoid != "" && !strings.Contains(a.Avoid, "/finalize") {
			t.Errorf("%s: avoid %q", name, a.Avoid)
		}
	}
	v := &NamespaceView{Now: now, Namespace: namespace()}
	v.Namespace.Status.Conditions = []corev1.NamespaceCondition{
		{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "Some resources are remaining: pods. has 1 resource instances",
			LastTransitionTime: deleted},
		{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse},
	}
	if a := JudgeNamespace(v); len(a.Seen) != 1 || !strings.HasPrefix(a.Seen[0], "NamespaceContentRemaining since 2026-03-01 02:10:00 UTC: Some resources") {
		t.Errorf("seen %q", a.Seen)
	}
}

func TestNamespaceIsPrinted(t *testing.T) {
	deleted := metav1.NewTime(now.Add(-time.Hour))
	for what, text := range hostile.Texts() {
		v := &NamespaceView{Now: now, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: text, DeletionTimestamp: &deleted,
			Finalizers: []string{text}}}}
		for range mostLeft + 5 {
			v.Left = append(v.Left, Object{Resource: "x", Name: text, Finalizers: []string{text}, Setters: []string{text}})
		}
		v.Services, v.Unread = []APIService{{Name: text, Message: text}}, []Unread{{What: text, Why: text, Effect: text}}
		v.Namespace.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue,
			Message: `failed calling webhook "` + text + `", admission webhook "` + text + `" denied the request`}}
		a := JudgeNamespace(v)
		var b strings.Builder
		Style{Width: 80}.Namespace(&b, &a, v)
		if i := strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r <= 0x9f || r == 0x202e) }); i >= 0 {
			t.Errorf("%s: %q", what, b.String()[i:])
		}
		if !strings.Contains(b.String(), "and 5 more") {
			t.Errorf("%s: %s", what, b.String())
		}
	}
}
