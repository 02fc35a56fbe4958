package fact

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// shells are the programs whose file or name says that they are a shell.
var shells = map[string]bool{
	"sh": true, "bash": true, "dash": true, "ash": true, "ksh": true, "mksh": true, "zsh": true, "busybox": true,
}

// IsShell reports whether a program of a specification is a shell, which may execute another program in its place.
func IsShell(program string) bool { return shells[program] }

// Shell reports whether the process is a command interpreter. Of a script, comm
// is the script's name, so the program file decides where it is known; busybox
// is any of its applets, so there the name decides. No applet but one has a name
// that fills comm, so such a name is a script's, cut off: docker-entrypoint.sh. A shorter
// one, as of a script called run, is told by what busybox's shell does with signals.
func Shell(t *evidence.Task) bool {
	const maxComm = 15 // TASK_COMM_LEN less the NUL (include/linux/sched.h)
	comm := strings.TrimPrefix(t.Comm, "-")
	if t.Probe != nil && t.Probe.Exe != "" && t.Probe.Exe != "busybox" {
		return shells[t.Probe.Exe]
	}
	if t.Probe != nil && t.Probe.Exe == "busybox" && len(comm) == maxComm {
		return !strings.HasPrefix("start-stop-daemon", comm)
	}
	return comm != "busybox" && shells[comm] || path.Ext(comm) == ".sh" || actsAsBusybox(t)
}

// actsAsBusybox reports whether the process runs busybox and has what its shell sets up
// before a script's first command, whatever the script traps: handlers for SIGCHLD and SIGINT, while
// SIGQUIT is ignored (setsignal, shell/ash.c). Of its other applets init, inetd, tcpsvd and udpsvd have these
// handlers, and none of them ignores SIGQUIT.
func actsAsBusybox(t *evidence.Task) bool {
	return t.Probe != nil && t.Probe.Exe == "busybox" && t.Caught.Has(evidence.SIGCHLD) && t.Caught.Has(evidence.SIGINT) && t.Ignored.Has(evidence.SIGQUIT)
}

// mayBlock reports whether a process, as it is or was, may keep a signal blocked. A shell does not, if it blocks those
// for errors of its own as well: dash and busybox block all for a moment when they start a program, or have missed the end
// of one, and no shell takes signals with sigwait or signalfd.
func mayBlock(t *evidence.Task, shell bool, sig evidence.Signal) bool {
	return t.Blocked.Has(sig) && (!shell || !t.Blocked.Has(evidence.SIGSEGV))
}

// Foreground returns the child that a shell waits for in its foreground, and
// that can be expected to outlive the grace period; nil when there is none, or
// when the evidence leaves a doubt. It is proved where the kind of shell leaves
// no other reason for the wait, else inferred.
//
// A program in the background is started with SIGINT and SIGQUIT ignored (POSIX,
// Asynchronous Lists), which programs keep unless they set up handlers of their own. What bash
// starts for >(program) is in the background and ignores neither; but bash starts nothing while it
// waits for its foreground, so that what is there is the last that it has started. Of a program that reads, as tee does, even
// that tells nothing while another child may be in the background: exec > >(tee) may come after it.
func (fp FirstProcess) Foreground(p *View) (child *evidence.Task, proved bool) {
	if !Shell(fp.Leader) || !fp.SleepsInWait4() || fp.MayHaveStarted(p) {
		return nil, false
	}
	if child, proved = fp.InFront(); child == nil || p.Time.Sub(child.Started()) < fp.Outlasts(p, child) {
		return nil, false
	}
	return child, proved
}

// SleepsInWait4 reports whether the process sleeps in wait4, and its group and its start are known.
func (fp FirstProcess) SleepsInWait4() bool {
	sh := fp.Leader.Probe
	return sh != nil && sh.Syscall == "wait4" && sh.Group != 0 && !sh.Started.IsZero()
}

// MayHaveStarted reports whether a child may have been started since the request for deletion: the trap may be at work.
func (fp FirstProcess) MayHaveStarted(p *View) bool {
	return slices.ContainsFunc(fp.Children, func(c *evidence.Task) bool { return c.Started().IsZero() || mayBeNew(p, c) })
}

