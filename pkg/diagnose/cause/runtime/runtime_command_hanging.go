package runtime

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The families of RuntimeCommandHanging, and its variants: the pod's sandbox, a container that has not been started yet,
// and one that is inside its grace period.
const (
	leftBehind   = "LeftBehind"  // the command has exited, and its child holds its output
	blocked      = "Blocked"     // a thread of it is in state D
	interrupted  = "Interrupted" // containerd kills the command, and runs it again
	aboutSandbox = "Sandbox"
	beforeStart  = "BeforeStart"
	inGrace      = "InGrace"
	// sandboxBeforeStart is for a sandbox that is yet to be started.
	sandboxBeforeStart = "SandboxBeforeStart"
)

// How long a command must not have returned, on any node, if it sleeps without moving and no device or CPU is the reason.
// The shorter time is for a new attempt: the kubelet has reported that stopping the sandbox timed out, or a command
// before this one was seen to hang. That one was killed then.
const (
	commandPatienceAsleep = 100 * time.Second
	commandPatienceAgain  = fact.SlowDevice
)

// RuntimeCommandHanging is a shim that waits for a command of the runtime, such as runc kill.
//
// A command of a start that has used up its time is killed. Even one that SIGKILL does not end then holds the pod no
// longer (seen with containerd 2.4).
var RuntimeCommandHanging = &diagnose.Rule{
	Cause:  "RuntimeCommandHanging",
	When:   diagnose.InGraceAndAfter,
	Phases: []diagnose.Phase{diagnose.Startup, diagnose.PreStop, diagnose.StopSignal, diagnose.Kill, diagnose.Runtime, diagnose.Sandbox, diagnose.PhaseUnknown},
	Needs:  []evidence.Source{evidence.Processes, evidence.Suspects, evidence.Containers},
	Partly: []evidence.Source{evidence.RuntimeCommands},
	Doc: diagnose.Doc{
		Layer:   "runtime",
		Title:   "a runtime command, such as runc kill, does not return",
		Who:     diagnose.ByNode,
		Message: "{held}{waits}{then}",
		Phrases: map[string][]diagnose.Choice{
			"what": {
				{Variant: aboutSandbox, Text: "the pod's sandbox"},
				{Text: "container {container}"},
				{Text: "the pod"},
			},
			"held": {
				{Variant: leftBehind, Text: "the pod's shim is blocked: {process}, left by a runtime command at {since}, holds that command's output open"},
				{Variant: interrupted, Text: "the shim cannot delete {what}: {program} {command} does not return, so containerd kills it each time after 10s"},
				{Text: "the shim waits for {program} {command} (PID {pid}, since {since}, for {what})"},
			},
			"waits": {
				{Variant: leftBehind, Text: ""},
				{Variant: interrupted, Text: ". {program} last waited for {child}"},
				{Variant: interrupted, Text: ""},
				{Variant: blocked, Text: ": {comm} hangs in the kernel (D state)"},
				{Text: ", which waits for its child {child} (PID {childpid})"},
				{Text: ""},
			},
			"then": {
				{Variant: sandboxBeforeStart, Text: ". The kubelet waits 4m (default) for it"},
				{Variant: beforeStart, Text: ". The kubelet waits 2m (default) for it"},
				{Variant: inGrace, Text: ". {signal} may not have arrived"},
				{Variant: inGrace, Text: ". Its stop signal may not have arrived"},
				{Text: ""},
			},
			"started": {
				{Variant: leftBehind, Text: "{process} was started at {since}, has the command's output open, and is the shim's child now"},
				{Variant: interrupted, Text: "At least two attempts of {program} {command} did not finish"},
				{Text: "{program} {command} (PID {pid}) was started by the shim at {since} and has not returned"},
			},
			"sleeps": {
				{Variant: interrupted, Text: "The child {child} of {program} was last seen in {syscall} ({function})"},
				{Variant: interrupted, Text: "{program} was last seen in {syscall} ({function})"},
				{Variant: interrupted, Text: "{program} was last seen in {function}"},
				{Variant: blocked, Text: "Thread {thread} ({comm}) is in D state in {function}"},
				{Text: "Its child {child} (PID {childpid}) sleeps in {syscall} ({function}){queue}"},
				{Text: "Its child {child} (PID {childpid}) sleeps in {function}{queue}"},
				{Text: "It sleeps in {syscall} ({function}){queue}"},
				{Text: "It sleeps in {function}{queue}"},
			},
			"queue": {
				{Variant: sandboxBeforeStart, Text: ". While the sandbox is created or started, the kubelet waits for twice runtimeRequestTimeout (2 minutes by default)"},
				{Variant: beforeStart, Text: ". While a container is created or started, the kubelet waits for runtimeRequestTimeout (2 " +
					"minutes by default), for each container again"},
				{Text: ""},
			},
			"look": {
				{Text: "on the node, as root: ls -l /proc/{childpid}/exe shows the program of {child}. Ask who installed it why it hangs"},
				{Text: "on the node, as root: timeout 5 cat {stack} shows what {program} waits for. If a driver or file system, ask its owner"},
				{Text: "on the node, as root: ps -eo pid,ppid,stat,wchan:30,comm --forest shows what the command waits for. Ask the owner of that"},
			},
			"stack": {{Text: "/proc/{childpid}/task/*/stack"}, {Text: "/proc/{pid}/task/*/stack"}},
			"wait":  {{Variant: beforeStart, Text: "can wait that long. If still stuck, "}, {Text: ""}},
			"harm": {
				{Variant: inGrace, Text: "ending {program} (kills the container early)"},
				{Variant: leftBehind, Text: "killing the shim (loses exit codes and output)"},
				{Text: "killing {program}, its child or the shim unasked (can lose output)"},
			},
			"end":  {{Text: "{terminatechild}"}, {Text: "{terminate}"}},
			"next": {{Variant: beforeStart, Text: "The kubelet then handles the deletion"}, {Text: "The stop of the pod then continues"}},
			"before": {
				{Variant: inGrace, Text: "first send {signal} to the container's first process by hand, and let it exit. " +
					"Otherwise the kubelet has the container killed within its grace period when the command fails. Then "},
				{Variant: inGrace, Text: "first send the container's first process its stop signal by hand, and let it exit. " +
					"Otherwise the kubelet has the container killed within its grace period when the command fails. Then "},
				{Text: ""},
			},
		},
		Meaning: "The shim does not signal, start or delete a container itself. It runs a program, usually runc, and waits until that has exited and " +
			"closed its output. Until then it does nothing else about this container, and its responses to containerd about it have to wait " +
			"too. While a container is created or started, the kubelet does not handle the deletion until its request times out. That takes two " +
			"minutes (runtimeRequestTimeout), or four for the sandbox, and again for each container. If the command that sends the stop signal " +
			"fails, the kubelet tries the other containers, then has the sandbox stopped. For that, containerd kills all of them with SIGKILL. " +
			"The stop signal is not sent again.",
		Evidence: []string{
			"A child of the pod's shim has the arguments with which the shim starts a runtime. Only shims for runc (io.containerd.runc.v2) are " +
				"checked.",
			"The child is in the shim's process group, and in no pod's cgroup. A process that comes out of a container cannot be there.",
			"It was started more than " + fact.Command.String() + " ago, or 100 seconds ago if it sleeps and has not moved for ten. Two readings show the same.",
			"Ten seconds of such a sleep are enough if the kubelet reported before, in an Event, that stopping the sandbox timed out. The " +
				"command is killed then, so this one, started since, is a new attempt. Inferred.",
			"Ten seconds are also enough if a command that was to kill the same container hung and slept like this. It was last seen at most " +
				"two minutes (plus the time of a preStop hook) before this one. Inferred.",
			"A runc exec counts only if the container's processes have exited. The shim reports the exit when that command has returned.",
			"Family Interrupted: two commands that delete the container, or three under pressure, took five seconds or more and did not move. " +
				"containerd kills each after ten seconds. Inferred.",
			"Family LeftBehind: the process was started since the deletion, and the shim does not respond about a container of the pod. The " +
				"pipe alone proves nothing: a container's output is also a pipe that the shim reads.",
			"What the command waits for is what the last of its descendants sleeps in, as long as each has one child.",
			"Not reported inside the grace period, unless the shim does not respond. Family Interrupted is not reported if runc has removed the " +
				"container's cgroup and a process uses its root file system (RootfsUnmountBusy).",
		},
		Seen:  []string{"{started}", "{sleeps}"},
		First: "{wait}{look}. If unclear: Fix",
		Avoid: "{harm}",
		Remedy: "On the node: see what the command waits for, and repair that. " +
			"ps -eo pid,ppid,stat,wchan:30,comm --forest shows its children, lslocks shows who holds a lock. {next}. " +
			"If it can only be ended: {before}{end}.",
		Danger: "Do not kill the shim: that loses the exit codes and the output of all containers of the pod. Do not remove anything below /run/containerd. " +
			"A force delete leaves what still runs of the pod on the node with no API object tracking it.",
		Families: []diagnose.Family{
			{
				Name: leftBehind,
				Meaning: "The command has exited, but a process that it started has not. A hook of the runtime, or a program in the runtime's place, has put " +
					"something into the background. The shim reads the command's output until the last writer has closed it, and holds its lock until " +
					"then.",
				First: "on the node, as root: ls -l /proc/{pid}/exe names the program (a runtime hook or wrapper). " +
					"Ask its owner to end {comm}. If unclear: Fix",
				Remedy: "On the node: find out what starts {process}: a hook in the runtime's configuration, or a script in place of runc. " +
					"Then end it: {terminate}. The shim resumes immediately.",
			},
			{
				Name: interrupted,
				Meaning: "containerd gives the shim ten seconds to delete a container that has exited, then has the command killed. It retries after pauses " +
					"that double, up to five minutes. What the command waits for has been there each time.",
				First: "on the node: list the processes as in Fix until {program} {command} shows (within 5 minutes). " +
					"Ask the owner of what it waits for",
				Remedy: "On the node: see what the command waits for while it runs, and repair that. " +
					"ps -eo pid,ppid,stat,wchan:30,comm --forest shows it below the shim, lslocks shows who holds a lock. " +
					"With the systemd cgroup driver, busctl status must respond. containerd's next attempt then succeeds, within five minutes. " +
					"For an immediate attempt, if systemctl show -p KillMode containerd prints KillMode=process: systemctl restart containerd.",
				Danger: "Do not restart containerd with a KillMode other than process: that kills every container on the node. " +
					"Do not kill the shim: that loses the exit codes and the output of all containers of the pod. Do not remove anything below /run/containerd. " +
					"A force delete leaves what still runs of the pod on the node with no API object tracking it.",
			},
			{
				Name:    blocked,
				Meaning: "A thread of the command, or of the last process that it waits for, is in uninterruptible sleep (D state): no signal ends it.",
				First: "{wait}on the node, as root: timeout 5 cat {stack} names the driver or file system. Ask its owner to repair it. " +
					"If unclear: see dmesg",
				Remedy: "On the node: repair what thread {thread} waits for in {function}. " +
					"cat /proc/{thread}/stack and dmesg say more, and ps -eo pid,stat,wchan:30,comm shows what else waits there. " +
					"No signal ends a thread in D state. The shim resumes when the command returns.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		found := hangingCommands(p)
		return diagnose.Result{Found: found, Open: commandsOpen(p, len(found) > 0)}
	},
}

// commandsOpen returns what is open while commands may hang that were started a moment ago, or may be started next, and
// while one waits for a fanotify permission listener if none is found to hang. nodeagent does not wait for that: as
// long as each command ends in time, the next one is only a moment old, too.
func commandsOpen(p *fact.View, found bool) []diagnose.Open {
	if startsNext(p) || slices.ContainsFunc(p.Kills, func(d evidence.Interrupted) bool { return killsAgain(p, &d) }) ||
		!found && slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool { return scanned(p, &c) }) {
		return []diagnose.Open{diagnose.Seen(p, diagnose.Slow)}
	}
	return nil
}

// scanned reports whether a command that ends a container waits for a fanotify permission listener.
func scanned(p *fact.View, c *evidence.RuntimeCommand) bool {
	container, ok := p.Container(c.Container)
	return ok && !c.Left && counts(p, c, container) && !slices.Contains(startCommands, c.Command) &&
		slices.ContainsFunc(c.Tasks, func(t evidence.Task) bool { return t.AwaitsScanner() })
}

// hangingCommands returns a finding for each container.
func hangingCommands(p *fact.View) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range p.RuntimeCommands {
		if f, ok := hanging(p, &p.RuntimeCommands[i]); ok {
			out = append(out, f)
		}
	}
	for i := range p.Deletes {
		if f, ok := unfinished(p, &p.Deletes[i]); ok {
			out = append(out, f)
		}
	}
	// One for each container: what holds its lock comes before what only delays its exit.
	slices.SortStableFunc(out, func(a, b diagnose.Finding) int { return cmp.Compare(rank(&a), rank(&b)) })
	var told []diagnose.Finding
	for _, f := range out {
		if !slices.ContainsFunc(told, func(o diagnose.Finding) bool {
			return o.Container == f.Container && slices.Equal(o.Variants, f.Variants) && (o.Family == leftBehind) == (f.Family == leftBehind)
		}) {
			told = append(told, f)
		}
	}
	return told
}

