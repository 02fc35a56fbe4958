package proc

import (
	"context"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/proc/internal/kernfile"
	"github.com/nodeagent-io/nodeagent/pkg/proc/probe"
)

// ReadContent returns which files of its content store containerd has open; nil when it does not run.
func (r *Round) ReadContent(ctx context.Context) (*evidence.OpenContent, error) {
	files, err := kernfile.Open(r.Proc)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	s, err := r.service(ctx, files, []string{ownerContainerd})
	if s == nil {
		return nil, err
	}
	saw, err := r.askFiles(ctx, probe.Content, s)
	if err != nil || saw.Gone {
		return nil, err
	}
	return &evidence.OpenContent{Ingests: saw.Ingests, Blobs: saw.Blobs}, nil
}
