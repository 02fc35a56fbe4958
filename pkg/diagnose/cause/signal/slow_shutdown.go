package signal

import (
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// The variants of SlowShutdown: what the program was last seen at.
const (
	waited = "Waited"
	slept  = "Slept"
	ran    = "Ran"
)

// The variants of what it runs and what has not ended: it waits for one process, for one that it has started since the
// deletion, or has started one or several and is not seen to wait for them.
const (
	awaits  = "Awaits"
	helper  = "Helper"
	fresh   = "Fresh"
	one     = "One"
	several = "Several"
)

// The variants of what to look at where it is not seen that the program waits for what it runs: that may be no more than a helper
// of it, or a worker, of the same name.
const (
	maybe   = "Maybe"
	workers = "Workers"
)

// The variants of what such a process does with the stop signal. That it blocks it is the variant blocks.
const (
	ignores = "Ignores"
	handles = "Handles"
	taken   = "Taken"
	unsent  = "Unsent"
)

// fates are those variants by what becomes of the signal.
var fates = map[fact.Reception]string{fact.Ignored: ignores, fact.Caught: handles, fact.Took: taken, fact.Blocked: blocks, fact.Fatal: unsent}

// The variants of what to do about it: a program whose handler is not there any more,
// and two programs that do not end by SIGTERM.
const (
	removed  = "Removed"
	uwsgi    = "Uwsgi"
	systemd  = "Systemd"
	postgres = "Postgres"
)

// The families of SlowShutdown besides the ordinary one.
const (
	familyNetwork = "Network"
	familyTrap    = "Trap"
)

// SlowShutdown is a program that handles its stop signal and is not done when
// the grace period ends. Nothing shows that a program that still runs has been
// signalled, since all that comes before that may be late on a slow node; that
// SIGKILL has ended it shows it: the kubelet has it sent a grace period after
// the stop signal (StopContainer of the CRI).
var SlowShutdown = &diagnose.Rule{
	Cause:  "SlowShutdown",
	When:   diagnose.WhenGone,
	Phases: diagnose.WhileProcessesLive,
	Needs:  slowSources,
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the program's shutdown takes longer than the grace period",
		Message: "container {container}: its program {program} (PID {pid} on the node) has taken {signal} but was not done " +
			"within {within} ({doing}{lingers}{unanswered}), so SIGKILL ended it at {ended}",
		Phrases: map[string][]diagnose.Choice{
			"doing": {
				{Variant: waited, Text: "when last seen it waited for I/O in {function}{used}"},
				{Variant: slept, Text: "when last seen its first thread slept in the system call {syscall}{used}"},
				{Variant: ran, Text: "when last seen it ran{used}"},
				{Text: "when last seen it was in state {state}{used}"},
			},
			"used": {{Text: " and the container used {cpuused}"}, {Text: ""}},
			"lingers": {
				{Variant: familyTrap, Text: "; as a shell it puts its trap off while a program is in its foreground, " +
					"and {child} (PID {childpid} on the node) did not end: if that was in the foreground, the trap never ran"},
				{Variant: helper, Text: "; it waited for {child} (PID {childpid} on the node), which it has started since the deletion"},
				{Variant: fresh, Text: "; it runs {child} (PID {childpid} on the node), which it has started since the deletion"},
				{Variant: awaits, Text: "; it waited for {child} (PID {childpid} on the node), which {fate}"},
				{Variant: several, Text: "; of {alike} processes that it runs, {child} (PID {childpid} on the node), the youngest one, {fate}"},
				{Variant: one, Text: "; {child} (PID {childpid} on the node), which it runs, {fate}"},
				{Text: ""},
			},
			"fate": {
				{Variant: ignores, Text: "ignores {signal}"},
				{Variant: handles, Text: "has a handler for {signal} and did not end"},
				{Variant: taken, Text: "has taken {signal} and did not end"},
				{Variant: blocks, Text: "blocks {signal} and has not taken it"},
				{Variant: unsent, Text: "would have ended by {signal} but was not sent it"},
				{Text: "did not end"},
			},
			"unanswered": {
				{Variant: familyNetwork, Text: "; from {since} on nobody acknowledged what was sent over {connections} of the pod"},
				{Text: ""},
			},
			"look": {
				{Variant: removed, Text: "The program has no handler for {signal} any more: it has removed it, or it is a Node.js program without a listener for {signal}, which needs one. " +
					"Else look at what the program does when it is asked to stop"},
				{Variant: uwsgi, Text: "uwsgi loads its program anew by SIGTERM, unless die-on-term is set: set it. Else look at what the program does when it is asked to stop"},
				{Variant: systemd, Text: "systemd executes itself anew by SIGTERM and goes on: set the stop signal to SIGRTMIN+3. " +
					"Else look at what it waits for"},
				{Variant: postgres, Text: "PostgreSQL waits by SIGTERM until all clients have gone: set the stop signal to SIGINT. Else look at what its clients do"},
				{Variant: fresh, Text: "Look at what {child} does that takes so long"},
				{Variant: helper, Text: "Look at what {child} does that takes so long"},
				{Variant: workers, Text: "Look at what {child} does when it is asked to stop"},
				{Variant: maybe, Text: "Look at what {program} waits for: if that is {child}, {how}"},
				{Variant: ignores, Text: "Let {child} handle {signal}: remove a trap '' before it"},
				{Variant: blocks, Text: "Let {child} take {signal}, which it blocks"},
				{Variant: unsent, Text: "Look at what {program} waits for; if that is {child}, let it pass {signal} on, or start {child} with exec instead"},
				{Variant: handles, Text: "Look at what {child} does when it is asked to stop, and whether {program} passes {signal} on to it"},
				{Variant: taken, Text: "Look at what {child} does when it is asked to stop"},
				{Text: "Look at what the program does when it is asked to stop"},
			},
			"how": {
				{Variant: ignores, Text: "let it handle {signal}"},
				{Variant: blocks, Text: "let it take {signal}, which it blocks"},
				{Variant: unsent, Text: "let {program} pass {signal} on to it, or start it with exec instead"},
				{Variant: handles, Text: "at what it does when it is asked to stop, and whether {program} passes {signal} on to it"},
				{Text: "at what it does when it is asked to stop"},
			},
			"limit": ownLimits(),
			"raise": {
				{Variant: diagnose.BehindHook, Text: "raise terminationGracePeriodSeconds by what the preStop hook takes"},
				{Text: "raise terminationGracePeriodSeconds"},
			},
		},
		Meaning: "The program has taken the stop signal and works on its shutdown: it drains connections, writes what it has in memory, waits for others. " +
			"The grace period is over before it is done, and the kernel ends it in the middle of that. " +
			"A program whose handler does nothing looks the same. " +
			"So does one that only passes the signal on to another one and waits for it, as npm and supervisord do: " +
			"what it runs and what has not ended is named. " +
			"A server that waits for the last of its connections waits for any time, unless it has a limit for that. Some have one: " + settings() + ".",
		Evidence: "The stop signal is in SigCgt of the first process, or was in two readings shortly before the deletion, or it is blocked and not pending any more, as with sigwait and signalfd; " +
			"that was so in a reading from before the deletion, or where there is none the process had lived for 20 seconds by then and was not seen to change what it does with signals since, because a program that starts has no handler yet; " +
			"under a small init such as tini that holds for the program that it runs. " +
			"Nothing is said of a program that sleeps in sigwait and shows no bit: the kernel drops what PID 1 waits for without having blocked it. The process is not stopped, traced or frozen; " +
			"the kubelet has told of no failure to stop the pod; " +
			"and the container was ended by SIGKILL (exit code 137) not before the deadline, but for three seconds by which clocks may differ. " +
			"What it did is how the last readings showed it. " +
			"What it runs is told while all of its threads sleep: its children in the same container but for programs such as sleep and tail, " +
			"and of a shell, or of one that waits for a child, the child of that. " +
			"That it waited for a process is told of a system call that waits for children (wait4, waitid) and a single one; " +
			"else the process has merely not ended either. " +
			"What the process does with the stop signal is what its masks show; " +
			"whether it was sent the signal they show only where it has taken it, leaves it pending, or would have ended by it.",
		Remedy: "Nothing on the node is broken. " +
			"{look}. {limit}, or {raise}.",
		Danger: "What it had not finished is lost. A shorter grace period or a force delete makes that worse.",
		Families: []diagnose.Family{
			{
				Name: familyTrap,
				Meaning: "The program is a shell with a trap for the stop signal, which sleeps in wait4 and has a child from before the deletion. " +
					"It is not known whether it waits for that in its foreground, " +
					"where its trap is put off until the child has ended, or in the background, " +
					"where the child has not ended though the trap may have told it to. This is inferred. " +
					"Where it is known, ShellPID1TrapDeferred is reported.",
				Remedy: "Run the program in the background, and let the trap pass the signal on and the shell wait for it: program & pid=$!; " +
					"trap 'kill -TERM $pid' TERM; wait $pid; wait $pid. " +
					"If the trap is not needed, start the program with exec. " +
					"If the script does so already, look at what {child} does when it is asked to stop. " +
					"{limit}, or {raise}.",
			},
			{
				Name: familyNetwork,
				Meaning: "Most of the pod's TCP connections, two or more, had something to send that nobody acknowledged, until the end: " +
					"the kernel sent it again and again. " +
					"The network was taken away from the program while it worked on its shutdown, or those that it talks to are gone: " +
					"in the pod both look the same.",
				Remedy: "Find out whether the pod's network was taken away before the program was done, or whether its peers are gone. " +
					"What the network needs must stay until the pod is gone: " +
					"network policies, endpoints, and objects of the CNI that are deleted with the pod, " +
					"such as a CiliumEndpoint by a foreground deletion. " +
					"More time does not help without a network. For peers that are gone: {limit}.",
			},
		},
	},
	Check: func(p *fact.View) diagnose.Result {
		var out []diagnose.Finding
		for _, fp := range slow(p) {
			if cpu, memory := squeezed(p, fp); cpu != nil || memory != nil {
				continue // ShutdownThrottled
			}
			f, program := slowFinding(p, fp), asked(p, fp)
			t := program.Leader
			f.Objects.Thread = diagnose.ThreadOf(t)
			switch {
			case t.State == evidence.Uninterruptible:
				f.Variants = append(f.Variants, waited)
			case t.State == evidence.Sleeping && f.Objects.Thread.Syscall != "":
				f.Variants = append(f.Variants, slept)
			case t.State == evidence.Runnable:
				f.Variants = append(f.Variants, ran)
			}
			switch {
			case program.Receives(fp.Container.StopSignal) == fact.Took, program.HadHandler(fp.Container.StopSignal):
				f.Variants = append(f.Variants, removed)
			case fp.Container.StopSignal != evidence.SIGTERM:
			case program.Runs("uwsgi"):
				f.Variants = append(f.Variants, uwsgi)
			case fp.Runs("systemd"):
				f.Variants = append(f.Variants, systemd)
			case program.Runs("postgres"):
				f.Variants = append(f.Variants, postgres)
			}
			last := tellLingering(p, program, &f)
			if v := limitOf(fp, program, last); v != "" {
				f.Variants = append(f.Variants, v)
			}
			if c := p.Connections; networkTakenAway(p) && f.Family == "" && !explained(f.Variants) {
				f.Family, f.Objects.Connections, f.Objects.Since = familyNetwork, c.Unanswered, c.Since
			}
			if g := containerGroup(p, fp.Container.ID); g != nil && g.CPU != nil {
				f.Objects.CPUUsedMillis = g.CPU.RecentMillis
			}
			out = append(out, f)
		}
		return diagnose.Found(out...)
	},
}

