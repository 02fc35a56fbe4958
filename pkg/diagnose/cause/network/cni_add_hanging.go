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
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Plugins},
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
		Evidence: []string{
			"A child of containerd has CNI_COMMAND=ADD and this pod's UID (K8S_POD_UID in CNI_ARGS) in its environment (/proc/PID/environ).",
			"It was started more than " + fact.Plugin.String() + " ago.",
			"It has not been killed: containerd kills it when the kubelet has given up.",
			"The pod has no running process, and every container of the pod that containerd knows has exited. Before 2.0, containerd " +
				"also knows the sandbox that is being created.",
			"What the plugin waits for is the system call that its last descendant sleeps in. " +
				"The line of descendants is followed as long as each process has one child.",
		},
		Remedy: "On the node: ps -o pid,ppid,stat,wchan:30,comm --ppid {pid} -p {pid} shows the plugin, its children and what they wait for. " +
			"Usually the pod of the plugin's daemon on this node hangs or is missing: bring it back. " +
			"If the plugin waits for a lock (flock), lslocks on the node shows its holder. The pod then terminates. " +
			"It also terminates when the kubelet gives up (after twice runtimeRequestTimeout) or is restarted: containerd then kills the plugin.",
		Danger: "Do not delete the pod's network namespace or files below /var/lib/cni by hand. " +
			"A force delete frees the pod's name while its network may still be set up: its address stays taken until containerd has undone that.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if p.Mirror {
			return diagnose.Result{} // the kubelet does not stop a static pod because of its object
		}
		found := hanging(p, p.NetworkSetup, fact.Plugin.With(p), func(t *evidence.Task) bool { return fact.PluginLives(t) && !unaware(p, t) })
		for i := range found.Found {
			o := &found.Found[i].Objects
			o.Until = o.Since.Add(fact.SandboxTimeout)
			// containerd may not know the containers that ran any more, as after crictl rmp.
			if p.Phase != "Pending" || slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
				return c.ID != "" && (c.Kind != evidence.Sandbox || c.State != evidence.StateCreated) || c.Exit != nil
			}) {
				found.Found[i].Variants = []string{began}
			}
		}
		return found
	},
}

// unaware reports whether a plugin may have been started by a kubelet that does not know of the
// deletion, because it cannot reach the API server. Then that is what the pod waits for.
func unaware(p *fact.View, plugin *evidence.Task) bool {
	return p.Node.Ready.Unheard() && plugin.Probe != nil && plugin.Probe.Started.After(p.DeletionRequested)
}
