package network

import (
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// patienceAgain is for how long a plugin must not have returned if the kubelet has already given up on
// stopping the sandbox once. The next run of the plugin only has to last longer than an ordinary one, and
// the first try may have failed for another reason.
const patienceAgain = fact.SlowDevice

// CNIDelHanging is a CNI plugin that does not return from DEL.
var CNIDelHanging = &diagnose.Rule{
	Cause:  "CNIDelHanging",
	Phases: phases,
	Doc: diagnose.Doc{
		Layer:   "network",
		Title:   "a CNI plugin does not return from DEL (network teardown)",
		Who:     diagnose.ByNetwork,
		Message: "the pod's network is not torn down: CNI plugin {process} has not returned from DEL since {since}",
		Phrases: map[string][]diagnose.Choice{"waits": waits, "bring": bring},
		Seen: []string{
			"containerd started {process} at {since} with CNI_COMMAND=DEL and this pod's sandbox",
			"{waits}",
			"No process of the pod's containers is left",
		},
		First: "{bring}",
		Avoid: "deleting the pod's netns or /var/lib/cni (IP conflicts)",
		Meaning: "Before the pod's sandbox is removed, containerd calls each CNI plugin of the network to undo what it did. " +
			"Most plugins call their daemon on the node, or take a lock that all of them share. " +
			"After two minutes the kubelet gives up and tries again, and containerd starts the plugin again.",

		Remedy: "On the node: ps -o pid,ppid,stat,wchan:30,comm --ppid {pid} -p {pid} shows the plugin, its children and what they wait for. " +
			"If it waits for a lock (flock), lslocks on the node shows its holder. " +
			"Usually the pod of the plugin's daemon on this node hangs: ask the network's owner, then restart that pod. " +
			"The plugin, or the kubelet's next try, then succeeds.",
		Danger: "Killing the plugin only causes the next try. " +
			"Do not force-delete the pod, and do not delete its network namespace or files below /var/lib/cni by hand. " +
			"Its address stays taken, or is given to another pod while routes still lead here.",
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Plugins},
		Of:   delPlugins,
		Facts: []diagnose.Fact[*evidence.Task]{
			{Says: "A child of containerd has CNI_COMMAND=DEL and CNI_CONTAINERID of this pod's sandbox in its environment (/proc/PID/environ)."},
			{Says: "It has not exited.", Is: diagnose.If(hasNotExited)},
			{
				Says: "It was started more than " + fact.Plugin.String() + " ago. " +
					"Ten seconds are enough if the kubelet has reported before, in an Event (FailedKillPod), that stopping the sandbox timed out. " +
					"It is then inferred until the plugin has run for a minute.",
				Is: delLasts, Partly: suspects,
			},
			{Says: "All processes of the pod's containers have exited."},
			{Says: waitsFor},
		},
		Tell: diagnose.First(tellDelHangs),
	},
}

func delPlugins(p *fact.View) []*evidence.Task { return roots(p.Plugins) }

func hasNotExited(_ *fact.View, plugin *evidence.Task) bool { return plugin.State != evidence.Zombie }

func delLasts(p *fact.View, plugin *evidence.Task) diagnose.Holding {
	limit := fact.Plugin.With(p)
	if f := p.SandboxStop; f != nil && f.TimedOut() && f.Step == fact.StepUnknown {
		limit = patienceAgain
	}
	return hasRunFor(p, plugin, limit)
}

func tellDelHangs(p *fact.View, plugin *evidence.Task) diagnose.Finding {
	return tellHanging(p, p.Plugins, plugin)
}
