package bed

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod has ended as wanted when its containers gave the exit codes, and long before its grace period was over.
func TestEnded(t *testing.T) {
	grace, deleted := int64(60), time.Now()
	exited := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	for name, tc := range map[string]struct {
		after    time.Duration
		statuses []corev1.ContainerStatus
		want     string // "" for none
	}{
		"in time":            {3 * time.Second, []corev1.ContainerStatus{exited("main", 7), exited("other", 1)}, ""},
		"killed":             {61 * time.Second, []corev1.ContainerStatus{exited("main", 137)}, "took 1m1s to go, of a grace period of 1m0s"},
		"another code":       {3 * time.Second, []corev1.ContainerStatus{exited("main", 137)}, "exit code 137 (told: true), want 7"},
		"nothing told of it": {3 * time.Second, nil, "(told: false), want 7"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}, Status: corev1.PodStatus{ContainerStatuses: tc.statuses}}
			p.UID = "u"
			c := &Cluster{}
			c.ended.Store(p.UID, &ended{pod: p, at: deleted.Add(tc.after)})
			r := &Run{Scenario: Scenario{Name: "s", Want: Want{Ends: map[string]int32{"main": 7}}}, Node: &Node{Cluster: c}, Pod: p, Deleted: deleted}
			switch err := r.Ended(); {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
