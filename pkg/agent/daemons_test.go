package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// What Trim keeps of a pod is enough to tell whether it is a network's daemon, and how
// it is.
func TestDaemons(t *testing.T) {
	of := func(name string, hostNetwork bool, ready corev1.ConditionStatus, terminating bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: corev1.PodSpec{HostNetwork: hostNetwork}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready}}
		if terminating {
			p.DeletionTimestamp = &metav1.Time{}
		}
		out, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.Pod)
	}
	got := Daemons([]*corev1.Pod{
		of("calico-node-x", true, corev1.ConditionFalse, false),
		of("aws-node-y", true, corev1.ConditionTrue, true),
		of("aws-node-z", true, corev1.ConditionTrue, false),
		of("calico-node-in-a-pod-network", false, corev1.ConditionFalse, false),
		of("my-calico-node-x", true, corev1.ConditionFalse, false),
	})
	want := []evidence.Daemon{
		{Pod: "kube-system/aws-node-y", Terminating: true, Ready: true},
		{Pod: "kube-system/aws-node-z", Ready: true},
		{Pod: "kube-system/calico-node-x"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
