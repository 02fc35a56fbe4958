package runtime

import (
	"fmt"
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
	// What is told of a container first stands for the rest (isNotInterrupted, oneOfEach).
	By: diagnose.Ways{
		diagnose.By[command]{
			Title: "While containerd kills the command each time (family Interrupted)",
			From:  []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.RuntimeCommands},
			Of: interruptedDeletes, Facts: slices.Concat(interruptedFacts, []diagnose.Fact[command]{
				{Says: "containerd kills each such command after ten seconds."},
				{Says: "Inferred: that each command waits for the same."},
			}),
			Tell: oneOfEach(tellInterrupted),
		},
		diagnose.By[command]{
			Title: "While a command does not return",
			From:  []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.RuntimeCommands},
			Of: commandsOfShim, Facts: slices.Concat([]diagnose.Fact[command]{
				{Says: "The command has not been ended. After one that hung while it was to kill a container, the kubelet may have the container killed again.",
					Is: isUnderWay},
			}, seenFacts, containerFacts, []diagnose.Fact[command]{
				{
					Says: "containerd's CRI status does not say that the container has exited, unless it is the sandbox.",
					Is:   diagnose.If(isUnendedOrSandbox), From: []evidence.Source{evidence.Containers},
				},
				{Says: "The command is kill, delete, create, start, run, pause, resume, update or exec. " +
					"Those that write or read all of a container's memory (checkpoint, restore) take their time.", Is: diagnose.If(isKnownCommand)},
				{
					Says: "If it is an exec, the CRI status says that the container runs, and it is not the sandbox.",
					Is:   diagnose.If(execRuns), From: []evidence.Source{evidence.Containers},
				},
				{
					Says: "If it is an exec, all processes of the container have exited. The shim reports the exit when that command has returned.",
					Is:   execIsLast, From: []evidence.Source{evidence.Containers},
				},
				{
					Says: "No deletion of the container is interrupted each time (family Interrupted).",
					Is:   diagnose.If(isNotInterrupted), From: []evidence.Source{evidence.Containers},
				},
				overlongFact,
				{Says: "Ten seconds of such a sleep are enough if the kubelet reported before, in an Event, that stopping the sandbox timed out. The " +
					"command is killed then, so this one, started since, is a new attempt. Inferred."},
				{Says: "Ten seconds are also enough if a command that was to kill the same container hung and slept like this. It was last seen at most " +
					"two minutes (plus the time of a preStop hook) before this one. Inferred."},
			}, searchedFacts),
			Tell: oneOfEach(tellCommand),
		},
		diagnose.By[command]{
			Title: "When a command has left a process behind (family LeftBehind)",
			From:  []evidence.Source{evidence.Processes}, Partly: []evidence.Source{evidence.RuntimeCommands},
			Of: leftByCommands, Facts: slices.Concat(seenFacts, []diagnose.Fact[command]{
				overlongFact,
				{Says: "Readings over ten seconds show it as a child of the shim that has the command's output open.", Is: isLeftForLong},
				{Says: "It was started since the deletion.", Is: diagnose.If(isOfDeletion), From: []evidence.Source{evidence.Suspects}},
				{Says: "The pod's shim is known, and it is the only one.", Pod: diagnose.IfPod(hasOwnShim)},
				{Says: "The shim is not stopped.", Pod: diagnose.IfPod(shimNotHalted)},
				{
					Says: "The shim does not respond about a container of the pod.",
					Pod:  diagnose.IfPod(shimIsSilent), From: []evidence.Source{evidence.Containers}, Partly: shims,
				},
				{Says: "The pipe alone proves nothing: a container's output is also a pipe that the shim reads. Inferred."},
			}),
			Tell: diagnose.First(tellLeft),
		},
	},
}

// A command is one of the runtime, or a process that one has left behind.
type command struct {
	*evidence.RuntimeCommand
	// tries is set for the last of some commands that were seen to hang until they were ended, or to take too long again and again.
	tries *evidence.Interrupted
	// first is its process, last the one that it waits for, and thread what shows best what that waits for.
	first, last, thread *evidence.Task
}

// Named says which command it is.
func (c command) Named(*fact.View) string {
	return fmt.Sprintf("command %.40q of the runtime, process %.40q (PID %d)", c.Command, c.first.Comm, c.first.PID)
}

func commandOf(c *evidence.RuntimeCommand, tries *evidence.Interrupted) command {
	first := &c.Tasks[0]
	last := fact.LastOf(c.Tasks, first)
	return command{c, tries, first, last, telling(c, last)}
}

