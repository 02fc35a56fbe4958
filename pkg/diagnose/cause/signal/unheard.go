package signal

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unheard returns one finding for each first process that receives its stop signal
// in the given way, and for which matches is true.
func unheard(p *fact.View, why fact.Reception, matches func(fact.FirstProcess) bool) []diagnose.Finding {
	var out []diagnose.Finding
	for _, fp := range fact.Signalled(p) {
		if p.Gone && !hadItsTurn(p, fp.Container) {
			continue // the containers before it have used up the grace period
		}
		if fp.Receives(fp.Container.StopSignal) == why && !fp.Mismatched() && matches(fp) {
			out = append(out, diagnose.About(p, fp, confidence(p, fp.Leader, why)))
		}
	}
	return out
}

// confidence returns how sure it is what happened to the stop signal in a process. A
// blocked signal is seen to be pending. A signal that was dropped or ignored leaves no
// trace: that is proved only if the process has not run since before the deletion.
func confidence(p *fact.View, t *evidence.Task, why fact.Reception) diagnose.Confidence {
	if why == fact.Blocked || fact.SleptThrough(p, t) {
		return diagnose.Proved
	}
	return diagnose.Inferred
}
