package network

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// missing is the family of a plugin without a program, notStarted that of a plugin whose program
// containerd could not start. terminating is the variant of a plugin whose daemon's pod is being deleted.
const (
	missing     = "PluginMissing"
	notStarted  = "PluginNotStarted"
	terminating = "DaemonTerminating"
)

// ifWell is what is done about a plugin that fails where its daemon's pod is well, or has none.
const ifWell = ". If Ready or none: ask the plugin's owner about the error"

// CNIDelFailing is a CNI plugin that fails at DEL again and again.
var CNIDelFailing = &diagnose.Rule{
	Cause:  "CNIDelFailing",
	Phases: phases,
	Doc: diagnose.Doc{
		Layer:   "network",
		Title:   "a CNI plugin fails to tear down the pod's network",
		Who:     diagnose.ByNetwork,
		Message: "the pod's network cannot be torn down: {who} (CNI DEL): {error}{its}",
		Phrases: map[string][]diagnose.Choice{"who": {
			{Variant: missing, Text: "the program of CNI plugin {plugin} is missing"},
			{Variant: notStarted, Text: "containerd could not start CNI plugin {plugin}"},
			{Text: "CNI plugin {plugin} fails"},
			{Text: "a CNI plugin fails"},
		}, "its": {
			{Variant: missing, Text: ""},
			{Variant: notStarted, Text: ""},
			{Variant: terminating, Text: ". Its pod on this node, {daemon}, is itself terminating"},
			{Text: ". Its pod on this node, {daemon}, is not ready"},
			{Text: ""},
		}, "bring": {
			{Variant: terminating, Text: "describe the plugin's pod {daemon} (cluster rights): its Events show what holds it. " +
				"If its DaemonSet was deleted: ask the network's owner"},
			{Text: "describe the plugin's pod {daemon} (cluster rights): its Events and its log show what to repair"},
			{Text: itsPodHere + ifWell}, {Text: itsPod + ifWell},
		}},
		Seen: []string{
			"The kubelet has reported this error at least twice since the deletion, over eight seconds or more (Event FailedKillPod)",
			"The sandbox has exited, no process of the pod's containers is left, and containerd records all of them as exited",
		},
		First: "{bring}",
		Avoid: "deleting the pod's netns or /var/lib/cni (IP conflicts)",
		Meaning: "Before the pod's sandbox is removed, containerd calls each CNI plugin of the network to undo what it did. " +
			"Most plugins call their daemon on the node (calico-node, cilium, aws-node, multus). " +
			"They fail when it is down, or no longer allowed to talk to the API server. " +
			"The pod stays until every plugin has succeeded.",

		Remedy: "Find what the error is about. Usually the plugin's daemon pod on this node is not ready: {bring}. " +
			"The kubelet retries every few seconds: its next try succeeds, and nothing else has to be done.",
		Danger: "Do not force-delete the pod, and do not delete its network namespace or files below /var/lib/cni by hand. " +
			"Its address stays taken, or is given to another pod while routes still lead here.",
		Families: []diagnose.Family{{
			Name: missing,
			Who:  diagnose.ByNetwork, NotApp: true,
			Meaning: "The network's configuration names a plugin whose program is not in containerd's directory for plugins. " +
				"It was removed or renamed, for example by an upgrade of the network or of the node.",
			First: "on the node, as root: put {plugin} back into the directory that the error names. The network's DaemonSet or a package has it",
			Remedy: "On the node: put {plugin} back into that directory; the plugin's DaemonSet or a package installs it. The kubelet " +
				"retries every few seconds, and its next try succeeds.",
		}, {
			Name: notStarted,
			Who:  diagnose.ByNode, NotApp: true,
			Meaning: "containerd has found the plugin's program, but could not start it. " +
				"containerd has reached a limit on processes or on open files, or the file is damaged or cannot be executed. " +
				"The plugin has done nothing.",
			First: "if 'too many open files' or 'resource temporarily unavailable': raise that limit of containerd (Fix). " +
				"If not: reinstall the plugin",
			Avoid: "restarting containerd now (it may not start)",
			Remedy: "On the node: read the error. \"resource temporarily unavailable\" is a limit on processes: of containerd's cgroup " +
				"(TasksMax of its unit), or of the node (kernel.pid_max, kernel.threads-max). " +
				"\"too many open files\" is containerd's limit on open files (LimitNOFILE of its unit). systemctl show containerd -p " +
				"TasksCurrent,TasksMax,LimitNOFILE shows its limits. " +
				"For any other error check the program's file. The kubelet retries every few seconds, and its next try succeeds.",
			Danger: "Do not restart containerd while such a limit is exhausted: it may not get its threads and files as it starts. " +
				"Do not force-delete the pod: its network stays on the node, and its address stays taken.",
		}},
	},
	By: diagnose.By[*fact.SandboxFailure]{
		From: needs,
		Of:   failures,
		Facts: slices.Concat(fails, []diagnose.Fact[*fact.SandboxFailure]{
			{Says: "containerd has a network configuration. Without one it is CNINotInitialized.", Is: diagnose.If(initialized)},
			{
				Says: "The error is no timeout of the kubelet's request or of the plugin (context deadline exceeded, signal: killed). " +
					"A timeout that the plugin itself prints about its own request counts.",
				Is: diagnose.If(hasAnswer),
			},
			{Says: "It is inferred if the error names no plugin."},
		}),
		Tell: diagnose.First(tellDelFails),
	},
}

func initialized(p *fact.View, f *fact.SandboxFailure) bool { return !uninitialized(p, f) }

func hasAnswer(_ *fact.View, f *fact.SandboxFailure) bool { return !f.TimedOut() }

func tellDelFails(p *fact.View, f *fact.SandboxFailure) diagnose.Finding {
	out := diagnose.Finding{Confidence: diagnose.Proved, Objects: diagnose.Objects{Plugin: f.Plugin, Error: f.Error}}
	if f.Plugin == "" {
		out.Confidence = diagnose.Inferred // containerd itself may have failed on its way to the plugins
	}
	if strings.HasPrefix(f.Error, "failed to find plugin ") && f.Plugin != "" {
		out.Family = missing
	} else if unstarted(f.Error) && f.Plugin != "" {
		out.Family = notStarted
	} else if d := daemon(p, f); d != nil {
		out.Objects.Daemon = d.Pod
		if d.Terminating {
			out.Variants = []string{terminating}
		}
	}
	return out
}

// unstarted reports whether an error is that of a plugin's program that could not be started. The CNI library
// uses these words for how the program's start failed, or how it exited, if the program has printed nothing
// (pluginErr, pkg/invoke/raw_exec.go in github.com/containernetworking/cni).
func unstarted(text string) bool {
	err, ok := strings.CutPrefix(text, "netplugin failed with no error message: ")
	return ok && (strings.HasPrefix(err, "fork/exec ") || fact.Exhausted(err) != "")
}
