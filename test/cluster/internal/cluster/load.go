package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/node"
	"github.com/nodeagent-io/nodeagent/test/cluster/internal/state"
)

// Load imports image archives into containerd on the nodes of these names, on all
// when there are none.
func (h Handle) Load(ctx context.Context, archives, names []string) error {
	c, err := h.Dir.Load()
	if err != nil {
		return err
	}
	nodes := c.Nodes
	if len(names) > 0 {
		nodes = nil
	}
	for _, name := range names {
		n, err := c.Node(name)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("image archive: %w", err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error {
			for _, archive := range archives {
				if err := h.loadOne(ctx, n, archive); err != nil {
					return fmt.Errorf("load %s on %s: %w", archive, n.Name, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (h Handle) loadOne(ctx context.Context, n state.Node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	client, err := node.Shell(ctx, h.Dir, n)
	if err != nil {
		return err
	}
	defer client.Close()
	var out bytes.Buffer
	code, err := node.Run(ctx, client, "ctr -n k8s.io images import -", f, &out, &out)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("ctr exits with %d: %s", code, strings.TrimSpace(out.String()))
	}
	say("%s has %s", n.Name, filepath.Base(archive))
	return nil
}
