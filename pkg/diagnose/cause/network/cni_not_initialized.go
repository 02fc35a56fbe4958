package network

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// CNINotInitialized is a node without a network configuration.
var CNINotInitialized = &diagnose.Rule{
	Cause:  "CNINotInitialized",
	Phases: phases,
	Doc: diagnose.Doc{
		Layer: "network",
		Title: "containerd has no CNI configuration to tear down the network",
		Who:   diagnose.ByNetwork, NotApp: true,
		Message: "the pod's network cannot be torn down: containerd has no CNI configuration ({error})",
		Seen: []string{
			"The kubelet has reported {error} at least twice since the deletion, over eight seconds or more (Event FailedKillPod)",
			"containerd reports that its network is not ready (NetworkReady of the CRI)",
			"No process of the pod's containers is left",
		},
		First: "get the network's DaemonSet pod on this node Ready (kubectl get pods -A -o wide; cluster rights). " +
			"If removed: install the same again. If Ready: use Fix",
		Avoid: "another network's file in /etc/cni/net.d (IP leaks)",
		Meaning: "containerd tears down a pod's network with the configuration that is then in /etc/cni/net.d. " +
			"Without one, pods with their own network can neither terminate nor start on this node. " +
			"The usual reason: the network's DaemonSet was removed before the pods, or its pod removes the configuration when it exits.",

		Remedy: "On the node: ls /etc/cni/net.d shows which configuration there is. Bring the network's DaemonSet back to this node: it " +
			"writes its configuration there. " +
			"The kubelet retries every few seconds, and its next try succeeds. " +
			"containerd notices a file that is written or renamed in that directory, not one that is moved there from elsewhere: copy it " +
			"instead, or restart containerd.",
		Danger: "Do not force-delete the pod, and do not put a configuration of another network there. " +
			"The plugins of another network do not free what the old ones gave, and the pod's address stays taken.",
	},
	By: diagnose.By[*fact.SandboxFailure]{
		From: needs,
		Of:   failures,
		Facts: slices.Concat(fails, []diagnose.Fact[*fact.SandboxFailure]{
			{Says: "The reported error is that CNI is not initialized (cni plugin not initialized).", Is: diagnose.If(uninitialized)},
			{
				Says: "containerd itself reports now that its network is not ready (the condition NetworkReady of the CRI).",
				Pod:  networkIsDown, From: []evidence.Source{evidence.Containerd},
			},
		}),
		Tell: diagnose.First(tellNotInitialized),
	},
}

// networkIsDown answers whether containerd says that its network is not ready.
func networkIsDown(p *fact.View) diagnose.Holding {
	switch p.Node.Containerd.Network {
	case "":
		return diagnose.NotRead(evidence.Containerd)
	case evidence.NetworkReady:
		return diagnose.Is(false)
	}
	return diagnose.Is(true)
}

func tellNotInitialized(_ *fact.View, f *fact.SandboxFailure) diagnose.Finding {
	return diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Error: f.Error}}
}
