package cri

import (
	"context"
	"slices"

	"github.com/containerd/containerd/v2/core/content"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// maxDownloads is how many downloads are kept: containerd makes three at a time for an image.
const maxDownloads = 64

// Downloads returns what containerd is downloading of images, the one that was updated last first; none
// when it does not answer.
func (r *Runtime) Downloads(ctx context.Context) []evidence.Download {
	c, err := r.current()
	if err != nil {
		return nil
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	all, err := c.containerd.ContentStore().ListStatuses(ctx)
	if err != nil {
		return nil
	}
	slices.SortFunc(all, func(a, b content.Status) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	var out []evidence.Download
	for _, s := range all[:min(len(all), maxDownloads)] {
		out = append(out, evidence.Download{Started: s.StartedAt, Updated: s.UpdatedAt, Offset: s.Offset, Total: s.Total})
	}
	return out
}
