package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/cache"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
)

// Down ends the cluster and removes everything but the cache. Without a cluster it
// does nothing.
func (h Handle) Down(ctx context.Context) error {
	unlock, err := cache.TryLock(h.lockPath())
	if errors.Is(err, cache.ErrLocked) {
		return fmt.Errorf("another `up` or `down` is at work on the cluster of %s; end it (Ctrl-C) or wait for it", h.Checkout)
	}
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(h.Dir.Path); errors.Is(err, os.ErrNotExist) && len(node.Natives(h.Dir)) == 0 {
		say("no cluster runs for %s", h.Checkout)
		return nil
	}
	if err := h.remove(ctx); err != nil {
		return err
	}
	say("cluster is down")
	return nil
}

// remove kills every process of the cluster: nothing in it is worth a goodbye, and
// killing a node's machine frees whatever hangs in it. It does not ask the state file,
// which may be broken: machines have a pid file, native nodes have cgroups.
func (h Handle) remove(ctx context.Context) error {
	if err := node.RemoveNatives(ctx, h.Dir); err != nil {
		return err
	}
	var group errgroup.Group
	for _, name := range h.Dir.Processes().Names() {
		group.Go(func() error { return h.Dir.Processes().Stop(ctx, name, 0) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := os.RemoveAll(h.Dir.Path); err != nil {
		return fmt.Errorf("remove state folder: %w", err)
	}
	return nil
}

// keepLogs puts the logs of a cluster that did not start where the next one does
// not remove them, and returns that place.
func (h Handle) keepLogs() string {
	to := filepath.Join(h.Cache.Dir, "logs", "cluster-"+baseName(h.Dir.Path))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return h.Dir.Logs()
	}
	if err := os.RemoveAll(to); err != nil {
		return h.Dir.Logs()
	}
	if err := os.Rename(h.Dir.Logs(), to); err != nil {
		return "none were written"
	}
	return to
}
