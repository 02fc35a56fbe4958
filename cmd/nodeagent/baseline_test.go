package main

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A source reads one process of each pod.
type source struct{ node.Source }

func (source) Baselines(_ context.Context, uids []string) map[string]*evidence.Baseline {
	out := map[string]*evidence.Baseline{}
	for _, uid := range uids {
		out[uid] = &evidence.Baseline{Read: time.Now(), Tasks: []evidence.Task{{PID: 7, TID: 7, Comm: "app", Caught: 0x4000}}}
	}
	return out
}

// A capture learns from the agent what was before the deletion, and goes on without it
// where no agent runs or the pod is not known.
func TestCaptureAsksForBaseline(t *testing.T) {
	socket := "@nodeagent-test-" + rand.Text()
	requested := time.Now().Add(time.Minute).Truncate(time.Second)
	pod := &evidence.Pod{UID: "a", RuntimeUID: "a", DeletionRequested: requested}
	if b := askBaseline(t.Context(), socket, pod); b != nil {
		t.Fatalf("without an agent: %+v", b)
	}
	known := new(agent.Baselines)
	if err := serveBaselines(t.Context(), socket, baselines(known)); err != nil {
		t.Fatal(err)
	}
	if b := askBaseline(t.Context(), socket, pod); b != nil {
		t.Fatalf("of a pod that is not known: %+v", b)
	}
	running := &corev1.Pod{}
	running.UID, running.Status.Phase = "a", corev1.PodRunning
	known.Refresh(t.Context(), source{}, []*corev1.Pod{running}, time.Now())
	var b *evidence.Baseline
	for end := time.Now().Add(time.Minute); b == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		b = askBaseline(t.Context(), socket, pod)
	}
	if b == nil || len(b.Tasks) != 1 || !b.Tasks[0].Caught.Has(evidence.SIGTERM) {
		t.Errorf("of a pod that is known: %+v", b)
	}
	pod.DeletionRequested = time.Now().Add(-time.Minute)
	if b := askBaseline(t.Context(), socket, pod); b != nil {
		t.Errorf("of a deletion before it was read: %+v", b)
	}
}

// A capture that comes late learns from the agent what there was of the pod.
func TestCaptureAsksWhatWasSeen(t *testing.T) {
	socket := "@nodeagent-test-" + rand.Text()
	cases := new(verdict.Cases)
	if err := serveBaselines(t.Context(), socket, known(new(agent.Baselines), cases)); err != nil {
		t.Fatal(err)
	}
	pod := &evidence.Pod{UID: "a", RuntimeUID: "a", Seen: evidence.Seen{Group: true, Runtimes: []string{"runc"}}}
	if s := askSeen(t.Context(), socket, pod); s.Group || s.Runtimes != nil {
		t.Errorf("of a pod that is not known: %+v", s)
	}
	cases.Open("a").Judge(verdict.Subject{UID: "a"}, pod, diagnose.Diagnosis{})
	var s evidence.Seen
	for end := time.Now().Add(time.Minute); !s.Group && time.Now().Before(end); time.Sleep(time.Millisecond) {
		s = askSeen(t.Context(), socket, pod) // which waits for a second
	}
	if !s.Group || len(s.Runtimes) != 1 {
		t.Errorf("of a pod that is known: %+v", s)
	}
	if b := askBaseline(t.Context(), socket, pod); b != nil {
		t.Errorf("before the deletion: %+v", b)
	}
}