func runtimeCommands(p *fact.View, left bool) (out []command) {
	for i := range p.RuntimeCommands {
		if c := &p.RuntimeCommands[i]; c.Left == left && len(c.Tasks) > 0 {
			out = append(out, commandOf(c, nil))
		}
	}
	return out
}

func interruptedCommands(all []evidence.Interrupted) (out []command) {
	for i := range all {
		if len(all[i].Last.Tasks) > 0 {
			out = append(out, commandOf(&all[i].Last, &all[i]))
		}
	}
	return out
}

// commandsOfShim returns the commands that the pod's shim waits for, and those that were to kill a container until they were ended.
func commandsOfShim(p *fact.View) []command {
	return append(runtimeCommands(p, false), interruptedCommands(p.Kills)...)
}

func leftByCommands(p *fact.View) []command { return runtimeCommands(p, true) }

func interruptedDeletes(p *fact.View) []command { return interruptedCommands(p.Deletes) }

// The facts that several ways ask, or that one asks of another.
var (
	seenFacts = []diagnose.Fact[command]{
		{Says: "The process has not exited: it is not in state Z.", Is: diagnose.If(hasNotExited)},
		{Says: "Its start time is known.", Is: startIsKnown, From: []evidence.Source{evidence.Suspects}},
		{Says: "Two readings, three seconds or more apart, show it.", Is: isSeenTwice},
	}
	containerFacts = []diagnose.Fact[command]{
		{
			Says: "The command is about a container of the pod, or about the sandbox.",
			Is:   diagnose.If(isAboutContainer), From: []evidence.Source{evidence.Containers},
		},
		{
			Says: "The runtime of that container is io.containerd.runc.v2.",
			Is:   diagnose.If(commandUnderRunc), From: []evidence.Source{evidence.Containers},
		},
	}
	overlongFact = diagnose.Fact[command]{
		Says: "It was started more than " + fact.Command.String() + " ago, or 100 seconds ago if it sleeps and has not moved for ten.",
		Is:   isOverlong, From: []evidence.Source{evidence.Suspects},
	}
	interruptedFacts = slices.Concat(containerFacts, []diagnose.Fact[command]{
		{
			Says: "containerd's CRI status says that the container runs.",
			Is:   diagnose.If(commandSaidToRun), From: []evidence.Source{evidence.Containers},
		},
		{Says: "The last such command was seen in the last five minutes.", Is: diagnose.If(wasTriedLately)},
		{
			Says: "runc has not removed the container's cgroup, or no process uses its root file system. Else it is RootfsUnmountBusy.",
			Is:   diagnose.If(isNotDeleted), From: []evidence.Source{evidence.Containers},
		},
		{
			Says: "Two commands that delete the container, or three under pressure, took five seconds or more.",
			Is:   diagnose.IfLater(isTriedAgain, diagnose.Retry),
		},
		{Says: "The last one did not run when it was last seen.", Is: diagnose.If(didNotRun), From: []evidence.Source{evidence.Suspects}},
		{Says: "It had not moved for three seconds.", Is: diagnose.IfLater(didNotMove, diagnose.Retry), From: []evidence.Source{evidence.Suspects}},
	})
	searchedFacts = []diagnose.Fact[command]{
		{Says: "A command is a child of the pod's shim that has the arguments with which the shim starts a runtime."},
		{Says: "It is in the shim's process group, and in no pod's cgroup. A process that comes out of a container cannot be there."},
		{Says: "Inside the grace period, commands are searched for only while the shim does not respond."},
		{Says: "What the command waits for is what the last of its descendants sleeps in, as long as each has one child."},
	}
)

// isUnderWay answers whether a command runs. One that was to kill a container, hung and was ended may be followed by the next.
func isUnderWay(p *fact.View, c command) diagnose.Holding {
	if c.tries != nil && killsAgain(p, c.tries) {
		return diagnose.NotYet(diagnose.Seen(p, diagnose.Slow))
	}
	return diagnose.Is(c.tries == nil)
}

func hasNotExited(_ *fact.View, c command) bool { return c.first.State != evidence.Zombie }

func startIsKnown(_ *fact.View, c command) diagnose.Holding {
	if c.first.Started().IsZero() {
		return diagnose.NotRead(evidence.Suspects)
	}
	return diagnose.Is(true)
}

func isSeenTwice(p *fact.View, c command) diagnose.Holding { return seenFor(p, c, fact.LeastStill) }

func isLeftForLong(p *fact.View, c command) diagnose.Holding { return seenFor(p, c, fact.SlowDevice) }

