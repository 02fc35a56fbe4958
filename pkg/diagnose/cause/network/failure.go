package network

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// phases are those in which the containers have exited and the sandbox is known.
var phases = []diagnose.Phase{diagnose.Sandbox}

// failures returns the kubelet's last failure to have the pod's sandbox stopped, by its Events: it is what the kubelet still fails at, or has
// failed at.
func failures(p *fact.View) []*fact.SandboxFailure {
	if f := p.SandboxStop; f != nil {
		return []*fact.SandboxFailure{f}
	}
	return nil
}

// fails are the facts about a failure to tear down the pod's network that still comes back.
var fails = slices.Concat([]diagnose.Fact[*fact.SandboxFailure]{
	{
		Says: "In an Event of reason FailedKillPod about this pod and this sandbox, the kubelet reports that the network of the sandbox could not " +
			"be destroyed (failed to destroy network for sandbox).",
		Is: diagnose.If(isOfNetwork),
	},
	{Says: "The ID of the sandbox in the Event is the one in containerd, and the sandbox has exited."},
}, diagnose.StopFails(itself), []diagnose.Fact[*fact.SandboxFailure]{
	diagnose.BeforeClaims(itself),
	{Says: "All processes of the pod's containers have exited, and so have the containers by their CRI status."},
})

// needs are the sources that show that the pod's processes have exited, and the kubelet's Events.
var needs = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Events}

func isOfNetwork(_ *fact.View, f *fact.SandboxFailure) bool { return f.Step == fact.StepNetwork }

func itself(_ *fact.View, f *fact.SandboxFailure) *fact.SandboxFailure { return f }

// uninitialized reports whether containerd had no network configuration
// (go-cni, ErrCNINotInitialized; internal/cri/server/sandbox_stop.go).
func uninitialized(_ *fact.View, f *fact.SandboxFailure) bool {
	for _, words := range []string{"cni plugin not initialized", "cni config not initialized", "cni config uninitialized"} {
		if strings.Contains(f.Error, words) {
			return true
		}
	}
	return false
}
