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

func (source) Baseline(context.Context, string) *evidence.Baseline {
	return &evidence.Baseline{Read: time.Now(), Tasks: []evidence.Task{{PID: 7, TID: 7, Comm: "app", Caught: 0x4000}}}
}

// A capture learns from the agent what was before the deletion, and goes on without it
// where no agent runs or the pod is not known.
func TestCaptureAsksForBaseline(t *testing.T) {
	t.Setenv(sealed, "true")
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
func TestCaptureAsksForTheLastReading(t *testing.T) {
	t.Setenv(sealed, "true")
	socket := "@nodeagent-test-" + rand.Text()
	cases := new(verdict.Cases)
	if err := serveBaselines(t.Context(), socket, known(new(agent.Baselines), cases)); err != nil {
		t.Fatal(err)
	}
	pod := &evidence.Pod{UID: "a", RuntimeUID: "a", Seen: evidence.Seen{Group: true, Runtimes: []string{"runc"}}}
	if last := askReading(t.Context(), socket, pod); last != nil {
		t.Errorf("of a pod that is not known: %+v", last)
	}
	cases.Open("a").Judge(verdict.Subject{UID: "a"}, pod, diagnose.Diagnosis{})
	var last *evidence.Pod
	for end := time.Now().Add(time.Minute); last == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		last = askReading(t.Context(), socket, pod) // which waits for a second
	}
	if last == nil || !last.Seen.Group || len(last.Seen.Runtimes) != 1 {
		t.Errorf("of a pod that is known: %+v", last)
	}
	if b := askBaseline(t.Context(), socket, pod); b != nil {
		t.Errorf("before the deletion: %+v", b)
	}
}

// What an agent has read long ago does not tell that something has been so since.
func TestCaptureGoesOnFromAReading(t *testing.T) {
	for ago, want := range map[time.Duration]bool{2 * time.Minute: true, 2*time.Minute + time.Second: false} {
		now := time.Now()
		last := &evidence.Pod{UID: "a", Time: now.Add(-ago), Seen: evidence.Seen{Group: true}}
		seed := &evidence.Pod{UID: "a"}
		if got := goOn(seed, last, now); (got != nil) != want || !seed.Seen.Group {
			t.Errorf("%s ago: %+v, %+v", ago, got, seed.Seen)
		}
	}
	if seed := new(evidence.Pod); goOn(seed, nil, time.Now()) != nil || seed.Seen.Group {
		t.Errorf("without one: %+v", seed.Seen)
	}
}
