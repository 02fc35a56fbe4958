package scenario

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/test/bed"
)

// api lists the incidents in which the API server does not let the kubelet finish, and
// innocent ones that look like them.
func api() []bed.Scenario {
	return []bed.Scenario{finalDeleteRefused(), finalDeleteLate(), statusRefused(), statusRefusedToAll(), statusDenied(), statusWebhookDead(),
		statusLate(), statusWebhookLate(), finalizerRefused(), finalizerDenied(), mirrorDeleted(), manifestRemoved()}
}

// A refusal is an admission policy that refuses what the kubelet of the pod's node
// asks for about the pod, and nobody else; or whoever asks.
type refusal struct {
	resource  string
	operation admissionv1.OperationType
	toAll     bool
}

var (
	refuseDelete      = refusal{"pods", admissionv1.Delete, false}
	refuseStatus      = refusal{"pods/status", admissionv1.Update, false}
	refuseStatusToAll = refusal{"pods/status", admissionv1.Update, true}
	refuseUpdateToAll = refusal{"pods", admissionv1.Update, true}
)

// name is that of the policy and of its binding, for a pod.
func (r refusal) name(p *corev1.Pod) string {
	return strings.ToLower("scenario-" + string(r.operation) + "-" + p.Namespace + "-" + p.Name)
}

// impose is a step that makes the policy, and waits until it is obeyed.
func (r refusal) impose(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	name, about := metav1.ObjectMeta{Name: r.name(p)}, n.API.AdmissionregistrationV1()
	who := "request.userInfo.username.startsWith('system:node:') && "
	if r.toAll {
		who = ""
	}
	_, err := about.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{r.operation},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{r.resource}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "about-the-pod", Expression: fmt.Sprintf(
				"%srequest.namespace == '%s' && request.name == '%s'", who, p.Namespace, p.Name)}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "pods with billing records are kept"}},
		}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = about.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	asks := n.API
	if !r.toAll {
		if asks, err = n.AsKubelet(); err != nil {
			return err
		}
	}
	return n.Await(ctx, "the policy "+name.Name, func() (bool, string) {
		err := r.try(ctx, asks, p)
		return apierrors.IsInvalid(err), fmt.Sprint(err)
	})
}

// try asks for what is to be refused, without effect.
func (r refusal) try(ctx context.Context, as kubernetes.Interface, p *corev1.Pod) error {
	pods, dry := as.CoreV1().Pods(p.Namespace), []string{metav1.DryRunAll}
	if r.operation == admissionv1.Delete {
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), DryRun: dry})
	}
	_, subresource, _ := strings.Cut(r.resource, "/")
	_, err := pods.Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(`{"status":{"message":"try"}}`), metav1.PatchOptions{DryRun: dry}, subresource)
	return err
}

// lift is a step that takes the policy away.
func (r refusal) lift(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	about := n.API.AdmissionregistrationV1()
	if err := about.ValidatingAdmissionPolicyBindings().Delete(ctx, r.name(p), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := about.ValidatingAdmissionPolicies().Delete(ctx, r.name(p), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// forAWhile is a step that imposes the policy, and lifts it some time after the pod's
// deadline.
func (r refusal) forAWhile(after time.Duration) bed.Step { return forAWhile(r.impose, r.lift, after) }

// forAWhile is a step that imposes something, and lifts it some time after the pod's deadline.
func forAWhile(impose, lift bed.Step, after time.Duration) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		if err := impose(ctx, n, p); err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		go func() {
			_ = n.Await(ctx, "the deadline of "+p.Name, func() (bool, string) {
				now, err := n.Seen(p.Namespace, p.Name)
				return err != nil || now.DeletionTimestamp != nil && time.Since(now.DeletionTimestamp.Time) > after, "not yet"
			})
			_ = lift(ctx, n, p) // else the test says that the pod stays
		}()
		return nil
	}
}

// statusWebhook is the name of a webhook that looks at the status of a scenario's pod.
const statusWebhook = "status.scenario.test"

// askWebhook is a step that has the API server ask a webhook before it writes the pod or its status, whoever
// asks for it, and waits until it does. The webhook denies all, or nobody listens there: the API server, which
// runs on this machine, asks one that is not a Service from here.
func askWebhook(listens bool) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		name, url := refuseStatus.name(p), "https://127.0.0.1:1/"
		var certificate []byte
		if listens {
			s := httptest.NewTLSServer(http.HandlerFunc(deny))
			webhooks.Store(name, s)
			url, certificate = s.URL+"/", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		}
		fail, none, seconds := admissionv1.Fail, admissionv1.SideEffectClassNone, int32(5)
		_, err := n.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.ValidatingWebhook{{
				Name: statusWebhook, FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionv1.WebhookClientConfig{URL: &url, CABundle: certificate},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/status"}},
				}},
				MatchConditions: []admissionv1.MatchCondition{{Name: "about-the-pod", Expression: fmt.Sprintf("request.namespace == '%s' && "+
					"request.name == '%s'", p.Namespace, p.Name)}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		kubelet, err := n.AsKubelet()
		if err != nil {
			return err
		}
		answer := "failed calling webhook \"" + statusWebhook + "\""
		if listens {
			answer = "admission webhook \"" + statusWebhook + "\" denied the request"
		}
		return n.Await(ctx, "the webhook of "+p.Name, func() (bool, string) {
			err := refuseStatus.try(ctx, kubelet, p)
			return err != nil && strings.Contains(err.Error(), answer), fmt.Sprint(err)
		})
	}
}

