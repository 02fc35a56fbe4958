package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unheard returns one finding for each first process whose stop signal meets the
// given fate and for which matches is true.
func unheard(p *evidence.Pod, why fact.Reception, matches func(fact.FirstProcess) bool) []diagnose.Finding {
	var out []diagnose.Finding
	for _, fp := range fact.Signalled(p) {
		if fp.Receives(fp.Container.StopSignal) == why && !fp.Mismatched() && matches(fp) {
			out = append(out, diagnose.About(p, fp, diagnose.Proved))
		}
	}
	return out
}
