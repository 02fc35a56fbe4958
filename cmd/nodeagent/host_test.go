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
			pod("web", "u-1", map[string]string{"kubernetes.io/config.hash": "not a mirror pod's"}),
			pod("etcd", "u-2", map[string]string{"kubernetes.io/config.mirror": "h-2", "kubernetes.io/config.hash": "h-2"}),
		}
	}}
	for owner, want := range map[string]string{"u-1": "ns/web", "h-2": "ns/etcd", "u-2": "", "kubelet": "", "": "", "not a mirror pod's": ""} {
		tasks := []evidence.Task{{Owner: owner}, {Owner: owner}}
		h.nameOwners(tasks)
		for _, k := range tasks {
			if k.OwnerName != want {
				t.Errorf("%q is called %q, not %q", owner, k.OwnerName, want)
			}
		}
	}
	tasks := []evidence.Task{{Owner: "u-1"}}
	new(host).nameOwners(tasks)
	if tasks[0].OwnerName != "" {
		t.Errorf("without pods it is called %q", tasks[0].OwnerName)
	}
}
