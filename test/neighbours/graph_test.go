package main

import (
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// A change of a rule, of a helper that some rules share, and of readers.
func TestNear(t *testing.T) {
	g, err := load(bed.Root())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"network.CNIDelHanging":    "CNIDelHanging",
		"network.unaware":          "CNIAddHanging",
		"proc.Round.readPlugins":   "CNIAddHanging CNIDelHanging FileScannerNotAnswering",
		"proc.Round.readRequests":  "PostStartHookRunning PreStopHookRunning",
		"proc.Round.readShortages": "KubeletResourceExhausted NodeResourceExhausted",
		"cri.Runtime.unlisted":     "ExecHoldsInitExit ExitEventLost FileScannerNotAnswering HostPIDLeftover KubeletLate RuntimeCommandHanging ShimHung",
	} {
		var found bool
		for _, d := range g.decls {
			if d.name != name {
				continue
			}
			found = true
			if near := strings.Join(g.near(d), " "); near != want {
				t.Errorf("%s: %s, want %s", name, near, want)
			}
		}
		if !found {
			t.Errorf("nothing is called %s", name)
		}
	}
}