func seenFor(p *fact.View, c command, long time.Duration) diagnose.Holding {
	return diagnose.IsOr(!c.Since.IsZero() && p.Time.Sub(c.Since) >= long, young(p, c))
}

// young returns the Open of a command that is not known to hang. It waits for nothing: as long as each command ends in time, the next one is only a
// moment old, too. It may hang if it is old and seen for the first time, if it waits for a fanotify permission listener, and if a start before it may
// have been given up. Any other takes its time.
func young(p *fact.View, c command) diagnose.Open {
	if p.Time.Sub(c.first.Started()) >= fact.Command.With(p) || isScanned(c) || startsNext(p, c) {
		return diagnose.Seen(p, diagnose.Slow)
	}
	return diagnose.Seen(p, diagnose.Moves)
}

// isScanned reports whether a command that ends a container waits for a fanotify permission listener.
func isScanned(c command) bool {
	return !c.Left && !slices.Contains(startCommands, c.Command) &&
		slices.ContainsFunc(c.Tasks, func(t evidence.Task) bool { return t.AwaitsScanner() })
}

// startsNext reports whether a command creates or starts a container after the start of another one of the pod may have
// been given up: that one has exited, but the kubelet has not written that it ran. In a pod of several containers, what
// kept the runtime from returning then may do so again.
func startsNext(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of != nil && of.State == evidence.StateCreated && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool {
		return c.Kind != evidence.Sandbox && c.State == evidence.StateExited && c.Waiting && !c.BackedOff && c.Exit == nil
	})
}

// containerOf returns the container that a command is about; nil when it is not known.
func containerOf(p *fact.View, c command) *evidence.Container {
	container, _ := p.Container(c.Container)
	return container
}

func isAboutContainer(p *fact.View, c command) bool { return containerOf(p, c) != nil }

func commandUnderRunc(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of != nil && ofRunc(p, of)
}

func commandSaidToRun(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of != nil && isRunning(p, of)
}

func isUnendedOrSandbox(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of != nil && (of.State != evidence.StateExited || of.Kind == evidence.Sandbox)
}

// isKnownCommand reports whether the shim cannot continue with a container while it waits for the command.
func isKnownCommand(_ *fact.View, c command) bool {
	return c.Command == execCommand || slices.Contains(lockCommands, c.Command)
}

func execRuns(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return c.Command != execCommand || of != nil && isRunning(p, of) && of.Kind != evidence.Sandbox
}

// execIsLast reports whether the processes of a container have exited in which a command executes something. The shim publishes the exit of a
// container when all that is being executed there has exited (handleInitExit in cmd/containerd-shim-runc-v2/task/service.go).
func execIsLast(p *fact.View, c command) diagnose.Holding {
	of := containerOf(p, c)
	switch {
	case c.Command != execCommand:
		return diagnose.Is(true)
	case of == nil, slices.ContainsFunc(p.Tasks, func(t evidence.Task) bool { return t.Container == of.ID || t.PID == of.Task.PID }):
		return diagnose.Is(false)
	case of.Task.PID == 0 && fact.Missing(p, evidence.Shims):
		return diagnose.NotRead(evidence.Shims)
	}
	return diagnose.Is(of.Task.PID != 0)
}

// isNotInterrupted reports whether nothing else is told of the container that a command is about: that its deletion is interrupted each time.
func isNotInterrupted(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of == nil || !slices.ContainsFunc(interruptedDeletes(p), func(d command) bool {
		return !slices.ContainsFunc(interruptedFacts, func(f diagnose.Fact[command]) bool { return !f.Is(p, d).Yes() }) &&
			sameSubject(aboutCommand(p, c.RuntimeCommand, of), about(containerOf(p, d), diagnose.Inferred))
	})
}

// sameSubject reports whether two findings are about the same container, and what is the matter with it.
func sameSubject(a, b diagnose.Finding) bool {
	return a.Container == b.Container && slices.Equal(a.Variants, b.Variants)
}