// execCommand is the command that does not hold the container's lock, and killCommand the one that sends it signals.
const (
	execCommand = "exec"
	killCommand = "kill"
)

// lockCommands are those during which the shim holds a container's lock (Init.mu in
// cmd/containerd-shim-runc-v2/process/init.go), or without which it has no container. Those
// that write or read all of a container's memory, checkpoint and restore, take their time.
var lockCommands = []string{killCommand, "delete", "create", "start", "run", "pause", "resume", "update"}

// startCommands are those of lockCommands for which the kubelet waits before it handles the deletion.
// The others clean up after a start that was given up.
var startCommands = []string{"create", "start", "run"}

func rank(f *diagnose.Finding) int {
	switch {
	case f.Family == interrupted:
		return -1 // also of the command that runs now
	case f.Family == leftBehind:
		return 2
	case f.Objects.Command == execCommand:
		return 1
	}
	return 0
}

// hanging returns the finding of a command that does not return.
func hanging(p *fact.View, c *evidence.RuntimeCommand) (f diagnose.Finding, ok bool) {
	if !shown(p, c) {
		return f, false
	}
	first := &c.Tasks[0]
	last := fact.LastOf(c.Tasks, first)
	thread, age := telling(c, last), p.Time.Sub(first.Probe.Started)
	if !overlong(p, c, age, thread) {
		return f, false
	}
	if c.Left {
		// Nothing else shows that the shim waits for this pipe.
		f, ok = diagnose.Finding{Family: leftBehind, Confidence: diagnose.Inferred}, p.Time.Sub(c.Since) >= fact.SlowDevice && holdsUp(p, first)
	} else if container, known := p.Container(c.Container); known && counts(p, c, container) {
		f, ok = aboutCommand(p, c, container), true
		if age < fact.Command.With(p) {
			f.Confidence = diagnose.Inferred
		}
		if thread.State == evidence.Uninterruptible && thread.Unchanged(p.Time) >= fact.SlowDevice {
			f.Family = blocked
		}
	}
	f.Objects.Process, f.Objects.Since, f.Objects.Thread = diagnose.ProcessOf(p, first), first.Probe.Started, diagnose.ThreadOf(thread)
	f.Objects.Process.Program, f.Objects.Command = c.Runtime, c.Command
	if last != first {
		f.Objects.Child = diagnose.ProcessOf(p, last)
	}
	return f, ok
}

