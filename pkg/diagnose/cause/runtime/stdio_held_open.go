package runtime

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// inside is the variant of a process that is in the cgroups of the pod, and dying that of one
// that has been killed.
const (
	inside = "Inside"
	dying  = "Dying"
)

// heldFor is how long a process must have held the output of a container. A process that
// copies the last output of a container, or was started with it, holds it for less.
const heldFor = 45 * time.Second

// StdioHeldOpen is a container that has exited, but whose output another process keeps open.
//
// The shim copies output until the last writer of its pipe has closed it
// (cmd/containerd-shim-runc-v2/process/io.go, copyPipes), then closes the FIFO behind it.
// containerd waits for that, without a deadline, before it has the shim delete the task
// (client/task.go, Delete).
var StdioHeldOpen = &diagnose.Rule{
	Cause:  "StdioHeldOpen",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Holders},
	Partly: []evidence.Source{evidence.Shims},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process holds the output of an exited container open",
		Who:     diagnose.ByNode,
		Message: "{which} has exited, but {process} {runs} and holds its output open{more}, so containerd waits",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "container {container}"}, {Text: "a container of the pod"}},
			"runs": {
				{Variant: dying, Text: "has not finished exiting"},
				{Variant: inside, Text: "still runs in the pod's cgroups"},
				{Text: "still runs outside the pod"},
			},
			"more": {{Text: " (and {alike} more like it)"}, {Text: ""}},
			"step": {
				{Variant: diagnose.Essential, Text: closesOutput},
				{Variant: dying, Text: "on the node, as root: timeout 5 cat /proc/{pid}/task/*/stack shows what {comm} waits for. " +
					"If a driver or file system, ask its owner. If unclear: see dmesg"},
				{Text: "{askowner}"},
			},
			"harm": spareHolder,
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end {process}: it serves other pods, or the whole node. Find out how it got the container's output. " +
					"Restart its service when the other pods allow it"},
				{Variant: dying, Text: "{process} has not finished exiting. On the node: timeout 5 cat /proc/{pid}/task/*/stack shows what it waits for. Repair that"},
				{Text: "On the node: find out what {process} does, and whose it is. Once its owner agrees: {terminate}. " +
					"The pod terminates when all such processes have exited or closed the output"},
			},
		},
		Meaning: "A container writes its output to a pipe, from which its shim copies it for containerd. The pipe ends when its last writer has " +
			"closed it. The container's processes have exited, but another process has the pipe open. It has opened /proc/PID/fd/1 of the " +
			"container, was started from a shell in it, or was sent the file. containerd waits for the end of the output before it records the " +
			"exit. The kubelet waits for that.",
		Evidence: []string{
			"The pod is past its deadline, and containerd's CRI status says that the container runs.",
			"The shim says that the container has stopped. The kernel shows no process of it, nor of any other container of the pod.",
			"The shim still has the container's output open.",
			"For 45 seconds or more, a process has been able to write to a pipe that the shim reads (/proc/PID/fd).",
			"This process is not the shim, containerd, the sandbox or a runtime command such as runc.",
			"Not reported while the shim has the output of an exec in a container open: the pipe may belong to that.",
			"Not reported for a runtime other than io.containerd.runc.v2.",
		},
		Seen: []string{
			"containerd still records the container as running, but the shim says stopped, and no process of the pod's containers is left",
			"{process} can write to a pipe that the shim reads",
		},
		First:  "{step}",
		Avoid:  "{harm}",
		Remedy: "{end}.",
		Danger: "Do not end the process unasked: it may be at work. Do not kill the shim: that loses the last output of the pod's containers. " +
			"A force delete leaves the pod's sandbox, addresses and volumes on the node with no API object tracking them.",
	},
	Check: func(p *fact.View) diagnose.Result {
		name, some := undrained(p)
		if !some || p.Overdue() < 0 || ownShim(p) == nil {
			return diagnose.Result{}
		}
		var first *evidence.OutputHolder
		held := 0
		for i := range p.OutputHolders {
			h := &p.OutputHolders[i]
			if h.Since.IsZero() || p.Time.Sub(h.Since) < heldFor || ofCommand(p, &h.Task) {
				continue
			}
			held++
			if first == nil || h.Since.Before(first.Since) {
				first = h
			}
		}
		if first == nil {
			return diagnose.Result{}
		}
		f := diagnose.Finding{Container: name, Confidence: diagnose.Proved, Objects: diagnose.Objects{
			Process: diagnose.ProcessOf(p, &first.Task), Alike: held - 1,
		}}
		switch {
		case fact.Essential(&first.Task):
			f.Variants = append(f.Variants, diagnose.Essential)
		case fact.Dying(&first.Task):
			f.Variants = append(f.Variants, dying)
		}
		if ofPod(p, &first.Task) {
			f.Variants = append(f.Variants, inside)
			f.Objects.Process.PodUID, f.Objects.Process.Pod = "", ""
		}
		return diagnose.Found(f)
	},
}

// ofCommand reports whether a task belongs, or may belong, to a runtime command that has not
// returned. The pipe that it writes to is that of its own output, which the shim reads.
func ofCommand(p *fact.View, t *evidence.Task) bool {
	if fact.Missing(p, evidence.RuntimeCommands) && slices.ContainsFunc(p.Parents, func(s evidence.Task) bool { return s.PID == t.PPID }) {
		return true
	}
	return slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		return !c.Left && slices.ContainsFunc(c.Tasks, func(o evidence.Task) bool { return o.PID == t.PID })
	})
}

// undrained returns the container that has exited but whose output the shim still copies,
// and whether there is one; "" when there are several: their pipes cannot be told apart.
func undrained(p *fact.View) (name string, some bool) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Kind == evidence.Sandbox || c.Runtime != fact.RuncV2 || c.State != evidence.StateRunning ||
			c.Task.Status != stopped || !c.Task.PIDGone || c.Task.Drained {
			continue
		}
		if some {
			return "", true
		}
		name, some = c.Name, true
	}
	return name, some
}

// ofPod reports whether a task is in the pod's cgroups.
func ofPod(p *fact.View, t *evidence.Task) bool {
	return t.Owner != "" && (t.Owner == p.UID || t.Owner == p.RuntimeUID)
}