// webhooks are those that listen, by the names of their configurations.
var webhooks sync.Map

// deny answers an AdmissionReview (admission.k8s.io/v1).
func deny(w http.ResponseWriter, q *http.Request) {
	var asked struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(q.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": map[string]any{"uid": asked.Request.UID, "allowed": false, "status": map[string]any{"code": http.StatusForbidden,
			"message": "pods with billing records are kept"}},
	})
}

// askNoWebhook is a step that takes the webhook away.
func askNoWebhook(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	if s, ok := webhooks.LoadAndDelete(refuseStatus.name(p)); ok {
		defer s.(*httptest.Server).Close()
	}
	err := n.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, refuseStatus.name(p), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// nothingLeft is a proof that no task and no control group of the pod is left.
const nothingLeft = `[ -z "$(tasks)" ] && [ -z "$(find /sys/fs/cgroup -maxdepth 4 -type d -name "*pod$CGROUP*")" ] && [ -z "$(find /sys/fs/cgroup -maxdepth 4 -type d -name "*pod$UID_*")" ]`

// finalDeleteRefused is a pod of which only the object is left, which may be deleted by
// force. Of that the agent is sure if it saw the pod end: it takes some seconds for that.
func finalDeleteRefused() bed.Scenario {
	return bed.Scenario{
		Name:  "final-delete-refused",
		Story: "an admission policy refuses the kubelet's final delete",
		Place: bed.Place{
			Alone: true, // beside a shim that hangs the kubelet does not tell its counts
		},
		Fault: bed.Fault{
			Pod:   victim(12, "drain", "4"),
			Break: inTurn(refuseDelete.impose, bed.OnNode(known)),
			Proof: nothingLeft,
			Heal:  inTurn(answers("Force delete: yes, all containers have exited"), refuseDelete.lift),
		},
		Want: bed.Want{
			Cause: "FinalDeleteRejected",
			Says: []string{"Cause: in phase FinalDelete", "Seen: no process, mount, volume directory or cgroup of the pod is left on the " +
				"node", "rejects the kubelet's delete of the pod (HTTP 422)",
				"Fix: kubectl delete --dry-run=server -n ", "Fix:  --force --as=system:node:"},
		},
	}
}

func finalDeleteLate() bed.Scenario {
	return bed.Scenario{
		Name:  "final-delete-late",
		Story: "innocent: an admission policy refuses the kubelet's final delete, and is lifted some seconds later",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: refuseDelete.forAWhile(18 * time.Second),
			Proof: nothingLeft,
		},
	}
}

func statusRefused() bed.Scenario {
	return bed.Scenario{
		Name:  "status-refused",
		Story: "an admission policy refuses the kubelet's update of the pod's status",
		Place: bed.Place{Alone: true},
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: refuseStatus.impose,
			Proof: nothingLeft,
			Heal:  refuseStatus.lift,
		},
		Want: bed.Want{
			Cause: "StatusUpdateRejected",
			Says:  []string{"Cause: in phase FinalDelete", "Seen: Nothing of the pod is left on the node", "(HTTP 422)", "Failed to update status for pod"},
		},
	}
}

// statusRefusedToAll is one of which nodeagent's condition is refused, too.
func statusRefusedToAll() bed.Scenario {
	s := statusRefused()
	s.Name, s.Story = "status-refused-to-all", "an admission policy refuses every update of the pod's status, by whomever"
	s.Break, s.Heal = refuseStatusToAll.impose, refuseStatusToAll.lift
	s.NoCondition = true
	s.Says = []string{
		"rejects the kubelet's pod status updates (HTTP 422)",
		"the ValidatingAdmissionPolicy \"scenario-update-NAMESPACE-status-refused-to-all\"", "(it rejects nodeagent's update too)",
	}
	return s
}

// statusDenied is the same by a webhook.
func statusDenied() bed.Scenario {
	s := statusRefused()
	s.Name, s.Story = "status-denied", "a webhook denies every update of the pod's status"
	s.Break, s.Heal, s.NoCondition = askWebhook(true), askNoWebhook, true
	s.Says = []string{"Probably stuck: ", "rejects the kubelet's pod status updates (HTTP 403)", "the webhook " +
		"\"" + statusWebhook + "\" (it rejects nodeagent's update too)"}
	return s
}