// shown reports whether two readings show the command, it has not exited, and its start time is known.
func shown(p *fact.View, c *evidence.RuntimeCommand) bool {
	return len(c.Tasks) > 0 && c.Tasks[0].State != evidence.Zombie && !c.Tasks[0].Started().IsZero() && !c.Since.IsZero() && p.Time.Sub(c.Since) >= fact.LeastStill
}

// aboutCommand starts the finding of a command that hangs, with what it delays: the start of a container, or its stop signal.
func aboutCommand(p *fact.View, c *evidence.RuntimeCommand, container *evidence.Container) diagnose.Finding {
	f := about(container, diagnose.Proved)
	sandbox := container.Kind == evidence.Sandbox
	switch {
	case container.State == evidence.StateCreated && slices.Contains(startCommands, c.Command):
		f.Variants = append(f.Variants, beforeStart)
		if sandbox {
			f.Variants = append(f.Variants, sandboxBeforeStart)
		}
	case c.Command == killCommand && !sandbox && p.Overdue() < 0 &&
		slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == container.ID && t.State != evidence.Zombie }):
		f.Variants = append(f.Variants, inGrace)
		if container.StopSignal != 0 {
			f.Objects.Signal = container.StopSignal.String()
		}
	}
	return f
}

// startsNext reports whether a container is being created or started after the start of another one of the pod may have
// been given up: that one has exited, but the kubelet has not written that it ran. In a pod of several containers, what
// kept the runtime from returning then may do so again. A command whose age is not known, or that is old enough to be
// reported on any node, leaves nothing open.
func startsNext(p *fact.View) bool {
	failed := slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind != evidence.Sandbox && c.State == evidence.StateExited && c.Waiting && !c.BackedOff && c.Exit == nil
	})
	return failed && slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		if len(c.Tasks) == 0 || c.Tasks[0].Probe == nil || p.Time.Sub(c.Tasks[0].Probe.Started) >= fact.Command.Pressed {
			return false
		}
		container, ok := p.Container(c.Container)
		return ok && container.State == evidence.StateCreated && counts(p, &c, container)
	})
}

