package scenario

import (
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// Every cause that can be reported has a scenario that breaks a real pod that
// way, and there are innocent pods among them.
func TestEveryCauseHasAScenario(t *testing.T) {
	causes, innocents := map[string]bool{}, 0
	for _, s := range append(All(), Alone()...) {
		if s.Cause == "" {
			innocents++
		}
		causes[s.Cause] = true
	}
	for _, r := range cause.All() {
		if !causes[r.Cause] {
			t.Errorf("no scenario shows %s", r.Cause)
		}
	}
	if innocents == 0 {
		t.Error("no scenario is innocent")
	}
}
