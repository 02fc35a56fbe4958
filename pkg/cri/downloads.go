package cri

import (
	"context"
	"slices"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// maxDownloads is how many downloads are kept: containerd makes three at a time for an image.
const maxDownloads = 64

// maxNamespaces is of how many of containerd's namespaces the downloads are asked for: where there are more, none
// are known.
const maxNamespaces = 16

// Downloads returns what containerd is downloading of images, the one that was updated last first; none
// when it does not answer.
func (r *Runtime) Downloads(ctx context.Context) []evidence.Download {
	c, err := r.current()
	if err != nil {
		return nil
	}
	ctx, cancel := question(ctx, r.read)
	defer cancel()
	// What docker, nerdctl or buildkit download with the same containerd is in namespaces of their own.
	spaces, err := c.containerd.NamespaceService().List(ctx)
	if err != nil || len(spaces) > maxNamespaces {
		return nil
	}
	var all []content.Status
	for _, space := range spaces {
		some, err := c.containerd.ContentStore().ListStatuses(namespaces.WithNamespace(ctx, space))
		if err != nil {
			return nil
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b content.Status) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	var out []evidence.Download
	for _, s := range all[:min(len(all), maxDownloads)] {
		out = append(out, evidence.Download{Started: s.StartedAt, Updated: s.UpdatedAt, Offset: s.Offset, Total: s.Total})
	}
	return out
}
