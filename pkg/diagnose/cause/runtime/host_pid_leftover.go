package runtime

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// HostPIDLeftover is a process that outlives its container and keeps the
// container's output open. It can, because the container shares its PIDs.
var HostPIDLeftover = &diagnose.Rule{
	Cause:  "HostPIDLeftover",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process that left the pod holds a container's output open",
		Who:     diagnose.ByNode,
		Message: "container {which} has exited, but {process} still runs outside the pod and holds its output open{more}, so containerd waits",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "{container}"}, {Text: "of the pod"}},
			"more":  {{Text: " (and {alike} more like it)"}, {Text: ""}},
			"step": {
				{Variant: diagnose.Essential, Text: closesOutput},
				{Text: "{askowner}"},
			},
			"harm": spareHolder,
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end {process}: it serves other pods, or the whole node. Find out how it got the container's output"},
				{Text: "On the node: find out what {process} does, and whose it is. Once its owner agrees: {terminate}. The pod then terminates. " +
					"So that it does not come back, let the program end that process when it stops"},
			},
		},
		Meaning: "With hostPID or shareProcessNamespace, the other processes of a container do not end when its first process exits. The runtime " +
			"kills what is left in the container's cgroup. A process that has moved to another cgroup survives that (systemd-run, a container " +
			"engine inside the container, a session of sudo or ssh). As long as it keeps the container's standard output or error open, the " +
			"shim waits for more output.",
		Seen: []string{
			"The CRI status says that a container of the pod runs, but its cgroup has no process left",
			"{process} is in cgroup {cgroup} and has a pipe of the container's output open",
		},
		First:  "{step}",
		Avoid:  "{harm}",
		Remedy: "{end}.",
		Danger: "Do not end the process unasked: it may do work that outlives the container on purpose. " +
			"A force delete leaves it running with no API object tracking it.",
	},
	By: diagnose.By[*evidence.Task]{
		From: []evidence.Source{evidence.Processes, evidence.Containers, evidence.Shims},
		Of:   leftovers,
		Facts: []diagnose.Fact[*evidence.Task]{
			{Says: "The pod uses hostPID or shareProcessNamespace: only then such processes are looked for."},
			{Says: "containerd says that the container runs, but no task of it is left in the pod's cgroups."},
			{Says: "A process outside these cgroups has a pipe of the container's output as its standard input, output or error."},
			{Says: "The process is not a zombie (state Z).", Is: diagnose.If(lives)},
			{
				Says: "It is no runtime command such as runc, which writes to a pipe of its own.",
				Is:   diagnose.If(ofNoCommand), Partly: []evidence.Source{evidence.RuntimeCommands},
			},
			{
				Says: "The shim has the output of no exec open in a container whose first process has exited: the pipe may belong to that.",
				Pod:  diagnose.IfPod(noneExecuted),
			},
			{Says: "Two readings three seconds or more apart show the same.", Is: diagnose.IfLater(fact.Settled, diagnose.Slow)},
		},
		Tell: tellLeftovers,
	},
}

func leftovers(p *fact.View) (out []*evidence.Task) {
	for i := range p.Leftovers {
		out = append(out, &p.Leftovers[i])
	}
	return out
}

func lives(_ *fact.View, t *evidence.Task) bool { return t.State != evidence.Zombie }

func ofNoCommand(p *fact.View, t *evidence.Task) bool { return !ofCommand(p, t) }

// noneExecuted reports whether there is no container that runs by the shim's answer and whose first process has exited. The shim says
// that it runs as long as a process started by an exec does.
func noneExecuted(p *fact.View) bool {
	return !slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Task.Status == running && c.Task.PIDGone && c.Task.Executed
	})
}

func tellLeftovers(p *fact.View, left []*evidence.Task) []diagnose.Finding {
	f := diagnose.Finding{Container: survived(p), Confidence: diagnose.Proved, Objects: diagnose.Objects{
		Process: diagnose.ProcessOf(p, left[0]), Alike: len(left) - 1,
		Cgroup: trimGroup(left[0].Cgroup),
	}}
	if fact.Essential(left[0]) {
		f.Variants = []string{diagnose.Essential}
	}
	return []diagnose.Finding{f}
}

// The first step about a process outside the pod that the pod waits for, that about one which the node needs, and what to avoid of both.
const (
	closesOutput = "ask the owner of {program} to make it close the container's output. If it cannot: Fix"
)

var spareHolder = []diagnose.Choice{
	{Variant: diagnose.Essential, Text: "ending {comm} (other pods or the node need it)"},
	{Variant: dying, Text: "killing the shim (loses output)"},
	{Text: "ending {comm} unasked, killing the shim (can lose data)"},
}

// trimGroup returns the path of a cgroup below the mount point. Seen from the
// agent's cgroup namespace, it begins with /.. elements.
func trimGroup(path string) string { return strings.TrimLeft(path, "/.") }

// survived names the container that containerd calls running although no task
// of it is left, "" when there are several: one shim holds the output of all.
func survived(p *fact.View) string {
	name := ""
	for _, c := range p.Containers {
		if c.Kind == evidence.Sandbox || c.State != evidence.StateRunning ||
			slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == c.ID }) {
			continue
		}
		if name != "" {
			return ""
		}
		name = c.Name
	}
	return name
}
