package cluster

import (
	"context"
	"fmt"

	"github.com/nodeagent-io/nodeagent/test/cluster/internal/controlplane"
)

// Stop ends one component of the control plane and returns when its process is gone,
// with its port free again. It is asked to end, or killed at once when now is set.
func (h Handle) Stop(ctx context.Context, name string, now bool) error {
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
	grace := part.Stop
	if now {
		grace = 0
	}
	return h.Dir.Processes().Stop(ctx, name, grace)
}

// Start starts one component again, with more arguments than it has, and returns when it is ready.
func (h Handle) Start(ctx context.Context, name string, more ...string) error {
	c, err := h.Dir.Load()
	if err != nil {
		return err
	}
	part, err := controlplane.Find(h.Dir, c, name)
	if err != nil {
		return err
	}
	part.Args = append(part.Args, more...)
	return h.startComponent(ctx, c, part)
}
