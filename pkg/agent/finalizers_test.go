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

// Who set a finalizer is asked for when only that is left, and asked again when there was
// no answer.
func TestSettersAreAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, errors.New("no answer")
		s := Setters{Ask: func(_ context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
			asked++
			m := &metav1.PartialObjectMetadata{}
			m.UID = "u"
			e := metav1.ManagedFieldsEntry{Manager: "m", FieldsV1: new(metav1.FieldsV1)}
			e.FieldsV1.SetRawBytes([]byte(`{"f:metadata":{"f:finalizers":{"v:\"example.com/a\"":{}}}}`))
			m.ManagedFields = append(m.ManagedFields, e)
			if namespace != "ns" || name != "p" {
				t.Errorf("asked about %s/%s", namespace, name)
			}
			return m, answer
		}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
		of := func(left time.Duration, change func(e *evidence.Pod)) int {
			e := &evidence.Pod{Phase: "Succeeded", Finalizers: []string{"example.com/a"}, Time: time.Now()}
			e.UnchangedSince = e.Time.Add(-left)
			change(e)
			return len(s.Of(t.Context(), p, e))
		}
		same := func(*evidence.Pod) {}
		of(9*time.Second, same)
		of(time.Minute, func(e *evidence.Pod) { e.Finalizers = nil })
		of(time.Minute, func(e *evidence.Pod) { e.GracePeriodSeconds = 30 })
		of(time.Minute, func(e *evidence.Pod) { e.Cgroups = []evidence.Cgroup{{}} })
		if asked != 0 {
			t.Errorf("asked %d times for nothing", asked)
		}
		if of(10*time.Second, same) != 0 || of(20*time.Second, same) != 0 || asked != 1 {
			t.Errorf("asked %d times without an answer", asked)
		}
		answer = nil
		time.Sleep(settersAgain)
		for range 2 {
			if n := of(time.Minute, same); n != 1 || asked != 2 {
				t.Errorf("%d managers are known, asked %d times", n, asked)
			}
		}
		p.UID = "another"
		if of(time.Minute, same) != 0 || asked != 3 {
			t.Errorf("of another pod of that name something is told, asked %d times", asked)
		}
		s.forget(map[string]bool{"u": true})
		if len(s.known) != 1 {
			t.Errorf("%d pods are known", len(s.known))
		}
	})
}
