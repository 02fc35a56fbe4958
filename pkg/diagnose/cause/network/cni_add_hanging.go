package network

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// began is the variant of CNIAddHanging for a pod that has run before: its sandbox is re-created.
const began = "Began"

// CNIAddHanging is a CNI plugin that does not return from ADD. The pod was deleted while its sandbox
// was being created, which the kubelet completes before it handles the deletion.
//
// Seen with containerd 2.4: the pod has disappeared two seconds after the plugin was killed. A child of the plugin that
// lives on and holds its output keeps containerd from undoing the setup, and does not hold the pod.
var CNIAddHanging = &diagnose.Rule{
	Cause:  "CNIAddHanging",
	Phases: []diagnose.Phase{diagnose.Startup},
	Doc: diagnose.Doc{
		Layer: "network",
		Title: "a CNI plugin does not return from ADD (network setup)",
		Who:   diagnose.ByNetwork,
		Message: "network setup hangs: CNI plugin {process} has not returned from ADD since {since}. " +
			"The kubelet gives up after 4m (default), by {until}; the pod can then end",
		Phrases: map[string][]diagnose.Choice{
			"runs": {
				{Variant: began, Text: "No program of the pod runs: its sandbox is being re-created"},
				{Text: "No program of the pod has run yet"},
			},
			"waits": waits,
			"bring": bring,
		},
		Seen: []string{
			"The pod was deleted during its network setup",
			"containerd started {process} at {since} with CNI_COMMAND=ADD and this pod's UID",
			"{waits}",
			"{runs}",
		},
		First: "wait until {until}. If still stuck: {bring}",
		Avoid: "deleting the pod's netns or /var/lib/cni (IP leaks)",
		Meaning: "Before containerd starts a pod's sandbox, it runs each CNI plugin of the network, one after the other. " +
			"Most plugins call their daemon on the node, or take a lock that all of them share. " +
			"The kubelet completes a start before it handles the deletion. After four minutes it gives up, and the pod terminates. " +
			"The plugin is not started again for this pod. " +
			"Other pods that start on this node usually hang there too.",

		Remedy: "On the node: ps -o pid,ppid,stat,wchan:30,comm --ppid {pid} -p {pid} shows the plugin, its children and what they wait for. " +
			"Usually the pod of the plugin's daemon on this node hangs or is missing: bring it back. " +
			"If the plugin waits for a lock (flock), lslocks on the node shows its holder. The pod then terminates. " +
			"It also terminates when the kubelet gives up (after twice runtimeRequestTimeout) or is restarted: containerd then kills the plugin.",
		Danger: "Do not delete the pod's network namespace or files below /var/lib/cni by hand. " +
			"A force delete frees the pod's name while its network may still be set up: its address stays taken until containerd has undone that.",
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Plugins},
		Of:   addPlugins,
		Facts: []diagnose.Fact[*evidence.Task]{
			{Says: "A child of containerd has CNI_COMMAND=ADD and this pod's UID (K8S_POD_UID in CNI_ARGS) in its environment (/proc/PID/environ)."},
			// The kubelet does not stop a static pod because of its object.
			{Says: "The pod is no mirror pod of a static pod.", Pod: diagnose.IfPod(isNoMirror)},
			{Says: "It has not been killed: containerd kills it when the kubelet has given up.", Is: diagnose.If(pluginLives)},
			{
				Says: "The kubelet that had it started knew of the deletion or was asked for it later: " +
					"the API server hears from the kubelet, or the plugin is older than the deletion.",
				Is: diagnose.If(isOfAware),
			},
			{Says: "It was started more than " + fact.Plugin.String() + " ago.", Is: addLasts, Partly: suspects},
			{Says: "The pod has no running process, and every container of the pod that containerd knows has exited. Before 2.0, containerd " +
				"also knows the sandbox that is being created."},
			{Says: waitsFor},
		},
		Tell: diagnose.First(tellAddHangs),
	},
}

func addPlugins(p *fact.View) []*evidence.Task { return roots(p.NetworkSetup) }

func isNoMirror(p *fact.View) bool { return !p.Mirror }

func pluginLives(_ *fact.View, plugin *evidence.Task) bool { return fact.PluginLives(plugin) }

func isOfAware(p *fact.View, plugin *evidence.Task) bool { return !unaware(p, plugin) }

func addLasts(p *fact.View, plugin *evidence.Task) diagnose.Holding {
	return hasRunFor(p, plugin, fact.Plugin.With(p))
}

func tellAddHangs(p *fact.View, plugin *evidence.Task) diagnose.Finding {
	f := tellHanging(p, p.NetworkSetup, plugin)
	f.Objects.Until = f.Objects.Since.Add(fact.SandboxTimeout)
	// containerd may not know the containers that ran any more, as after crictl rmp.
	if p.Phase != "Pending" || slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.ID != "" && (c.Kind != evidence.Sandbox || c.State != evidence.StateCreated) || c.Exit != nil
	}) {
		f.Variants = []string{began}
	}
	return f
}

// unaware reports whether a plugin may have been started by a kubelet that does not know of the
// deletion, because it cannot reach the API server. Then that is what the pod waits for.
func unaware(p *fact.View, plugin *evidence.Task) bool {
	return p.Node.Ready.Unheard() && plugin.Probe != nil && plugin.Probe.Started.After(p.DeletionRequested)
}
