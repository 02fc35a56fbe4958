package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// SlowShutdown is a program that handles its stop signal and is not done when
// the grace period ends. Nothing shows that a program that still runs has been
// signalled, since all that comes before that may be late on a slow node; that
// SIGKILL has ended it shows it: the kubelet has it sent a grace period after
// the stop signal (StopContainer of the CRI).
var SlowShutdown = &Rule{
	Cause:  "SlowShutdown",
	When:   AtTheEnd,
	Phases: whileProcessesLive,
	Needs:  []evidence.Source{evidence.Processes, evidence.Containers, evidence.Suspects},
	Doc: Doc{
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
	Check: func(p *evidence.Pod) []Finding {
		var out []Finding
		for _, fp := range slow(p) {
			if fp.squeezed(p) == nil {
				out = append(out, fp.slowFinding(p, fp.doing(p)))
			}
		}
		return out
	},
}

// slow are the first processes that have taken their stop signal, as far as can
// be told, and have not ended within the grace period.
func slow(p *evidence.Pod) []firstProcess {
	if !p.Gone {
		return nil
	}
	var out []firstProcess
	for _, fp := range signalled(p) {
		t := fp.leader
		switch {
		case !fp.took(fp.container.StopSignal), t.CoreDumping:
		case t.State == evidence.Stopped, t.State == evidence.Traced, frozenGroup(p, t) != nil:
		case fp.hangs(p): // SIGKILL shows whether that can end
		case !endedAtDeadline(p, fp.container), fp.container.Exit.Code != killedExit:
		default:
			if c, _ := fp.foreground(p); c != nil {
				continue // its trap has not run
			}
			if c, _ := fp.deafChild(p); c != nil {
				continue
			}
			out = append(out, fp)
		}
	}
	return out
}

// took says that the signal reaches the process and does not wait to be taken.
// A program that takes signals with sigwait or signalfd blocks them.
func (fp firstProcess) took(sig evidence.Signal) bool {
	switch fp.receives(sig) {
	case caught, blocked:
		// A thread that hangs in the kernel leaves it pending.
		return !fp.leader.SharedPending.Has(sig)
	}
	return false
}

// hangs says that a thread waits for a disk, a server or a FUSE daemon and has
// not run for a while. It may be the one that has to take the signal.
func (fp firstProcess) hangs(p *evidence.Pod) bool {
	return slices.ContainsFunc(fp.threads, func(t *evidence.Task) bool {
		return (t.State == evidence.Uninterruptible || through(t, "request_wait_answer")) && t.Unchanged(p.Time) >= Stuck
	})
}

// killedExit is the exit code of a container that SIGKILL has ended.
const killedExit = 128 + int(evidence.SIGKILL)

// lastSeen is how long before the deadline the last reading of a container may
// be, to tell what it was at. Anywhere in the second half of a long grace period
// will do.
const lastSeen = 20 * time.Second

// clockSkew is how far the node's clock, by which a container ends, may be behind
// the API server's, by which the deadline is set. Both count whole seconds.
const clockSkew = 3 * time.Second

// endedAtDeadline says that the container was seen shortly before the deadline
// and has ended after it, soon enough for SIGKILL to be the reason: the end of a
// large or throttled process takes a while.
func endedAtDeadline(p *evidence.Pod, c *evidence.Container) bool {
	if c.Exit == nil || c.Exit.OutOfMemory {
		return false
	}
	late := c.Exit.At.Sub(p.Deadline)
	return late >= -clockSkew && late <= UnknownAfter && p.Deadline.Sub(p.Time) <= max(lastSeen, grace(p)/2)
}

func (fp firstProcess) slowFinding(p *evidence.Pod, doing string) Finding {
	f := fp.finding(p, Proved)
	if child := fp.forwardsTo(); child != nil {
		f.Values["program"], f.Values["pid"] = child.Comm, strconv.Itoa(child.PID)
	}
	f.Values["grace"] = grace(p).String()
	f.Values["doing"] = doing
	f.Values["time"] = clock(fp.container.Exit.At)
	return f
}

// grace is the grace period that the deletion gave the pod.
func grace(p *evidence.Pod) time.Duration {
	return p.Deadline.Sub(p.DeletionRequested).Round(time.Second)
}

// doing says what a process was last seen at.
func (fp firstProcess) doing(p *evidence.Pod) string {
	text, t := "when last seen ", fp.leader
	if child := fp.forwardsTo(); child != nil {
		t = child
	}
	switch {
	case t.State == evidence.Uninterruptible:
		text += "it waited for I/O in " + sleepsIn(t)
	case t.State == evidence.Sleeping && t.Probe != nil && t.Probe.Syscall != "":
		text += "its first thread slept in the system call " + t.Probe.Syscall
	case t.State == evidence.Runnable:
		text += "it ran"
	default:
		text += "it was in state " + string(t.State)
	}
	if g := containerGroup(p, fp.container.ID); g != nil && g.CPU != nil && g.CPU.RecentMillis > 0 {
		text += fmt.Sprintf(" and the container used %s", processors(g.CPU.RecentMillis))
	}
	return text
}

// processors says thousandths of a processor in words.
func processors(millis int64) string {
	return fmt.Sprintf("%d.%02d processors", millis/1000, millis%1000/10)
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
