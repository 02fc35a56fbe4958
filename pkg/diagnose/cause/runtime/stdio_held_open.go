package runtime

import (
	"fmt"
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
	By: diagnose.By[heldOutput]{
		From: []evidence.Source{evidence.Containers, evidence.Holders},
		Of:   heldOutputs,
		Facts: []diagnose.Fact[heldOutput]{
			{Says: "The container's runtime is io.containerd.runc.v2.", Is: diagnose.If(heldUnderRunc)},
			{Says: "containerd's CRI status says that the container runs.", Is: diagnose.If(heldSaidToRun)},
			{Says: "The shim says that the container has stopped.", Is: diagnose.If(heldHasStopped), Partly: []evidence.Source{evidence.Shims}},
			{
				Says: "No process has the PID of the container's first process any more.",
				Is:   diagnose.If(heldIsGone), From: []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.Shims},
			},
			{Says: "The shim still has the container's output open.", Is: diagnose.If(heldIsOpen), From: []evidence.Source{evidence.Suspects}},
			{Says: "The pod's shim is known, and it is the only one.", Pod: diagnose.IfPod(hasOwnShim), From: []evidence.Source{evidence.Processes}},
			{
				Says: "A process that is not part of a runtime command, such as runc, can write to a pipe that the shim reads (/proc/PID/fd).",
				Is:   isNoCommand,
			},
			{Says: "It has been able to for 45 seconds or more.", Is: isHeldForLong},
			{Says: "The shim, containerd and the sandbox do not count as such a process."},
			{Says: "Such processes are searched for when the kernel shows no process of any container of the pod. " +
				"They are not searched for while the shim has the output of an exec in a container open: the pipe may belong to that."},
		},
		Tell: tellHeldOpen,
	},
}

// A heldOutput is a container and a process that can write to a pipe of its shim.
type heldOutput struct {
	of *evidence.Container
	by *evidence.OutputHolder
}

// Named says which container and process they are.
func (h heldOutput) Named(*fact.View) string {
	return fmt.Sprintf("container %.63q, process %.40q (PID %d)", h.of.Name, h.by.Comm, h.by.PID)
}

func heldOutputs(p *fact.View) (out []heldOutput) {
	for _, c := range programs(p) {
		for i := range p.OutputHolders {
			out = append(out, heldOutput{c, &p.OutputHolders[i]})
		}
	}
	return out
}

func heldUnderRunc(_ *fact.View, h heldOutput) bool { return h.of.Runtime == fact.RuncV2 }

func heldSaidToRun(_ *fact.View, h heldOutput) bool { return h.of.State == evidence.StateRunning }

func heldHasStopped(_ *fact.View, h heldOutput) bool { return h.of.Task.Status == stopped }

func heldIsGone(_ *fact.View, h heldOutput) bool { return h.of.Task.PIDGone }

func heldIsOpen(_ *fact.View, h heldOutput) bool { return !h.of.Task.Drained }

func hasOwnShim(p *fact.View) bool { return ownShim(p) != nil }

// isNoCommand answers whether a process belongs to no runtime command that has not returned. The pipe that such a command writes to is that of
// its own output, which the shim reads. If commands could not be read, each child of the shim may be one.
func isNoCommand(p *fact.View, h heldOutput) diagnose.Holding {
	switch {
	case !ofCommand(p, &h.by.Task):
		return diagnose.Is(true)
	case fact.Missing(p, evidence.RuntimeCommands):
		return diagnose.NotRead(evidence.RuntimeCommands)
	}
	return diagnose.Is(false)
}

// isHeldForLong waits for nothing until then: one such process after the other may come and go.
func isHeldForLong(p *fact.View, h heldOutput) diagnose.Holding {
	return diagnose.IsOr(diagnose.Lasted(p, h.by.Since, heldFor, diagnose.Slow).Yes(), diagnose.Seen(p, diagnose.Slow))
}

// tellHeldOpen tells of the process that has held output open for the longest time. Of several containers, the pipes cannot be told apart.
func tellHeldOpen(p *fact.View, found []heldOutput) []diagnose.Finding {
	first, of := found[0], slices.IndexFunc(found, func(h heldOutput) bool { return h.of != found[0].of })
	name := ""
	if of < 0 {
		name, of = first.of.Name, len(found)
	}
	for _, h := range found[:of] {
		if h.by.Since.Before(first.by.Since) {
			first = h
		}
	}
	t := &first.by.Task
	f := diagnose.Finding{Container: name, Confidence: diagnose.Proved, Objects: diagnose.Objects{Process: diagnose.ProcessOf(p, t), Alike: of - 1}}
	switch {
	case fact.Essential(t):
		f.Variants = append(f.Variants, diagnose.Essential)
	case fact.Dying(t):
		f.Variants = append(f.Variants, dying)
	}
	if ofPod(p, t) {
		f.Variants = append(f.Variants, inside)
		f.Objects.Process.PodUID, f.Objects.Process.Pod = "", ""
	}
	return []diagnose.Finding{f}
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

// ofPod reports whether a task is in the pod's cgroups.
func ofPod(p *fact.View, t *evidence.Task) bool {
	return t.Owner != "" && (t.Owner == p.UID || t.Owner == p.RuntimeUID)
}
