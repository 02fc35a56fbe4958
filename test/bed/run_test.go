package bed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A heal that waits for what does not come leaves time to force-delete the pod, whose name another try needs. One that waits for the
// pod's end finds it deleted.
func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{Cluster: &Cluster{}, Name: "native1"}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: n.Namespace()}}
		api := fake.NewClientset(p)
		n.API = api
		graces := func() (all []*int64) {
			for _, a := range api.Actions() {
				all = append(all, a.(clienttesting.DeleteAction).GetDeleteOptions().GracePeriodSeconds)
			}
			return all
		}
		heal := func(ctx context.Context, _ *Node, _ *corev1.Pod) error {
			if asked := graces(); len(asked) != 1 || asked[0] != nil {
				t.Errorf("asked for deletion with the grace periods %v before the heal, want once and without one", asked)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*healing)
		defer cancel()
		r := &Run{Scenario: Scenario{Name: "s", Fault: Fault{Heal: heal}}, Node: n, Pod: p}
		if err := r.Discard(ctx); err == nil || !strings.Contains(err.Error(), "heal: ") {
			t.Errorf("%v, want that of the heal", err)
		}
		if asked := graces(); ctx.Err() != nil || len(asked) != 2 || asked[1] == nil || *asked[1] != 0 {
			t.Errorf("asked for deletion with the grace periods %v, context: %v; want a last one of 0 in time", asked, ctx.Err())
		}
	})
}

// What breaks a pod waits until no process of it is runc any more, and does not wait for a pod without processes.
func TestBreakWaitsForThePrograms(t *testing.T) {
	status := filepath.Join(t.TempDir(), "status")
	write := func(name string) {
		if err := os.WriteFile(status, []byte("Name:\t"+name+"\nState:\tS (sleeping)\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, statuses := range []string{"echo " + status, ":", "echo /nowhere"} {
		write("runc:[2:INIT]")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "set -e\nstatuses() { "+statuses+"; }\n"+executed)
		ended := make(chan error)
		go func() { ended <- cmd.Run() }()
		select {
		case err := <-ended:
			if statuses == "echo "+status || err != nil {
				t.Errorf("%s: ended (%v) while runc is there", statuses, err)
			}
			continue
		case <-time.After(2 * time.Second):
		}
		if statuses != "echo "+status {
			t.Errorf("%s: waits for nothing", statuses)
		}
		write("victim")
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", statuses, err)
		}
	}
}

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
