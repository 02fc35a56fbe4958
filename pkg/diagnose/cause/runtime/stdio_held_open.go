package runtime

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// inside is the variant of a process that is in the control groups of the pod, and
// dying that of one that has been killed.
const (
	inside = "Inside"
	dying  = "Dying"
)

// heldFor is for how long a process must have held the output of a container: a process
// that copies the last output of a container, or was started with it, takes less.
const heldFor = 45 * time.Second

// StdioHeldOpen is a container that has ended, of which another process keeps the output
// open.
//
// The shim copies output until nobody can write to its pipe any more
// (cmd/containerd-shim-runc-v2/process/io.go, copyPipes), and closes the FIFO behind it
// then. containerd waits for that, without a deadline, before it has the shim delete the
// task (client/task.go, Delete).
var StdioHeldOpen = &diagnose.Rule{
	Cause:  "StdioHeldOpen",
	Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.Kill, diagnose.Runtime},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers, evidence.Holders},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a process holds the output of an exited container open",
		Message: "{which} has exited, but {process}, {whose}, holds its output open{more}, so containerd cannot record the exit",
		Phrases: map[string][]diagnose.Choice{
			"which": {{Text: "container {container}"}, {Text: "a container of the pod"}},
			"whose": {{Variant: inside, Text: "in no running container"}, {Text: "not part of the pod"}},
			"more":  {{Text: " (and {alike} more like it)"}, {Text: ""}},
			"step": {
				{Variant: diagnose.Essential, Text: "find out how {process} got the output; do not end it"},
				{Variant: dying, Text: "on the node: cat /proc/{pid}/stack shows why it has not exited since its SIGKILL; repair that"},
				{Text: "on the node: systemctl status {pid} shows whose it is; ask its owner to stop it"},
			},
			"end": {
				{Variant: diagnose.Essential, Text: "Do not end {process}: it serves other pods, or the whole node. Find out how it got the container's output. " +
					"Restart its service when the other pods allow it"},
				{Variant: dying, Text: "{process} was killed but has not exited. On the node: cat /proc/{pid}/stack shows what it waits for. Repair that"},
				{Text: "On the node: find out what {process} does, and whose it is. Once its owner agrees: {terminate}. " +
					"The pod terminates when all such processes have exited or closed the output"},
			},
		},
		Meaning: "A container writes its output to a pipe, from which its shim copies it for containerd. The pipe ends when nobody can write to it any more. " +
			"The container's processes have exited, but another process has the pipe open: one that has opened /proc/PID/fd/1 of the container, that was started from a shell in it, or that was sent the file. " +
			"containerd waits for the end of the output before it notes that the container has ended, and the kubelet waits for that.",
		Evidence: []string{"The pod is past its deadline. By containerd's record the container runs; its shim says that it has stopped, and the kernel shows no process of it, nor of any other container of the pod. " +
			"The shim still has the container's output open. " +
			"A process has been able to write to a pipe that the shim reads (/proc/PID/fd) for 45 seconds or more; it is not the shim, containerd, the sandbox or a command of the runtime such as runc. " +
			"While the shim has the output of a process open that was executed in a container, nothing is said: the pipe may be that one's. " +
			"A container of another runtime than io.containerd.runc.v2 is not judged."},
		Seen: []string{
			"containerd still records the container as running, but the shim says stopped, and no process of the pod's containers is left",
			"{process} can write to a pipe that the shim reads",
		},
		First:  "{step}",
		Avoid:  "killing the shim (loses its output)",
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

// ofCommand reports whether a task is, or may be, of a command of the runtime that has not
// returned: the pipe that it writes to is that of its own output, which its shim reads.
func ofCommand(p *fact.View, t *evidence.Task) bool {
	if fact.Missing(p, evidence.RuntimeCommands) && slices.ContainsFunc(p.Parents, func(s evidence.Task) bool { return s.PID == t.PPID }) {
		return true
	}
	return slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		return !c.Left && slices.ContainsFunc(c.Tasks, func(o evidence.Task) bool { return o.PID == t.PID })
	})
}

// undrained returns the container of which the shim copies output although it has ended,
// and whether there is one; "" when there are several: one pipe is like the other.
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

// ofPod reports whether a task is in the pod's control groups.
func ofPod(p *fact.View, t *evidence.Task) bool {
	return t.Owner != "" && (t.Owner == p.UID || t.Owner == p.RuntimeUID)
}
