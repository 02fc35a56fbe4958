package scenario

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forced lists what a force delete is asked about.
func forced() []Scenario {
	return []Scenario{objectLeft()}
}

// objectLeft is innocent: it is about how long the kubelet may take for its next try.
func objectLeft() Scenario {
	s := Scenario{
		Name:    "object-left",
		Story:   "innocent: the kubelet's first final delete is refused, when nothing but the object is left",
		Pod:     onTmpfs(),
		Prepare: refuseFinalDelete,
		Proof: `[ -z "$(tasks)" ]
! grep -q $UID_ /proc/self/mountinfo
! find /sys/fs/cgroup -maxdepth 5 -type d \( -name "*pod$UID_*" -o -name "*pod$CGROUP*" \) | grep -q .`,
		Force: "yes",
		Heal:  allowFinalDelete,
	}
	return s
}

// refuseFinalDelete has the API server refuse what a kubelet deletes, of one pod.
func refuseFinalDelete(ctx context.Context, n *Node, p *corev1.Pod) error {
	fail, deny := admissionv1.Fail, admissionv1.Deny
	name := refusal(n, p)
	of := fmt.Sprintf("request.namespace == %q && request.name == %q && request.userInfo.username.startsWith('system:node:')", p.Namespace, p.Name)
	_, err := n.API.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "!(" + of + ")", Message: "the pod is kept by a scenario"}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = n.API.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{deny}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func refusal(n *Node, p *corev1.Pod) string { return p.Name + "." + n.Namespace() }

func allowFinalDelete(ctx context.Context, n *Node, p *corev1.Pod) error {
	name := refusal(n, p)
	one := n.API.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
	two := n.API.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
	gone := func(err error) error {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return errors.Join(gone(one), gone(two))
}