// statusWebhookDead is a webhook that nobody serves, without which the API server writes nothing.
func statusWebhookDead() bed.Scenario {
	s := statusRefused()
	s.Name, s.Story = "status-webhook-dead", "the API server has to ask a webhook about each update of the pod's status, and nobody listens there"
	s.Break, s.Heal, s.NoCondition, s.Family = askWebhook(false), askNoWebhook, true, "WebhookFails"
	s.Says = []string{
		"Probably stuck: ", "does not accept the kubelet's pod status updates (HTTP 500) because it cannot call the webhook " +
			"\"" + statusWebhook + "\"", "ask the webhook's owner to get its pods Ready",
	}
	return s
}

// statusWebhookLate is innocent: somebody takes the webhook away in time.
func statusWebhookLate() bed.Scenario {
	return bed.Scenario{
		Name:  "status-webhook-late",
		Story: "innocent: the API server has to ask a webhook about each update of the pod's status, nobody listens there, and it is taken away some seconds later",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: forAWhile(askWebhook(false), askNoWebhook, 30*time.Second),
			Proof: nothingLeft,
		},
	}
}

// finalizerRefused is one whose controller is told no, which nobody on the node sees. What the agent advises
// shows who says no.
func finalizerRefused() bed.Scenario {
	s := finalizer()
	s.Name, s.Story = "finalizer-refused", "an admission policy refuses the controller's removal of its finalizer"
	s.Break = refuseUpdateToAll.impose
	s.Proof = nothingLeft
	s.Says = []string{"example.com/block", "Nothing of the pod is left",
		"Fix: whether the removal is rejected, which changes nothing: kubectl patch --dry-run=server -n NAMESPACE pod finalizer-refused "}
	s.Heal = inTurn(advised("ValidatingAdmissionPolicy 'scenario-update-"), refuseUpdateToAll.lift, removedWhenAllowed)
	return s
}

// removedWhenAllowed removes the finalizers, as soon as the API server knows that it is allowed again.
func removedWhenAllowed(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
	return n.Await(ctx, "the removal of the finalizers of "+p.Name, func() (bool, string) {
		err := removeFinalizers(ctx, n, p)
		return err == nil || apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// dryRun returns the command of the line Fix of a condition that asks without effect whether finalizers can be removed; "" for none.
func dryRun(message string) string {
	m, _ := condition.Parse(message)
	return regexp.MustCompile(`kubectl patch --dry-run=server -n .*}]'`).FindString(m.Fix)
}

// advised is a step that runs that command of the pod's condition, and wants an answer.
func advised(answer string) bed.Step {
	return func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		now, err := n.Pod(ctx, p.Namespace, p.Name)
		if err != nil {
			return err
		}
		c := bed.Condition(now)
		if c == nil {
			return fmt.Errorf("%s has no condition that advises something", p.Name)
		}
		command := dryRun(c.Message)
		if command == "" {
			return fmt.Errorf("the condition advises no command: %s", c.Message)
		}
		told, err := n.AsPerson(ctx, command)
		if err == nil || !strings.Contains(err.Error(), answer) {
			return fmt.Errorf("%q does not answer %q: %s %w", command, answer, told, err)
		}
		return nil
	}
}

// finalizerDenied is one of which each update is refused, nodeagent's own too, once the kubelet has done its
// work.
func finalizerDenied() bed.Scenario {
	s := finalizer()
	s.Name, s.Story = "finalizer-denied", "a webhook denies every update of the pod and of its status, as the kubelet has finished, "+
		"and with that the removal of its finalizer"
	s.Proof = nothingLeft
	s.NoCondition = true
	s.Says = []string{"example.com/block", "Nothing of the pod is left", "for the webhook \"" + statusWebhook + "\" (it rejects " +
		"nodeagent's update). If found: ask its owner to allow the removal"}
	s.Break = func(ctx context.Context, n *bed.Node, p *corev1.Pod) error {
		ctx = context.WithoutCancel(ctx)
		go func() {
			if finallyDeleted(ctx, n, p) == nil {
				_ = askWebhook(true)(ctx, n, p) // else the test says that the condition is written
			}
		}()
		return nil
	}
	s.Heal = inTurn(askNoWebhook, removedWhenAllowed)
	return s
}

func statusLate() bed.Scenario {
	return bed.Scenario{
		Name:  "status-late",
		Story: "innocent: an admission policy refuses the kubelet's update of the pod's status, and is lifted some seconds later",
		Fault: bed.Fault{
			Pod:   victim(3, "drain", "0"),
			Break: refuseStatus.forAWhile(18 * time.Second),
			Proof: nothingLeft,
		},
	}
}
