package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
)

// A hangingNode does not return from the files of its pods.
type hangingNode struct {
	node.Source
	hung chan struct{}
}

func (n *hangingNode) Round(context.Context, node.Ask) node.Round { return hangingRound{n} }

type hangingRound struct{ *hangingNode }

func (r hangingRound) Node() evidence.Node { return evidence.Node{} }

func (r hangingRound) Pod(_ context.Context, seed, _ *evidence.Pod) *evidence.Pod {
	if seed.HungSince.IsZero() {
		<-r.hung
	}
	return seed
}

// A capture of a pod of which the files do not let their reader go has the rest, and tries them once.
func TestCaptureDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &hangingNode{hung: make(chan struct{})}
		defer close(n.hung)
		r, start := readings{from: n, seed: new(evidence.Pod)}, time.Now()
		first := *r.read(t.Context(), node.Ask{}, nil)
		if took := time.Since(start); first.HungSince.IsZero() || took != readWithin+time.Second {
			t.Errorf("%+v after %s", first, took)
		}
		if last := r.read(t.Context(), node.Ask{}, &first); last.HungSince != first.HungSince || time.Since(start) != readWithin+time.Second {
			t.Errorf("%+v after %s", last, time.Since(start))
		}
	})
}

// One that returns late has not hung, and the next one reads the files again.
func TestCaptureAfterASlowReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &hangingNode{hung: make(chan struct{})}
		r := readings{from: n, seed: new(evidence.Pod)}
		if first := r.read(t.Context(), node.Ask{}, nil); first.HungSince.IsZero() {
			t.Fatal("it is not noted that a reading has not returned")
		}
		close(n.hung)
		synctest.Wait()
		if last := r.read(t.Context(), node.Ask{}, nil); !last.HungSince.IsZero() {
			t.Errorf("a reading that has returned is said not to have, since %s", last.HungSince)
		}
	})
}

// A capture shares the memory of the agent's container, and must not be what the agent is ended for.
func TestCaptureIsSmall(t *testing.T) {
	const score = "/proc/self/oom_score_adj"
	limit, before := debug.SetMemoryLimit(-1), read(t, score)
	defer func() {
		debug.SetMemoryLimit(limit)
		if err := os.WriteFile(score, []byte(before), 0o644); err != nil {
			t.Log(err) // lower than before takes a capability
		}
	}()
	cmd := captureCommand()
	cmd.SetArgs([]string{"shop/web-0", "--node-name", "n1", "--kubeconfig", filepath.Join(t.TempDir(), "none")})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err == nil {
		t.Fatal("a capture without a kubeconfig")
	}
	if got := debug.SetMemoryLimit(-1); got != captureMemory {
		t.Errorf("the collector keeps it to %d bytes, want %d", got, captureMemory)
	}
	if got := read(t, score); got != "1000" {
		t.Errorf("its oom_score_adj is %s, want 1000", got)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
