package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

const (
	// conditionPolicy is the policy by which nobody but the agents and kubelets writes the agent's condition.
	conditionPolicy = "nodeagent-own-condition"
	// statusWrites are made with it, and as many without, by turns.
	statusWrites = 1000
	statusTurns  = 4
	// policySettles is more than the API server takes to see that a binding has come or gone.
	policySettles = 5 * time.Second
	// maxPolicyCost is the part by which the policy may slow down another one's write that does not touch the condition.
	maxPolicyCost = 0.1
)

// policy measures what the policy about the agent's condition costs those who write other conditions of pods.
func policy(ctx context.Context) (rows []row, err error) {
	c, err := bed.Find(ctx)
	if err != nil {
		return nil, err
	}
	if err := bed.Install(ctx, c); err != nil {
		return nil, err
	}
	client, _, err := unlimited(ctx)
	if err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, c.Nodes[0]); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, disperse(ctx, c.Nodes[0]))
	}()
	// No scheduler and no kubelet writes about it.
	p := sleeper("", 0)
	p.Spec.SchedulerName = "nobody"
	pods := client.CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(ctx, conditionPolicy, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels, Annotations: binding.Annotations}
	var with, without []time.Duration
	write := func(took *[]time.Duration) error {
		if err := sleep(ctx, policySettles); err != nil {
			return err
		}
		for range statusWrites / statusTurns {
			status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[len(*took)%2]
			begun := time.Now()
			if _, err := pods.Patch(ctx, p.Name, types.StrategicMergePatchType,
				fmt.Appendf(nil, `{"status":{"conditions":[{"type":"example.com/gate","status":"%s"}]}}`, status), metav1.PatchOptions{}, "status"); err != nil {
				return err
			}
			*took = append(*took, time.Since(begun))
		}
		return nil
	}
	for range statusTurns {
		if err := write(&with); err != nil {
			return nil, err
		}
		if err := bindings.Delete(ctx, conditionPolicy, metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		writeErr := write(&without)
		_, err := bindings.Create(context.WithoutCancel(ctx), binding.DeepCopy(), metav1.CreateOptions{})
		if err := errors.Join(writeErr, err); err != nil {
			return nil, err
		}
	}
	slices.Sort(with)
	slices.Sort(without)
	half := statusWrites / 2
	ratio := float64(with[half]) / float64(without[half])
	return []row{{
		what:     fmt.Sprintf("%d writes of another condition, with the policy %s", statusWrites, conditionPolicy),
		target:   fmt.Sprintf("≤%.1f times without it", 1+maxPolicyCost),
		measured: fmt.Sprintf("%.2f times: median %s, without it %s", ratio, milliseconds(float64(with[half])), milliseconds(float64(without[half]))),
		met:      ratio <= 1+maxPolicyCost,
	}}, nil
}
