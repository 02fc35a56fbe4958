package node

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/pki"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Start starts a node. Its process has the node's name; its end is the node's.
func Start(ctx context.Context, d state.Dir, c state.Cluster, n state.Node, a *pki.Authority) error {
	if n.Spec.Kind == state.Native {
		return startNative(ctx, d, c, n, a)
	}
	return bootMachine(ctx, d, c, n, a)
}

// Remove ends a node and takes away what it has left on this machine, also when it
// has ended by itself.
func Remove(ctx context.Context, d state.Dir, n state.Node) error {
	if n.Spec.Kind == state.Native {
		return removeNative(ctx, d, n.Name)
	}
	return d.Processes().Stop(ctx, n.Name, 0)
}

// RemoveNatives ends the native nodes that run or have left something, also those
// that the state file does not tell of.
func RemoveNatives(ctx context.Context, d state.Dir) error {
	var group errgroup.Group
	for _, name := range Natives(d) {
		group.Go(func() error { return removeNative(ctx, d, name) })
	}
	return group.Wait()
}

// BootTime says how long a node takes to get ready.
func BootTime(c state.Cluster, n state.Node) string {
	switch {
	case n.Spec.Kind == state.Native:
		return "5 seconds"
	case c.Accel == "kvm":
		return "15 seconds"
	}
	return "a minute, since this machine has to emulate its processors"
}