// unfinished returns the finding of a container that the runtime fails to delete in time. It has no PIDs and times:
// each attempt has others.
func unfinished(p *fact.View, d *evidence.Interrupted) (f diagnose.Finding, ok bool) {
	tries := 2
	if p.Pressed {
		tries = 3
	}
	container, known := p.Container(d.Last.Container)
	if d.Tries < tries || !known || !counts(p, &d.Last, container) || container.State != evidence.StateRunning || p.Time.Sub(d.Seen) > fact.Retries {
		return f, false
	}
	if deleted(p, container) {
		return f, false // later attempts fail at something else
	}
	first := &d.Last.Tasks[0]
	last := fact.LastOf(d.Last.Tasks, first)
	thread := telling(&d.Last, last)
	if thread.State == evidence.Runnable || d.Seen.Sub(thread.UnchangedSince) < fact.LeastStill {
		return f, false
	}
	f = about(container, diagnose.Inferred)
	f.Family = interrupted
	f.Objects = diagnose.Objects{
		Process: &diagnose.Process{Comm: first.Comm, Program: d.Last.Runtime}, Command: d.Last.Command,
		Thread: &diagnose.Thread{Comm: thread.Comm, Function: fact.SleepsIn(thread), Syscall: diagnose.ThreadOf(thread).Syscall},
	}
	if last != first {
		f.Objects.Child = &diagnose.Process{Comm: last.Comm}
	}
	return f, true
}