// InFront returns the child that is in the foreground of a shell that sleeps in wait4, whatever it may outlive, as Foreground does.
func (fp FirstProcess) InFront() (child *evidence.Task, proved bool) {
	sh := fp.Leader
	if sh.Probe == nil {
		return nil, false
	}
	// dash and busybox wait for the background in sigsuspend, so wait4 is a
	// second proof; bash waits for both in wait4.
	proved = slices.Contains([]string{"dash", "busybox"}, sh.Probe.Exe)
	apart := func(c *evidence.Task) bool { return group(c) != group(sh) } // by job control: the masks tell nothing
	behind := func(c *evidence.Task) bool { return c.Probe != nil && mayBeBehind(c, proved) }
	here := slices.DeleteFunc(slices.Clone(fp.Children), apart)
	front := slices.DeleteFunc(slices.Clone(here), func(c *evidence.Task) bool { return c.Probe == nil || behind(c) })
	if len(front) == 0 {
		return nil, false
	}
	child = slices.MaxFunc(front, byAge) // what is in the foreground was started last
	switch {
	case !proved && (child != slices.MaxFunc(here, byAge) || child.Probe.Syscall == "read" && slices.ContainsFunc(here, behind)):
		return nil, false
	case trapsExit(sh) && (len(fp.Children) > 1 || survives(child, fp.Container.StopSignal)):
		return nil, false
	}
	return child, proved
}

// mayBeBehind reports whether a child of a shell may be in its background: it ignores SIGINT, or, unless it is proved that the shell waits for its
// foreground, is a program that sets up its handlers wherever it runs.
func mayBeBehind(c *evidence.Task, proved bool) bool {
	handles := c.Caught.Has(evidence.SIGINT) || (c.Ignored | c.Caught).Has(evidence.SIGQUIT)
	return c.Ignored.Has(evidence.SIGINT) || !proved && handles && !respectsIgnored(c)
}

// trapsExit reports whether the shell is a bash with a trap for EXIT: it then has a handler for each
// signal that would end it (initialize_terminating_signals, trap.c), SIGILL among them. If it has
// no other trap for the signal, it runs that one immediately, whatever is in its foreground, and what it waits
// for may be what the trap has told to stop.
func trapsExit(sh *evidence.Task) bool { return sh.Caught.Has(evidence.SIGILL) }

// survives reports whether a signal does not end the process by itself.
func survives(t *evidence.Task, sig evidence.Signal) bool {
	return (t.Caught | t.Ignored | t.Blocked).Has(sig)
}

// respectsIgnored reports whether the program is one that sets up no handler for
// SIGINT when it was started with the signal ignored: Java, and Python as far as it has
// no handlers but the interpreter's own. A server in Python, such as uvicorn and
// gunicorn, sets up its own for all that ask it to end, wherever it runs.
func respectsIgnored(t *evidence.Task) bool {
	return t.Probe.Exe == "java" || strings.HasPrefix(t.Probe.Exe, "python") && !t.Caught.Has(evidence.SIGTERM) && !t.Caught.Has(evidence.SIGQUIT)
}

// Outlasts returns for how long a child of a shell must have run, to be none of the short programs that a shell goes through in a loop, which
// comes to its trap between two of them: for as long as is left of the grace period, and for twice as long as all that the shell did before.
func (fp FirstProcess) Outlasts(p *View, child *evidence.Task) time.Duration {
	began := child.Started()
	return max(p.Kill.At.Sub(began)/2, 2*began.Sub(fp.Leader.Started()))
}

// WaitsForOldChild reports whether the process is a shell that waits for a child
// which was there before the deletion: in the foreground, where its trap is put
// off until the child has ended, or in the background. Programs that have
// dispositions of their own, such as python, java and node, do not show which.
func (fp FirstProcess) WaitsForOldChild(p *View) bool {
	sh := fp.Leader
	return Shell(sh) && sh.Probe != nil && sh.Probe.Syscall == "wait4" && slices.ContainsFunc(fp.Children, func(c *evidence.Task) bool {
		return c.Started().IsZero() || c.Probe.Started.Before(p.DeletionRequested)
	})
}
