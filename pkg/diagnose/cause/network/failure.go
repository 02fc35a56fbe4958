package network

import (
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
var fails = []diagnose.Fact[*fact.SandboxFailure]{
	{
		Says: "In an Event of reason FailedKillPod about this pod and this sandbox, the kubelet reports that the network of the sandbox could not " +
			"be destroyed (failed to destroy network for sandbox).",
		Is: diagnose.If(isOfNetwork),
	},
	{Says: "The ID of the sandbox in the Event is the one in containerd, and the sandbox has exited."},
	{Says: "The last such report is at most six minutes old.", Is: diagnose.If(isFresh)},
	{Says: "The kubelet has reported it at least twice since the deletion, over eight seconds or more.", Is: comesBack},
	{Says: "The kubelet that reported it still runs.", Is: reporterRuns},
	{Says: "The pod has no resource claims, or the last report is at most 45 seconds old: claims are released next.", Is: diagnose.If(isBeforeClaims)},
	{Says: "All processes of the pod's containers have exited, and so have the containers by their CRI status."},
}

// needs are the sources that show that the pod's processes have exited, and the kubelet's Events.
var needs = []evidence.Source{evidence.Processes, evidence.Containers, evidence.Events}

func isOfNetwork(_ *fact.View, f *fact.SandboxFailure) bool { return f.Step == fact.StepNetwork }

func isFresh(p *fact.View, f *fact.SandboxFailure) bool { return f.IsFresh(p) }

// comesBack answers whether a failure has come back: the kubelet's next try tells.
func comesBack(p *fact.View, f *fact.SandboxFailure) diagnose.Holding {
	if f.CameBack() {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Retry))
}

// reporterRuns answers whether the kubelet that has told of a failure still runs: what another one makes of it is not known before it tries.
func reporterRuns(p *fact.View, f *fact.SandboxFailure) diagnose.Holding {
	if f.StillTries(p) {
		return diagnose.Is(true)
	}
	return diagnose.NotYet(diagnose.Seen(p, diagnose.Restarting))
}

func isBeforeClaims(p *fact.View, f *fact.SandboxFailure) bool { return f.BeforeClaims(p) }

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