// deleted reports whether the runtime has done its part in deleting a container, as far as is seen, and the shim cannot
// unmount its root file system. runc removes the cgroup, and the shim unmounts after that, even if runc was killed
// (Init.delete, cmd/containerd-shim-runc-v2/process/init.go).
func deleted(p *fact.View, c *evidence.Container) bool {
	if c.Rootfs == nil || !c.Task.Drained || fact.Missing(p, evidence.Cgroups) || groupOf(p, c) != nil || bySystemd(p) {
		return false
	}
	return slices.ContainsFunc(p.Holders, func(h evidence.Holder) bool { return uses(p, c, &h) })
}

// counts reports whether the shim cannot continue with the container while it waits for the command. It publishes the
// exit of a container when all that is being executed there has exited (handleInitExit in
// cmd/containerd-shim-runc-v2/task/service.go).
func counts(p *fact.View, c *evidence.RuntimeCommand, container *evidence.Container) bool {
	if container.Runtime != fact.RuncV2 || container.State == evidence.StateExited && container.Kind != evidence.Sandbox {
		return false
	}
	if c.Command == execCommand {
		return container.State == evidence.StateRunning && container.Kind != evidence.Sandbox && container.Task.PID != 0 &&
			!slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == container.ID || t.PID == container.Task.PID })
	}
	return slices.Contains(lockCommands, c.Command)
}