// explained reports whether it is known what keeps the program, whatever its connections do.
func explained(variants []string) bool {
	return slices.ContainsFunc(variants, func(v string) bool {
		return slices.Contains([]string{removed, uwsgi, systemd, postgres, ignores, unsent}, v)
	})
}

// tellLingering puts into the finding what the program runs and what has not ended, and returns it; nil when there is
// nothing of the kind.
func tellLingering(p *fact.View, program fact.FirstProcess, f *diagnose.Finding) *evidence.Task {
	f.Objects.Child = nil
	if program.MayPutTrapOff(p) {
		f.Confidence = diagnose.Inferred
	}
	if child := program.KeepsTrapOff(p); child != nil {
		f.Family, f.Objects.Child = familyTrap, diagnose.ProcessOf(p, child)
		return child
	}
	l := program.Lingers(p)
	if l == nil {
		return nil
	}
	f.Objects.Child, f.Variants = diagnose.ProcessOf(p, l.Task), append(f.Variants, lingering(program, l)...)
	if l.Alike > 1 {
		f.Objects.Alike = l.Alike
	}
	return l.Task
}

// lingering returns the variants of how the program runs what has not ended, and of what becomes of the stop signal there.
func lingering(program fact.FirstProcess, l *fact.Lingering) []string {
	var out []string
	look := maybe
	if l.Task.Comm == program.Leader.Comm {
		look = workers
	}
	switch {
	case l.Awaited && l.New:
		return []string{helper}
	case l.New && l.Alike == 1 && fact.Shell(program.Leader):
		return []string{fresh}
	case l.Awaited:
		out = []string{awaits}
	case l.Alike > 1:
		out = []string{several, look}
	default:
		out = []string{one, look}
	}
	if fate, known := fates[l.Meets]; known {
		out = append(out, fate)
	}
	return out
}

// containerGroup is the control group of a container, nil when it is not known.
func containerGroup(p *fact.View, id string) *evidence.Cgroup {
	for i := range p.Cgroups {
		if p.Cgroups[i].Container == id {
			return &p.Cgroups[i]
		}
	}
	return nil
}

// networkTakenAway reports whether most of the pod's connections, two or more, have got no answer to what they have sent, for a
// quarter of the grace period or more. Peers that are gone look the same, and a single one may be a client's that has vanished.
func networkTakenAway(p *fact.View) bool {
	c := p.Connections
	return c != nil && c.Unanswered > 1 && c.Unanswered*2 > c.All && !c.Since.IsZero() && p.Time.Sub(c.Since) >= max(fact.Grace(p)/4, fact.LeastStill)
}
