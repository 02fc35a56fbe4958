package signal

import (
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

// The variants of what to do about it: a program whose handler is not there any more,
// and two programs that do not end by SIGTERM.
const (
	removed = "Removed"
	uwsgi   = "Uwsgi"
	systemd = "Systemd"
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
		Message: "container {container}: its program {program} (PID {pid} on the node) has taken {signal} but was not done within the grace period of {grace} ({doing}), " +
			"so SIGKILL ended it at {ended}",
		Phrases: map[string][]diagnose.Choice{
			"doing": {
				{Variant: waited, Text: "when last seen it waited for I/O in {function}{used}"},
				{Variant: slept, Text: "when last seen its first thread slept in the system call {syscall}{used}"},
				{Variant: ran, Text: "when last seen it ran{used}"},
				{Text: "when last seen it was in state {state}{used}"},
			},
			"look": {
				{Variant: removed, Text: "The program has no handler for {signal} any more: it has removed it, or it is a Node.js program without a listener for {signal}, which needs one. " +
					"Else look at what the program does when it is asked to stop"},
				{Variant: uwsgi, Text: "uwsgi loads its program anew by SIGTERM, unless die-on-term is set: set it. Else look at what the program does when it is asked to stop"},
				{Variant: systemd, Text: "systemd executes itself anew by SIGTERM and goes on: set the stop signal to SIGRTMIN+3"},
				{Text: "Look at what the program does when it is asked to stop"},
			},
			"used": {{Text: " and the container used {cpuused}"}, {Text: ""}},
		},
		Meaning: "The program has taken the stop signal and works on its shutdown: it drains connections, writes what it has in memory, waits for others. " +
			"The grace period is over before it is done, and the kernel ends it in the middle of that. " +
			"A program whose handler does nothing looks the same.",
		Evidence: "The stop signal is in SigCgt of the first process, or was in two readings shortly before the deletion, or it is blocked and not pending any more, as with sigwait and signalfd; " +
			"that was so in a reading from before the deletion, or where there is none the process had lived for 20 seconds by then and was not seen to change what it does with signals since, because a program that starts has no handler yet; " +
			"under a small init such as tini that holds for the program that it runs. " +
			"Nothing is said of a program that sleeps in sigwait and shows no bit: the kernel drops what PID 1 waits for without having blocked it. The process is not stopped, traced or frozen; " +
			"the kubelet has told of no failure to stop the pod; " +
			"and the container was ended by SIGKILL (exit code 137) not before the deadline, but for three seconds by which clocks may differ. " +
			"What it did is how the last readings showed it.",
		Remedy: "Nothing on the node is broken. " +
			"{look}; give it more time with terminationGracePeriodSeconds, or let it do less.",
		Danger: "What it had not finished is lost. A shorter grace period or a force delete makes that worse.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		var out []diagnose.Finding
		for _, fp := range slow(p) {
			if cpu, memory := squeezed(p, fp); cpu != nil || memory != nil {
				continue // ShutdownThrottled
			}
			f := slowFinding(p, fp)
			t := fp.Leader
			if child := fp.ForwardsTo(); child != nil {
				t = child
			}
			f.Objects.Thread = diagnose.ThreadOf(t)
			switch {
			case t.State == evidence.Uninterruptible:
				f.Variants = []string{waited}
			case t.State == evidence.Sleeping && f.Objects.Thread.Syscall != "":
				f.Variants = []string{slept}
			case t.State == evidence.Runnable:
				f.Variants = []string{ran}
			}
			switch {
			case fp.Receives(fp.Container.StopSignal) == fact.Took:
				f.Variants = append(f.Variants, removed)
			case fp.Container.StopSignal != evidence.SIGTERM:
			case fp.Runs("uwsgi"):
				f.Variants = append(f.Variants, uwsgi)
			case fp.Runs("systemd"):
				f.Variants = append(f.Variants, systemd)
			}
			if g := containerGroup(p, fp.Container.ID); g != nil && g.CPU != nil {
				f.Objects.CPUUsedMillis = g.CPU.RecentMillis
			}
			out = append(out, f)
		}
		return out
	},
}

// containerGroup is the control group of a container, nil when it is not known.
func containerGroup(p *evidence.Pod, id string) *evidence.Cgroup {
	for i := range p.Cgroups {
		if p.Cgroups[i].Container == id {
			return &p.Cgroups[i]
		}
	}
	return nil
}
