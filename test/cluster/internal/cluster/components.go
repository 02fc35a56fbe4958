package cluster

import (
	"context"
	"fmt"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
)

// Stop ends one component of the control plane in an orderly way and returns when
// its process is gone, with its port free again.
func (h Handle) Stop(ctx context.Context, name string) error {
	c, err := h.Dir.Load()
	if err != nil {
		return err
	}
	part, err := controlplane.Find(h.Dir, c, name)
	if err != nil {
		return err
	}
	p, err := h.Dir.Processes().Find(name)
	if err != nil {
		return err
	}
	if !p.Alive() {
		return fmt.Errorf("%s does not run; `start %s` starts it", name, name)
	}
	return h.Dir.Processes().Stop(ctx, name, part.Stop)
}

// Start starts one component again and returns when it is ready.
func (h Handle) Start(ctx context.Context, name string) error {
	c, err := h.Dir.Load()
	if err != nil {
		return err
	}
	part, err := controlplane.Find(h.Dir, c, name)
	if err != nil {
		return err
	}
	return h.startComponent(ctx, c, part)
}