// oneOfEach makes a Tell that has one finding for each container. A command that holds its lock stands for what only delays its exit.
func oneOfEach(tell func(*fact.View, command) diagnose.Finding) func(*fact.View, []command) []diagnose.Finding {
	return func(p *fact.View, found []command) (told []diagnose.Finding) {
		for _, exec := range []bool{false, true} {
			for _, c := range found {
				f := tell(p, c)
				if (c.Command == execCommand) == exec && !slices.ContainsFunc(told, func(o diagnose.Finding) bool { return sameSubject(o, f) }) {
					told = append(told, f)
				}
			}
		}
		return told
	}
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

func tellCommand(p *fact.View, c command) diagnose.Finding {
	of := containerOf(p, c)
	f := aboutCommand(p, c.RuntimeCommand, of)
	if p.Time.Sub(c.first.Started()) < fact.Command.With(p) {
		f.Confidence = diagnose.Inferred
	}
	if c.thread.State == evidence.Uninterruptible && c.thread.Unchanged(p.Time) >= fact.SlowDevice {
		f.Family = blocked
	}
	describe(p, c, &f)
	return f
}

// tellLeft is inferred: nothing else shows that the shim waits for this pipe.
func tellLeft(p *fact.View, c command) diagnose.Finding {
	f := diagnose.Finding{Family: leftBehind, Confidence: diagnose.Inferred}
	describe(p, c, &f)
	return f
}

// describe completes the finding of a command that does not return.
func describe(p *fact.View, c command, f *diagnose.Finding) {
	f.Objects.Process, f.Objects.Since, f.Objects.Thread = diagnose.ProcessOf(p, c.first), c.first.Started(), diagnose.ThreadOf(c.thread)
	f.Objects.Process.Program, f.Objects.Command = c.Runtime, c.Command
	if c.last != c.first {
		f.Objects.Child = diagnose.ProcessOf(p, c.last)
	}
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

func wasTriedLately(p *fact.View, c command) bool { return p.Time.Sub(c.tries.Seen) <= fact.Retries }

// isNotDeleted reports whether later attempts do not fail at something else.
func isNotDeleted(p *fact.View, c command) bool {
	of := containerOf(p, c)
	return of != nil && !deleted(p, of)
}

func isTriedAgain(p *fact.View, c command) bool {
	tries := 2
	if p.Pressed {
		tries = 3
	}
	return c.tries.Tries >= tries
}

func didNotRun(_ *fact.View, c command) bool { return c.thread.State != evidence.Runnable }

func didNotMove(_ *fact.View, c command) bool {
	return c.tries.Seen.Sub(c.thread.UnchangedSince) >= fact.LeastStill
}

// tellInterrupted names no PIDs and times: each attempt has others.
func tellInterrupted(p *fact.View, c command) diagnose.Finding {
	f := about(containerOf(p, c), diagnose.Inferred)
	f.Family = interrupted
	f.Objects = diagnose.Objects{
		Process: &diagnose.Process{Comm: c.first.Comm, Program: c.Runtime}, Command: c.Command,
		Thread: &diagnose.Thread{Comm: c.thread.Comm, Function: fact.SleepsIn(c.thread), Syscall: diagnose.ThreadOf(c.thread).Syscall},
	}
	if c.last != c.first {
		f.Objects.Child = &diagnose.Process{Comm: c.last.Comm}
	}
	return f
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

// isOfDeletion, shimNotHalted and shimIsSilent report whether the shim may wait for a process that a command has left behind. The pipes of the
// containers' own output look the same, but the shim does not wait for those. Some programs in runc's place start a process with the
// container. That process is older than the deletion, and the shim responds while it runs.
func isOfDeletion(p *fact.View, c command) bool {
	return c.first.Started().After(p.DeletionRequested.Add(-fact.ClockSkew))
}

func shimNotHalted(p *fact.View) bool {
	shim := ownShim(p)
	return shim != nil && !fact.Halted(shim)
}

func shimIsSilent(p *fact.View) bool { return len(silentContainers(p)) > 0 }

// isOverlong answers whether a command hangs and is not only slow.
func isOverlong(p *fact.View, c command) diagnose.Holding {
	asleep := commandPatienceAsleep
	if again(p, c) {
		asleep = commandPatienceAgain
	}
	age := p.Time.Sub(c.first.Started())
	still := c.thread.State == evidence.Sleeping && c.thread.Unchanged(p.Time) >= fact.SlowDevice
	return diagnose.IsOr(age >= fact.Command.With(p) || age >= asleep && still, young(p, c))
}

// again reports whether a command is a new attempt, after one was killed because the kubelet's request had timed out. It
// was started after the killed one was last seen, or after the kubelet reported the timeout. What timed out may also be a
// CNI plugin, or about another container.
func again(p *fact.View, c command) bool {
	started := c.first.Started()
	if slices.ContainsFunc(p.Kills, func(d evidence.Interrupted) bool {
		return c.Container == d.Last.Container && c.Command == d.Last.Command && !started.Before(d.Seen.Add(-fact.ClockSkew)) &&
			started.Sub(d.Seen) < fact.Again.Pressed+hookAgain(p, &d) && hung(p, &d) && slept(&d)
	}) {
		return true
	}
	f := p.SandboxStop
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
