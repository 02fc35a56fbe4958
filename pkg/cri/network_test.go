package cri

import (
	"context"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestNetwork(t *testing.T) {
	s := newServer()
	socket, stop := s.serve(t, nil)
	r, _ := open(t, socket, long)
	if got := r.Network(context.Background()); got != evidence.NetworkReady {
		t.Errorf("a network that is ready: %q", got)
	}
	s.set(func() { s.network = "cni plugin not initialized" })
	if got, want := r.Network(context.Background()), "NetworkPluginNotReady: cni plugin not initialized"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	stop()
	if got := r.Network(context.Background()); got != "" {
		t.Errorf("of a containerd that is down: %q", got)
	}
}
