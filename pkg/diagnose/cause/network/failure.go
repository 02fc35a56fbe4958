package network

import (
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// phases are those in which the containers have exited and the sandbox is known.
var phases = []diagnose.Phase{diagnose.Sandbox}

// needs are the sources that show that the pod's processes have exited, and the
// kubelet's Events.
var needs = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Events}

// failure returns the failure to tear down the pod's network that still comes back,
// nil when there is none.
func failure(p *fact.View) *fact.SandboxFailure {
	f := fact.SandboxStop(p)
	if f == nil || f.Step != fact.StepNetwork || !f.GoesOn(p) {
		return nil
	}
	return f
}

// uninitialized reports whether containerd had no network configuration
// (go-cni, ErrCNINotInitialized; internal/cri/server/sandbox_stop.go).
func uninitialized(f *fact.SandboxFailure) bool {
	for _, words := range []string{"cni plugin not initialized", "cni config not initialized", "cni config uninitialized"} {
		if strings.Contains(f.Error, words) {
			return true
		}
	}
	return false
}
