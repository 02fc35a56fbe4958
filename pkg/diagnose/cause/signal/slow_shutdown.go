package signal

import (
	"fmt"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// SlowShutdown is a program that handles its stop signal and is not done when
// the grace period ends. Nothing shows that a program that still runs has been
// signalled, since all that comes before that may be late on a slow node; that
// SIGKILL has ended it shows it: the kubelet has it sent a grace period after
// the stop signal (StopContainer of the CRI).
var SlowShutdown = &diagnose.Rule{
	Cause:  "SlowShutdown",
	When:   diagnose.AtTheEnd,
	Phases: diagnose.WhileProcessesLive,
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects},
	Doc: diagnose.Doc{
		Layer: "signal",
		Title: "the program's shutdown takes longer than the grace period",
		Message: "container {container}: its program {program} (PID {pid} on the node) has taken {signal} but was not done within the grace period of {grace} ({doing}), " +
			"so SIGKILL ended it at {time}",
		Phrases: map[string]string{"doing": "what it was last seen at"},
		Meaning: "The program has taken the stop signal and works on its shutdown: it drains connections, writes what it has in memory, waits for others. The grace period is over before it is done, and the kernel ends it in the middle of that. " +
			"A program whose handler does nothing looks the same.",
		Evidence: "The stop signal is in SigCgt of the first process, or it is blocked and not pending any more, as with sigwait and signalfd; it is not stopped, traced or frozen; " +
			"and the container was ended by SIGKILL (exit code 137) not before the deadline, but for three seconds by which clocks may differ. What it did is how the last readings showed it.",
		Remedy: "Nothing on the node is broken. Look at what the program does when it is asked to stop; give it more time with terminationGracePeriodSeconds, or let it do less.",
		Danger: "What it had not finished is lost. A shorter grace period or a force delete makes that worse.",
	},
	Check: func(p *evidence.Pod) []diagnose.Finding {
		var out []diagnose.Finding
		for _, fp := range slow(p) {
			if squeezed(p, fp) == nil {
				out = append(out, slowFinding(p, fp, doing(p, fp)))
			}
		}
		return out
	},
}

// doing says what a process was last seen at.
func doing(p *evidence.Pod, fp fact.FirstProcess) string {
	text, t := "when last seen ", fp.Leader
	if child := fp.ForwardsTo(); child != nil {
		t = child
	}
	switch {
	case t.State == evidence.Uninterruptible:
		text += "it waited for I/O in " + fact.SleepsIn(t)
	case t.State == evidence.Sleeping && t.Probe != nil && t.Probe.Syscall != "":
		text += "its first thread slept in the system call " + t.Probe.Syscall
	case t.State == evidence.Runnable:
		text += "it ran"
	default:
		text += "it was in state " + string(t.State)
	}
	if g := containerGroup(p, fp.Container.ID); g != nil && g.CPU != nil && g.CPU.RecentMillis > 0 {
		text += fmt.Sprintf(" and the container used %s", processors(g.CPU.RecentMillis))
	}
	return text
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
