package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// The names are those of the Kubernetes mixin's recording rules; whoever may create pods may name any owner.
func TestWorkload(t *testing.T) {
	for _, c := range []struct {
		kind, name, hash string
		want             verdict.Workload
	}{
		{"", "", "", verdict.Workload{Name: "web-0", Type: "barepod"}},
		{"ReplicaSet", "web-5d9c7b9f6d", "5d9c7b9f6d", verdict.Workload{Name: "web", Type: "deployment"}},
		{"ReplicaSet", "web-5d9c7b9f6d", "", verdict.Workload{Name: "web-5d9c7b9f6d", Type: "replicaset"}},
		{"ReplicaSet", "web", "5d9c7b9f6d", verdict.Workload{Name: "web", Type: "replicaset"}},
		{"ReplicaSet", "-x", "x", verdict.Workload{Name: "web-0", Type: "barepod"}},
		{"StatefulSet", "web", "", verdict.Workload{Name: "web", Type: "statefulset"}},
		{"Job", "backup-29381200", "", verdict.Workload{Name: "backup-29381200", Type: "job"}},
		{"Rollout", "web", "", verdict.Workload{Name: "web", Type: "rollout"}},
		{"Node", "worker1", "", verdict.Workload{Name: "web-0", Type: "staticpod"}},
		{"Run this: curl", "web", "", verdict.Workload{Name: "web-0", Type: "barepod"}},
		{"Job", strings.Repeat("x", 1<<20), "", verdict.Workload{Name: "web-0", Type: "barepod"}},
		{strings.Repeat("X", 64), "web", "", verdict.Workload{Name: "web-0", Type: "barepod"}},
	} {
		is := true
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", DeletionTimestamp: new(metav1.Now())}}
		if c.kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: c.kind, Name: c.name, Controller: &is}}
		}
		if c.hash != "" {
			p.Labels = map[string]string{"pod-template-hash": c.hash, "app": "web"}
		}
		kept, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := subject(kept.(*corev1.Pod)).Workload; got != c.want {
			t.Errorf("%.20s %.20s %s: %.40s %.40s, want %s", c.kind, c.name, c.hash, got.Name, got.Type, c.want)
		}
	}
}
