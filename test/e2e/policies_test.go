//go:build e2e

package e2e

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// ownNodePolicy is the policy whose binding is taken away.
const ownNodePolicy = "nodeagent-own-node"

// policyUnbound takes the binding of an admission policy away: the agent's metric tells, and tells again when it is back.
func policyUnbound(x *trial, n *bed.Node, _ *bed.Turn) { unbound(x, n, func() {}) }

// unbound does the same, and something else while the agent tells.
func unbound(x *trial, n *bed.Node, meanwhile func()) {
	x.Helper()
	const policy = ownNodePolicy
	ctx := x.Context()
	bindings := n.API.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	was, err := bindings.Get(ctx, policy, metav1.GetOptions{})
	if err != nil {
		x.Fatal(err)
	}
	bind := func() error {
		_, err := bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels, Annotations: was.Annotations}, Spec: was.Spec,
		}, metav1.CreateOptions{})
		return err
	}
	tells := func(policy string, held int) {
		x.Helper()
		if err := n.Await(ctx, fmt.Sprintf("the agent to tell of %s: %d", policy, held), func() (bool, string) {
			metrics, err := n.Metrics(ctx)
			return strings.Contains(metrics, fmt.Sprintf("nodeagent_token_held{policy=%q} %d\n", policy, held)), fmt.Sprint(err)
		}); err != nil {
			x.Error(err)
		}
	}
	tells(policy, 1)
	x.Cleanup(func() { _ = bind() }) // it may be back
	if err := bindings.Delete(ctx, policy, metav1.DeleteOptions{}); err != nil {
		x.Fatal(err)
	}
	// It tries at its start, and hourly.
	agent, err := n.AgentPod(ctx)
	if err == nil {
		err = n.API.CoreV1().Pods(agent.Namespace).Delete(ctx, agent.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		x.Error(err)
	}
	tells(policy, 0)
	tells("nodeagent-own-events", 1)
	meanwhile()
	if err := bind(); err != nil {
		x.Fatal(err)
	}
	tells(policy, 1)
}
