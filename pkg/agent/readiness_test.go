package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, asked := time.Now(), 0
		condition := &corev1.NodeCondition{Status: "Unknown", Reason: "NodeStatusUnknown", LastTransitionTime: metav1.NewTime(start.Add(-time.Minute))}
		var refuse error
		r := &Readiness{Ask: func(context.Context) (*corev1.NodeCondition, error) {
			asked++
			return condition, refuse
		}}
		p := &evidence.Pod{DeletionRequested: start}
		of := func(wait time.Duration, questions int) *evidence.NodeReady {
			t.Helper()
			time.Sleep(wait)
			got, err := r.Of(t.Context(), p)
			if asked != questions || !errors.Is(err, refuse) && condition != nil {
				t.Errorf("asked %d times, want %d: %v", asked, questions, err)
			}
			return got
		}
		if got := of(askNodeAfter-time.Second, 0); got != nil {
			t.Errorf("of a pod that may end in time: %+v", got)
		}
		first := of(time.Second, 1)
		if !first.Unheard() || !first.Since.Equal(first.Asked) {
			t.Errorf("first %+v", first)
		}
		if of(askNodeEach-time.Second, 1) != first {
			t.Error("asked again too soon")
		}
		if got := of(time.Second, 2); !got.Since.Equal(first.Since) || got.Asked.Sub(got.Since) != askNodeEach {
			t.Errorf("the same answer: %+v", got)
		}
		refuse = errors.New("refused")
		if got := of(askNodeEach, 3); got != nil {
			t.Errorf("no answer: %+v", got)
		}
		refuse = nil
		if got := of(askNodeEach, 4); !got.Since.Equal(first.Since) {
			t.Errorf("the transition tells that it was so in between: %+v", got)
		}
		condition = &corev1.NodeCondition{Status: "Unknown", Reason: "NodeStatusUnknown", LastTransitionTime: metav1.NewTime(start)}
		if got := of(askNodeEach, 5); !got.Since.Equal(got.Asked) {
			t.Errorf("another transition: %+v", got)
		}
		if r.Unlisted() {
			t.Error("nobody has said that the kubelet gets no list")
		}
		const message = "PLEG is not healthy: pleg was last seen active 4m0s ago; threshold is 3m0s"
		said := metav1.NewTime(time.Now())
		condition = &corev1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: message, LastTransitionTime: said, LastHeartbeatTime: said}
		if got := of(askNodeEach, 6); got.PLEG == nil || !got.PLEG.Active.Equal(said.Add(-4*time.Minute)) || !r.Unlisted() {
			t.Errorf("a kubelet that gets no list: %+v", got)
		}
		condition = nil
		if got := of(askNodeEach, 7); got != nil {
			t.Errorf("no condition: %+v", got)
		}
		if _, err := r.Now(t.Context()); err == nil || asked != 8 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}
