package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestNameOwners(t *testing.T) {
	pod := func(name, uid string, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: annotations}}
	}
	h := &host{pods: func() []*corev1.Pod {
		return []*corev1.Pod{
			pod("web", "8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01", map[string]string{"kubernetes.io/config.hash": "not a mirror pod's"}),
			pod("etcd", "u-2", map[string]string{"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef", "kubernetes.io/config.hash": "0123456789abcdef0123456789abcdef"}),
		}
	}}
	for owner, want := range map[string]string{"8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01": "ns/web", "0123456789abcdef0123456789abcdef": "ns/etcd", "u-2": "", "kubelet": "", "": "", "not a mirror pod's": ""} {
		tasks := []evidence.Task{{Owner: owner}, {Owner: owner}}
		h.nameOwners(tasks)
		for _, k := range tasks {
			if k.OwnerName != want {
				t.Errorf("%q is called %q, not %q", owner, k.OwnerName, want)
			}
		}
	}
	tasks := []evidence.Task{{Owner: "8f1c3b52-0c7e-4f0e-9d55-2f6f0f9b6a01"}}
	new(host).nameOwners(tasks)
	if tasks[0].OwnerName != "" {
		t.Errorf("without pods it is called %q", tasks[0].OwnerName)
	}
}
