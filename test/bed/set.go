package bed

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetSuffix is how a StatefulSet's name differs from that of its only pod.
const SetSuffix = "-0"

// createSet makes a StatefulSet of one replica and waits for its pod, whose name the run
// takes.
func (r *Run) createSet(ctx context.Context, p *corev1.Pod) error {
	one, spec := int32(1), *p.Spec.DeepCopy()
	spec.RestartPolicy = corev1.RestartPolicyAlways // no other one is allowed
	if _, err := r.Node.API.AppsV1().StatefulSets(p.Namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &one, ServiceName: p.Name, Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create StatefulSet: %w", err)
	}
	r.Name = p.Name + SetSuffix
	if err := r.Node.Await(ctx, "pod "+r.Name, func() (bool, string) {
		made, err := r.Node.Seen(p.Namespace, r.Name)
		if err != nil {
			return false, err.Error()
		}
		r.Pod = made
		return true, ""
	}); err != nil {
		return err
	}
	return r.awaitRunning(ctx)
}