// holdsUp reports whether the shim may wait for a process that a command has left behind. The pipes of the containers'
// own output look the same, but the shim does not wait for those. Some programs in runc's place start a process with the
// container. That process is older than the deletion, and the shim responds while it runs.
func holdsUp(p *fact.View, left *evidence.Task) bool {
	shim := ownShim(p)
	return shim != nil && !fact.Halted(shim) && left.Probe.Started.After(p.DeletionRequested.Add(-fact.ClockSkew)) &&
		slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return !c.Task.UnansweredSince.IsZero() })
}

// overlong reports whether a command of that age hangs and is not only slow.
func overlong(p *fact.View, c *evidence.RuntimeCommand, age time.Duration, thread *evidence.Task) bool {
	asleep := commandPatienceAsleep
	if again(p, c) {
		asleep = commandPatienceAgain
	}
	still := thread.State == evidence.Sleeping && thread.Unchanged(p.Time) >= fact.SlowDevice
	return age >= fact.Command.With(p) || age >= asleep && still
}

// again reports whether a command is a new attempt, after one was killed because the kubelet's request had timed out. It
// was started after the killed one was last seen, or after the kubelet reported the timeout. What timed out may also be a
// CNI plugin, or about another container.
func again(p *fact.View, c *evidence.RuntimeCommand) bool {
	started := c.Tasks[0].Probe.Started
	if slices.ContainsFunc(p.Kills, func(d evidence.Interrupted) bool {
		return c.Container == d.Last.Container && c.Command == d.Last.Command && !started.Before(d.Seen.Add(-fact.ClockSkew)) &&
			started.Sub(d.Seen) < fact.Again.Pressed+hookAgain(p, &d) && hung(p, &d) && slept(&d)
	}) {
		return true
	}
	f := fact.SandboxStop(p)
	if f == nil || !f.TimedOut() || started.Before(f.Last) {
		return false
	}
	return f.Step == fact.StepUnknown || (f.Step == fact.StepContainer || f.Step == fact.StepSandbox) && f.ID == c.Container
}

// hung reports whether the last of some kill commands was seen for so long that it hung, if it slept.
func hung(p *fact.View, d *evidence.Interrupted) bool {
	patience := fact.Command.Usual
	if p.Pressed {
		patience = commandPatienceAsleep
	}
	return d.Seen.Sub(d.Last.Tasks[0].Probe.Started) >= patience
}

// hookAgain returns how long the preStop hook of a container takes at most. The kubelet runs it again before it has the
// container killed once more.
func hookAgain(p *fact.View, d *evidence.Interrupted) time.Duration {
	c, ok := p.Container(d.Last.Container)
	switch {
	case !ok || !c.PreStop:
		return 0
	case c.PreStopSleep > 0:
		return min(time.Duration(c.PreStopSleep)*time.Second, fact.Grace(p))
	}
	return min(fact.Grace(p), fact.Command.Pressed)
}

// slept reports whether the last of some commands slept without moving, and was not merely slow.
func slept(d *evidence.Interrupted) bool {
	thread := telling(&d.Last, fact.LastOf(d.Last.Tasks, &d.Last.Tasks[0]))
	return thread.State == evidence.Sleeping && d.Seen.Sub(thread.UnchangedSince) >= fact.SlowDevice
}

// killsAgain reports whether a kill command that hung was killed, and the kubelet may have the container killed again, or
// the next command has not run for long enough to tell whether it hangs, too.
func killsAgain(p *fact.View, d *evidence.Interrupted) bool {
	pause := fact.Again.With(p) + hookAgain(p, d)
	return hung(p, d) && (p.Time.Sub(d.Until) < pause || slices.ContainsFunc(p.RuntimeCommands, func(c evidence.RuntimeCommand) bool {
		return c.Container == d.Last.Container && c.Command == d.Last.Command
	}))
}

// telling returns the thread of a command's process that best shows what the process waits for.
func telling(c *evidence.RuntimeCommand, process *evidence.Task) *evidence.Task {
	for i := range c.Tasks {
		if t := &c.Tasks[i]; t.PID == process.PID && !t.Leader() {
			return t
		}
	}
	return process
}
