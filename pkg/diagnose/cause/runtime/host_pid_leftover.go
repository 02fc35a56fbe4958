package runtime

import (
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// HostPIDLeftover is a process that outlives its container, because the
// container shares its PIDs, and keeps the container's output open.
var HostPIDLeftover = &diagnose.Rule{
	Cause:  "HostPIDLeftover",
	Phases: []diagnose.Phase{diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process of a container with shared PIDs outlives it outside the pod and holds its output",
		Message: "container {which} has ended, but {process} still runs outside the pod, in the control group {cgroup}, and holds its output open{more}, so the shim does not finish",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "{container}"}, {Text: "of the pod"}},
			"more":  {{Text: " (and {alike} more like it)"}, {Text: ""}},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end it: it serves other pods, or the whole node. Find out how it got the container's output"},
				{Text: "On the node, after a look at what it is: {terminate}; the pod then terminates immediately"},
			},
		},
		Meaning: "With hostPID or shareProcessNamespace the end of a container's first process does not end the others. " +
			"The runtime kills what is left in the container's control group; a process that has moved to another group (systemd-run, a container engine inside the container, " +
			"a session of sudo or ssh) is not among them. " +
			"As long as it keeps the container's standard output or error open, the shim waits for more output.",
		Evidence: "The pod shares PIDs, containerd says that the container runs, no task of it is left in the pod's control groups, " +
			"and a process outside of them has a pipe of the container's output as its standard input, output or error, in two readings three seconds or more apart. " +
			"A command of the runtime such as runc, which writes to a pipe of its own, is left out.",
		Remedy: "Ask the program to end that process when it stops. " +
			"{end}.",
		Danger: "The process may be at work that outlives the container on purpose. A force delete leaves it running, unseen.",
	},
	Check: func(p *fact.View) diagnose.Result {
		if executing(p) {
			return diagnose.Result{} // it may hold the output of a process that was executed
		}
		var left []*evidence.Task
		for i := range p.Leftovers {
			if t := &p.Leftovers[i]; t.State != evidence.Zombie && fact.Settled(p, t) && !ofCommand(p, t) {
				left = append(left, t)
			}
		}
		if len(left) == 0 {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Container: survived(p), Confidence: diagnose.Proved, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, left[0]), Alike: len(left) - 1,
			Cgroup: trimGroup(left[0].Cgroup),
		}}
		if fact.Essential(left[0]) {
			f.Variants = []string{diagnose.Essential}
		}
		return diagnose.Found(f)
	},
}

// trimGroup returns the path of a control group below the mount point. Seen from the
// agent's cgroup namespace, it begins with /.. elements.
func trimGroup(path string) string { return strings.TrimLeft(path, "/.") }

// executing reports whether the shim says that a container runs of which the first process
// has exited, as it does while a process that was executed in it runs.
func executing(p *fact.View) bool {
	return slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Task.Status == running && c.Task.PIDGone && c.Task.Executed
	})
}

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
