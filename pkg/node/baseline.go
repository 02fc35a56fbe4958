package node

import (
	"context"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Baselines implements Source. A pod that cannot be read has none: what its rules
// need to know is then not known.
func (r *Reader) Baselines(ctx context.Context, uids []string) map[string]*evidence.Baseline {
	out := make(map[string]*evidence.Baseline, len(uids))
	for _, uid := range uids {
		if ctx.Err() != nil {
			return out
		}
		if b, err := r.Proc.ReadBaseline(ctx, uid); err == nil && len(b.Tasks) > 0 {
			out[uid] = b
		}
	}
	return out
}
