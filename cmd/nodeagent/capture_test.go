package main

import (
	"context"
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
