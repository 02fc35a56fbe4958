package node

import (
	"context"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Baseline implements Source.
func (r *Reader) Baseline(ctx context.Context, uid string) *evidence.Baseline {
	b, err := r.Proc.ReadBaseline(ctx, uid)
	if err != nil || len(b.Tasks) == 0 {
		return nil // what its rules need to know is then not known
	}
	return b
}
