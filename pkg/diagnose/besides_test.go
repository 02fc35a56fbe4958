package diagnose_test

import (
	"slices"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// resting are containers that do not run, as they stand beside others in a rollback: their statuses say so.
var resting = map[string]evidence.Container{
	"ImagePullBackOff": {Waiting: true, BackedOff: true},
	"CrashLoopBackOff": {ID: "second", State: evidence.StateExited, Waiting: true, BackedOff: true, StopSignal: evidence.SIGTERM, Runtime: fact.RuncV2},
	"Completed":        {ID: "second", State: evidence.StateExited, Exit: new(evidence.Exit), StopSignal: evidence.SIGTERM, Runtime: fact.RuncV2},
}

// mayBeAbout are fixtures in which a container that is backed off is a reason of its own for silence.
var mayBeAbout = map[string]string{
	"kubelet_disconnected_at_the_end": "the kubelet may be about to start it again when it is heard",
}

// A container that does not run, as its status says, hides no cause, whatever it is about.
func TestAContainerBesides(t *testing.T) {
	for _, f := range fixtures(t) {
		v, ok := ptr(cause.Diagnose(f.evidence)).Verdict()
		if !ok || f.evidence.Gone {
			continue
		}
		for name, second := range resting {
			if mayBeAbout[f.name] != "" && second.BackedOff {
				continue
			}
			p := *f.evidence
			second.Name, second.Kind = "second", evidence.App
			if second.Exit != nil {
				second.Exit = &evidence.Exit{At: p.DeletionRequested.Add(-time.Hour)}
			}
			p.Containers = append(slices.Clone(p.Containers), second)
			if w, _ := ptr(cause.Diagnose(&p)).Verdict(); w.Cause != v.Cause {
				t.Errorf("%s: %q beside a container in %s, %s without it", f.name, w.Cause, name, v.Cause)
			}
		}
	}
}
