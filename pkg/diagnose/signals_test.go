package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	bitINT  = 1 << (evidence.SIGINT - 1)
	bitQUIT = 1 << (evidence.SIGQUIT - 1)
	bitILL  = 1 << (evidence.SIGILL - 1)
	bitTERM = 1 << (evidence.SIGTERM - 1)
	bitKILL = 1 << (evidence.SIGKILL - 1)
	bitsAll = 0xfffffffe7ffbfeff // what sigfillset blocks
)

var requested = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// stopping is a pod of one container, ten seconds into a grace period of 30,
// whose first process has not run since the stop signal. change breaks it.
func stopping(change func(p *evidence.Pod, first *evidence.Task)) *evidence.Pod {
	now := requested.Add(10 * time.Second)
	p := &evidence.Pod{
		Time: now, UnchangedSince: requested, Namespace: "n", Name: "p", UID: "u", RuntimeUID: "u", Phase: "Running",
		DeletionRequested: requested, Deadline: requested.Add(30 * time.Second), GracePeriodSeconds: 30,
		Containers: []evidence.Container{{
			Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning, StopSignal: evidence.SIGTERM,
			Task: evidence.ShimTask{Status: "running", PID: 100},
		}},
		Cgroups: []evidence.Cgroup{{Path: "/kubepods/podu/c", Version: 2, Container: "c", Threads: 1, Populated: true}},
		Tasks:   []evidence.Task{task(100, 50, "app", evidence.Sleeping, "epoll_wait")},
	}
	p.Tasks[0].NSpid = []int{100, 1}
	p.Node.Pressure = new(evidence.Pressure)
	change(p, &p.Tasks[0])
	if p.Before == nil {
		p.Before = known(p)
	}
	return p
}

// known is a reading from before the deletion that showed the same processes.
func known(p *evidence.Pod) *evidence.Baseline {
	b := &evidence.Baseline{Read: requested.Add(-time.Minute)}
	for _, t := range p.Tasks {
		if t.Leader() {
			t.Probe, t.SignalsSince = nil, requested.Add(-time.Hour)
			b.Tasks = append(b.Tasks, t)
		}
	}
	return b
}

// wasKnown has the reading from before the deletion differ from what is there now.
func wasKnown(p *evidence.Pod, change func(b *evidence.Baseline, first *evidence.Task)) {
	p.Before = known(p)
	change(p.Before, &p.Before.Tasks[0])
}

// task is a process of one thread that was there before the deletion and has
// not run since.
func task(pid, parent int, comm string, state evidence.TaskState, syscall string) evidence.Task {
	return evidence.Task{
		PID: pid, TID: pid, PPID: parent, NSpid: []int{pid, pid - 99}, Threads: 1, Comm: comm, State: state, Container: "c",
		UnchangedSince: requested, SignalsSince: requested,
		Probe: &evidence.Probe{Start: uint64(pid), Started: requested.Add(-time.Hour), Group: 100, Exe: comm, Syscall: syscall},
	}
}

// gone turns a pod into one that has ended with the given exit code, so long
// after its deadline.
func gone(p *evidence.Pod, code int, after time.Duration) {
	p.Gone = true
	p.Time = p.Deadline.Add(-time.Second) // the last reading
	p.Containers[0].Exit = &evidence.Exit{Code: code, At: p.Deadline.Add(after)}
}

// hooked gives the container a preStop hook, which a shell has executed sleep for.
func hooked(p *evidence.Pod, started time.Time) {
	c := &p.Containers[0]
	c.PreStop, c.PreStopProgram, c.PreStopOnlySleeps = true, "sh", true
	p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
	hook := task(120, 50, "sleep", evidence.Sleeping, "clock_nanosleep")
	hook.Probe.Started = started
	p.Tasks = append(p.Tasks, hook)
}

// sleepy gives the container a preStop hook that sleeps for so many seconds, and asking one that asks
// port 8080 and has had no answer, from a second after the deletion until the last reading. Both end
// the container after its deadline.
func sleepy(p *evidence.Pod, seconds int64, after time.Duration) {
	c := &p.Containers[0]
	c.PreStop, c.PreStopSleep = true, seconds
	gone(p, 137, after)
}

func asking(p *evidence.Pod) {
	c := &p.Containers[0]
	c.PreStop, c.PreStopPort = true, 8080
	gone(p, 137, 2*time.Second)
	p.Requests = []evidence.Request{{Port: 8080, Socket: 500, State: evidence.Established, Since: requested.Add(time.Second)}}
}

// proxied makes the container a proxy whose preStop hook waits for a second one,
// which catches the given signals.
func proxied(p *evidence.Pod, caught evidence.SignalSet) {
	hooked(p, requested.Add(500*time.Millisecond))
	app := task(300, 50, "server", evidence.Sleeping, "epoll_wait")
	app.Container, app.NSpid, app.Caught = "a", []int{300, 1}, caught
	p.Tasks = append(p.Tasks, app)
	gone(p, 137, 2*time.Second)
	p.Containers = append(p.Containers, evidence.Container{
		Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateRunning, StopSignal: evidence.SIGTERM,
		Task: evidence.ShimTask{Status: "running", PID: 300}, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
	})
}

func TestStopSignals(t *testing.T) {
	// trap makes the first process a shell with a trap and a child.
	trap := func(exe string, change func(p *evidence.Pod, child *evidence.Task)) func(*evidence.Pod, *evidence.Task) {
		return func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "sh", exe, "wait4", bitTERM
			child := task(101, 100, "server", evidence.Sleeping, "epoll_wait")
			change(p, &child)
			p.Tasks = append(p.Tasks, child)
		}
	}
	none := func(*evidence.Pod, *evidence.Task) {}
	for name, tc := range map[string]struct {
		change     func(p *evidence.Pod, first *evidence.Task)
		want       string // "" for silence
		confidence diagnose.Confidence
	}{
		"no handler":             {none, "SignalDroppedByPID1", diagnose.Proved},
		"handler":                {func(_ *evidence.Pod, t *evidence.Task) { t.Caught = bitTERM }, "", ""},
		"ignored":                {func(_ *evidence.Pod, t *evidence.Task) { t.Ignored = bitTERM }, "StopSignalIgnored", diagnose.Proved},
		"blocked, nothing waits": {func(_ *evidence.Pod, t *evidence.Task) { t.Blocked = bitTERM }, "", ""},
		"blocked and pending": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested
			p.Time = requested.Add(16 * time.Second)
		}, "StopSignalBlocked", diagnose.Proved},
		"blocked and pending, first seen late, for half of the grace period": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested.Add(11*time.Second)
			t.UnchangedSince = requested.Add(11 * time.Second)
			p.Time = requested.Add(26 * time.Second)
		}, "StopSignalBlocked", diagnose.Proved},
		"blocked and pending, first seen late, for less": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested.Add(11*time.Second)
			t.UnchangedSince = requested.Add(11 * time.Second)
			p.Time = requested.Add(25 * time.Second)
		}, "", ""},
		"blocked and pending for long, and it has run since": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested
			t.UnchangedSince = requested.Add(11 * time.Second)
			p.Time = requested.Add(25 * time.Second)
		}, "", ""},
		"blocked and pending in one reading": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, p.Time
		}, "", ""},
		"ignored by a shared PID namespace's process": {func(p *evidence.Pod, t *evidence.Task) {
			p.ShareProcessNamespace, t.NSpid, t.Ignored = true, []int{100, 7}, bitTERM
		}, "StopSignalIgnored", diagnose.Proved},
		"no handler in a shared PID namespace": {func(p *evidence.Pod, t *evidence.Task) {
			p.ShareProcessNamespace, t.NSpid = true, []int{100, 7}
		}, "", ""},
		"another signal, handler for SIGTERM": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].StopSignal, t.Caught = evidence.SIGQUIT, bitTERM
		}, "StopSignalMismatch", diagnose.Proved},
		"no handler, another thread blocks it": {func(p *evidence.Pod, t *evidence.Task) {
			other := *t
			other.TID, other.Blocked = 102, bitTERM
			p.Tasks = append(p.Tasks, other)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"the leader blocks it, another thread does not": {func(p *evidence.Pod, t *evidence.Task) {
			other := *t
			other.TID = 102
			p.Tasks, t.Blocked = append(p.Tasks, other), bitTERM
			p.Tasks[0].Blocked = bitTERM
		}, "", ""},
		"another signal, no handler": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].StopSignal = evidence.SIGQUIT
		}, "SignalDroppedByPID1", diagnose.Proved},
		"another signal, handled": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].StopSignal, t.Caught = evidence.SIGQUIT, bitTERM|bitQUIT
		}, "", ""},
		"handler for SIGINT only": {func(_ *evidence.Pod, t *evidence.Task) { t.Caught = bitINT }, "SignalDroppedByPID1", diagnose.Proved},
		"preStop hook":            {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].PreStop = true }, "", ""},
		"a second into the grace": {func(p *evidence.Pod, _ *evidence.Task) { p.Time = requested.Add(time.Second) }, "", ""},
		"SIGKILL is late": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Time = p.Deadline.Add(fact.KillLatency)
			p.UnchangedSince = p.Time
		}, "", ""},

		"trap, dash, child in the foreground":  {trap("dash", func(*evidence.Pod, *evidence.Task) {}), "ShellPID1TrapDeferred", diagnose.Proved},
		"trap, bash, child in the foreground":  {trap("bash", func(*evidence.Pod, *evidence.Task) {}), "ShellPID1TrapDeferred", diagnose.Inferred},
		"trap, child in the background":        {trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Ignored = bitINT | bitQUIT }), "", ""},
		"trap, child with handlers of its own": {trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Caught = bitINT }), "", ""},
		"trap, child in a group of its own":    {trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Probe.Group = 101 }), "", ""},
		"trap, child not looked at":            {trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Probe = nil }), "", ""},
		"trap at work since the signal": {trap("bash", func(_ *evidence.Pod,
			c *evidence.Task) {
			c.Probe.Started = requested.Add(time.Second)
		}), "", ""},
		"trap, child that may end before the deadline": {trap("bash", func(_ *evidence.Pod,
			c *evidence.Task) {
			c.Probe.Started = requested.Add(-5 * time.Second)
		}), "", ""},
		"no trap": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall = "sh", "dash", "wait4"
			p.Tasks = append(p.Tasks, task(101, 100, "server", evidence.Sleeping, "epoll_wait"))
		}, "ShellPID1NoTrap", diagnose.Proved},
		"trap at work, by a clock that is behind": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			p.Time, c.Probe.Started = requested.Add(20*time.Second), requested.Add(-2500*time.Millisecond)
		}), "", ""},

		// What was known before the deletion.
		"no handler now, one before": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Caught = bitTERM })
		}, "", ""},
		"no handler now, one before, killed at the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Caught = bitTERM })
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"no handler now, sigwait before, killed at the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Blocked = bitTERM })
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"no handler now, blocked for a moment before, killed at the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.Blocked, t.SignalsSince = bitTERM, b.Read })
			gone(p, 137, 0)
		}, "", ""},
		"ignored now, a handler before": {func(p *evidence.Pod, t *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Caught = bitTERM })
			t.Ignored = bitTERM
		}, "", ""},
		"ignored now, not before": {func(p *evidence.Pod, t *evidence.Task) {
			p.Before, t.Ignored = known(p), bitTERM
		}, "", ""},
		"ignored before, and now not": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Ignored = bitTERM })
		}, "", ""},
		"nothing known from before": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Before = &evidence.Baseline{Read: requested.Add(-time.Minute)}
		}, "", ""},
		"nothing known from before, killed at the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Before = &evidence.Baseline{Read: requested.Add(-time.Minute)}
			gone(p, 137, 0)
		}, "", ""},
		"read too late to be from before": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, _ *evidence.Task) { b.Read = requested.Add(-2 * time.Second) })
		}, "", ""},
		"has run since, and was the same for an hour": {func(p *evidence.Pod, t *evidence.Task) {
			p.Before, t.Switches = known(p), 7
		}, "SignalDroppedByPID1", diagnose.Inferred},
		"has run since, and was the same for ten seconds": {func(p *evidence.Pod, t *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince = b.Read.Add(-10 * time.Second) })
			t.Switches = 7
		}, "", ""},
		"has run since, and was the same for half a minute, a minute ago": {func(p *evidence.Pod, t *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince = b.Read.Add(-30 * time.Second) })
			t.Switches = 7
		}, "", ""},
		"has not run since, and was read once": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince = b.Read })
		}, "SignalDroppedByPID1", diagnose.Proved},
		"has woken up, and its handler is at work": {func(p *evidence.Pod, t *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince = b.Read })
			t.State = evidence.Runnable
		}, "", ""},
		"its first thread has not run since, others may have": {func(p *evidence.Pod, t *evidence.Task) {
			t.Threads = 2
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince = b.Read })
		}, "", ""},
		"has executed another program since": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Comm = "sh" })
		}, "", ""},
		"another process had the number in another container": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(_ *evidence.Baseline, t *evidence.Task) { t.Container = "d" })
		}, "", ""},
		"tini over a program that ignores, which it did not before": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Ignored = bitTERM })(p, t)
			p.Before = known(p)
			p.Before.Tasks[1].Ignored, p.Before.Tasks[1].Caught = 0, bitTERM
		}, "", ""},
		"a trap that has removed itself and waits, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Ignored = bitINT | bitQUIT })(p, t)
			p.Before, p.Tasks[0].Caught = known(p), 0
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},

		// Shells and what they run.
		"trap, dash, python in the foreground": {trap("dash", func(_ *evidence.Pod, c *evidence.Task) {
			c.Caught, c.Probe.Exe = bitINT,
				"python3.11"
		}), "ShellPID1TrapDeferred", diagnose.Proved},
		"trap, bash, python in the foreground": {trap("bash", func(_ *evidence.Pod, c *evidence.Task) {
			c.Caught, c.Probe.Exe = bitINT,
				"python3.11"
		}), "ShellPID1TrapDeferred", diagnose.Inferred},
		"trap, bash, node, wherever it runs": {trap("bash", func(_ *evidence.Pod, c *evidence.Task) { c.Caught, c.Probe.Exe = bitINT, "node" }), "", ""},
		"trap, dash, node in the foreground": {trap("dash", func(_ *evidence.Pod, c *evidence.Task) { c.Caught, c.Probe.Exe = bitINT, "node" }),
			"ShellPID1TrapDeferred", diagnose.Proved},
		"trap, bash, what it has started for >(tee) is older than the server": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			tee := task(102, 100, "tee", evidence.Sleeping, "read")
			tee.Probe.Start = c.Probe.Start
			c.Probe.Start++
			c.Ignored, c.Caught = bitINT|bitQUIT, bitTERM
			p.Tasks = append(p.Tasks, tee)
		}), "", ""},
		"trap, bash, what it has started for >(tee) is older than a server with handlers of its own": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			tee := task(102, 100, "tee", evidence.Sleeping, "read")
			tee.Probe.Start = c.Probe.Start
			c.Probe.Start++
			c.Caught, c.Probe.Exe = bitINT|bitTERM, "node"
			p.Tasks = append(p.Tasks, tee)
		}), "", ""},
		"trap, bash, what it has started for >(tee) is younger than the server": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			server := task(102, 100, "server", evidence.Sleeping, "epoll_wait")
			server.Ignored, server.Caught, server.Probe.Start = bitINT|bitQUIT, bitTERM, c.Probe.Start
			c.Comm, c.Probe.Exe, c.Probe.Syscall = "tee", "tee", "read"
			c.Probe.Start++
			p.Tasks = append(p.Tasks, server)
		}), "", ""},
		"trap, bash, what it has started for >(tee) is younger than a server with handlers of its own": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			server := task(102, 100, "node", evidence.Sleeping, "epoll_wait")
			server.Caught, server.Probe.Start = bitINT|bitTERM, c.Probe.Start
			c.Comm, c.Probe.Exe, c.Probe.Syscall = "tee", "tee", "read"
			c.Probe.Start++
			p.Tasks = append(p.Tasks, server)
		}), "", ""},
		"trap, bash, a server writes to tee in the foreground": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			server := task(102, 100, "server", evidence.Sleeping, "epoll_wait")
			server.Probe.Start = c.Probe.Start
			c.Comm, c.Probe.Exe, c.Probe.Syscall = "tee", "tee", "read"
			c.Probe.Start++
			p.Tasks = append(p.Tasks, server)
		}), "ShellPID1TrapDeferred", diagnose.Inferred},
		"trap, dash, a program that may end before a SIGKILL that comes late": {trap("dash", func(p *evidence.Pod, c *evidence.Task) {
			p.Time, p.StopBegun, p.StopAwaitedUntil = requested.Add(14*time.Second), true, requested.Add(12*time.Second)
			c.Probe.Started = requested.Add(-4 * time.Second)
			p.Tasks[0].Probe.Started = c.Probe.Started.Add(-time.Second)
		}), "", ""},
		"trap, bash, a server is older than what is in the foreground": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			server := task(102, 100, "server", evidence.Sleeping, "epoll_wait")
			server.Ignored, server.Probe.Start = bitINT|bitQUIT, c.Probe.Start
			c.Probe.Start++
			p.Tasks = append(p.Tasks, server)
		}), "ShellPID1TrapDeferred", diagnose.Inferred},
		"trap for EXIT, bash, a server in the background, and a program in the foreground": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			p.Tasks[0].Caught |= bitILL
			server := task(102, 100, "server", evidence.Sleeping, "epoll_wait")
			server.Ignored, server.Caught, server.Probe.Start = bitINT|bitQUIT, bitTERM, c.Probe.Start
			c.Probe.Start++
			p.Tasks = append(p.Tasks, server)
		}), "", ""},
		"trap for EXIT, bash, a program in the foreground that handles the signal": {trap("bash", func(p *evidence.Pod, c *evidence.Task) {
			p.Tasks[0].Caught |= bitILL
			c.Caught = bitTERM
		}), "", ""},
		"trap for EXIT, bash, a program in the foreground that the signal would end": {trap("bash", func(p *evidence.Pod, _ *evidence.Task) {
			p.Tasks[0].Caught |= bitILL
		}), "ShellPID1TrapDeferred", diagnose.Inferred},
		"trap, dash, node in the background, short sleeps": {func(p *evidence.Pod, t *evidence.Task) {
			trap("dash", func(_ *evidence.Pod, c *evidence.Task) { c.Caught, c.Probe.Exe = bitINT, "node" })(p, t)
			loop := task(102, 100, "sleep", evidence.Sleeping, "clock_nanosleep")
			loop.Probe.Started = requested.Add(-4 * time.Second)
			p.Tasks = append(p.Tasks, loop)
		}, "", ""},
		"trap, dash, long sleeps in a loop": {trap("dash", func(p *evidence.Pod, c *evidence.Task) {
			p.Time, c.Probe.Started = requested.Add(20*time.Second), requested.Add(-8*time.Second)
		}), "", ""},
		"trap, dash, a server after a migration": {trap("dash", func(_ *evidence.Pod, c *evidence.Task) {
			c.Probe.Started = c.Probe.Started.Add(10 * time.Minute)
		}), "ShellPID1TrapDeferred", diagnose.Proved},
		"stop signal QUIT, a shell over a program": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Caught, t.Ignored = "sh", "bash", "wait4", bitINT, bitQUIT
			p.Containers[0].StopSignal = evidence.SIGQUIT
			p.Tasks = append(p.Tasks, task(101, 100, "php-fpm", evidence.Sleeping, "epoll_wait"))
		}, "ShellPID1NoTrap", diagnose.Proved},
		"stop signal INT, a shell with its own handler over a program": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Caught = "sh", "dash", "wait4", bitINT
			p.Containers[0].StopSignal = evidence.SIGINT
			p.Tasks = append(p.Tasks, task(101, 100, "postgres", evidence.Sleeping, "epoll_wait"))
		}, "", ""},
		"stop signal INT, a shell with its own handler, killed": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Caught = "sh", "dash", "wait4", bitINT
			p.Containers[0].StopSignal = evidence.SIGINT
			gone(p, 137, 0)
		}, "", ""},
		"stop signal QUIT, a shell with a trap for TERM alone": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Caught = "sh", "dash", "rt_sigsuspend", bitINT|bitTERM
			p.Containers[0].StopSignal = evidence.SIGQUIT
		}, "StopSignalMismatch", diagnose.Proved},
		"a script that busybox runs": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall = "docker-entrypoi", "busybox", "wait4"
			p.Tasks = append(p.Tasks, task(101, 100, "nginx", evidence.Sleeping, "epoll_wait"))
		}, "ShellPID1NoTrap", diagnose.Proved},
		"busybox's httpd": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe = "httpd", "busybox"
			p.Tasks = append(p.Tasks, task(101, 100, "httpd", evidence.Sleeping, "epoll_wait"))
		}, "SignalDroppedByPID1", diagnose.Proved},
		"tini over a trap, the program in its foreground handles the signal": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) {
				c.Comm, c.Probe.Exe, c.Probe.Syscall, c.Caught = "sh", "dash", "wait4", bitTERM
			})(p, t)
			server := task(102, 101, "server", evidence.Sleeping, "epoll_wait")
			server.Caught = bitTERM
			p.Tasks = append(p.Tasks, server)
		}, "", ""},
		"tini over a trap, the program in its foreground does not": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) {
				c.Comm, c.Probe.Exe, c.Probe.Syscall, c.Caught = "sh", "dash", "wait4", bitTERM
			})(p, t)
			p.Tasks = append(p.Tasks, task(102, 101, "server", evidence.Sleeping, "epoll_wait"))
		}, "ChildIgnoresForwardedSignal", diagnose.Proved},
		"dumb-init, of which a child was not read": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Blocked = "dumb-init", "dumb-init", "rt_sigtimedwait", bitsAll
			a, b := task(101, 100, "server", evidence.Sleeping, "epoll_wait"), task(118, 100, "chrome", evidence.Sleeping, "epoll_wait")
			a.Ignored, b.Probe = bitTERM, nil
			p.Tasks = append(p.Tasks, a, b)
		}, "", ""},
		"dumb-init that is gone, of which a child was not read": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Blocked = "dumb-init", "dumb-init", "rt_sigtimedwait", bitsAll
			a, b := task(101, 100, "server", evidence.Sleeping, "epoll_wait"), task(118, 100, "chrome", evidence.Sleeping, "epoll_wait")
			a.Ignored, b.Probe = bitTERM, nil
			p.Tasks = append(p.Tasks, a, b)
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"dumb-init over a program that ignores TERM and handles QUIT": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Ignored, c.Caught = bitTERM, bitQUIT })(p, t)
			t.Comm, t.Probe.Exe = "dumb-init", "dumb-init"
		}, "", ""},
		"a program that blocks the signal and works": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested
			p.Time = requested.Add(20 * time.Second)
			t.UnchangedSince = requested.Add(19 * time.Second)
		}, "", ""},
		"a program that blocks the signal, in the first half of the grace period": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested
		}, "", ""},
		"a debugging shell in the PID namespace of another container": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Kind, t.NSpid, t.Ignored = evidence.Ephemeral, []int{100, 12}, bitTERM
		}, "", ""},
		"computes": {func(_ *evidence.Pod, t *evidence.Task) {
			t.State, t.Probe.Syscall = evidence.Runnable, ""
		}, "SignalDroppedByPID1", diagnose.Inferred},
		"asleep, its system call is not known": {func(_ *evidence.Pod, t *evidence.Task) { t.Probe.Syscall = "" }, "", ""},
		"another thread waits for signals that the first one does not block": {func(p *evidence.Pod, _ *evidence.Task) {
			helper := task(100, 50, "timer", evidence.Sleeping, "rt_sigtimedwait")
			helper.TID = 101
			p.Tasks = append(p.Tasks, helper)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"another thread waits for signals that all of them block": {func(p *evidence.Pod, t *evidence.Task) {
			helper := task(100, 50, "signals", evidence.Sleeping, "rt_sigtimedwait")
			helper.TID = 101
			t.Blocked = bitTERM
			p.Tasks = append(p.Tasks, helper)
			p.Tasks[0].Blocked = bitTERM
		}, "", ""},

		"tini over a program that ignores": {tini(func(c *evidence.Task) { c.Ignored = bitTERM }), "ChildIgnoresForwardedSignal", diagnose.Proved},
		"tini over a program that blocks, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Blocked, c.SharedPending, c.PendingSince = bitTERM, bitTERM, requested })(p, t)
			gone(p, 137, 0)
		}, "ChildIgnoresForwardedSignal", diagnose.Proved},
		"tini over a program that blocks, and exits after all": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Blocked, c.SharedPending, c.PendingSince = bitTERM, bitTERM, requested })(p, t)
			gone(p, 0, 0)
		}, "", ""},
		"tini over a program that handles": {tini(func(c *evidence.Task) { c.Caught = bitTERM }), "", ""},
		"tini over a program that dies":    {tini(func(*evidence.Task) {}), "", ""},
		"tini with an orphan that ignores": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Caught = bitTERM })(p, t)
			orphan := task(120, 100, "daemon", evidence.Sleeping, "pause")
			orphan.Ignored = bitTERM
			p.Tasks = append(p.Tasks, orphan)
		}, "", ""},
		"tini over a stopped program": {tini(func(c *evidence.Task) { c.State = evidence.Stopped }), "ProcessStopped", diagnose.Proved},

		"stopped": {func(_ *evidence.Pod, t *evidence.Task) { t.State, t.Caught = evidence.Stopped, bitTERM }, "ProcessStopped", diagnose.Proved},
		"stopped a moment ago": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.Caught, t.UnchangedSince = evidence.Stopped, bitTERM, p.Time.Add(-time.Second)
		}, "", ""},
		"held by a tracer": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.Caught, t.TracerPID = evidence.Traced, bitTERM, 300
			p.Parents = []evidence.Task{{PID: 300, TID: 300, Comm: "gdb"}}
		}, "ProcessTraced", diagnose.Proved},
		"traced, runs": {func(_ *evidence.Pod, t *evidence.Task) { t.Caught, t.TracerPID = bitTERM, 300 }, "", ""},
		"held at its exit, long after the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.State, t.TracerPID = evidence.Traced, 300
			t.Probe.Stack = []string{"ptrace_stop", "ptrace_event", "do_exit"}
			p.Time = p.Deadline.Add(5 * time.Minute)
		}, "ProcessTraced", diagnose.Proved},
		"frozen": {func(p *evidence.Pod, t *evidence.Task) { t.Caught, p.Cgroups[0].Frozen = bitTERM, true }, "ContainerFrozen", diagnose.Proved},
		"frozen a moment ago": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.Cgroups[0].Frozen, t.UnchangedSince = bitTERM, true, p.Time
		}, "", ""},
		"frozen on v1, long after SIGKILL": {func(p *evidence.Pod, t *evidence.Task) {
			p.Cgroups[0].Frozen, p.Cgroups[0].Version = true, 1
			t.State, t.Pending = evidence.Uninterruptible, bitKILL
			p.Time = p.Deadline.Add(5 * time.Minute)
		}, "ContainerFrozen", diagnose.Proved},
		"the grace period is over, SIGKILL is late": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Time = p.Deadline.Add(4 * time.Second)
		}, "", ""},
		"kubelet stopped": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Stopped}
		}, "", ""},
		"kubelet hangs on its disk": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Uninterruptible, UnchangedSince: requested}
		}, "", ""},
		"kubelet started anew since the deletion": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
				Probe: &evidence.Probe{Started: requested.Add(time.Second)}}
		}, "", ""},
		"kubelet unwell": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Health = "[-]syncloop failed: sync Loop took longer than expected"
		}, "", ""},
		"kubelet well": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
				Probe: &evidence.Probe{Started: requested.Add(-time.Hour)}}
			p.Node.Kubelet.Health = "ok"
		}, "SignalDroppedByPID1", diagnose.Proved},
		"shim stopped, in the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Stopped})
		}, "", ""},
		"a shell between two programs of a loop": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.HadChild = "sh", "busybox", true
		}, "ShellPID1NoTrap", diagnose.Proved},
		"a shell that has run programs before, and runs none now": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped = "sh", "busybox", 100
		}, "ShellPID1NoTrap", diagnose.Proved},
		"a shell that has never run a program": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe = "sh", "busybox"
		}, "SignalDroppedByPID1", diagnose.Proved},
		"a shell that blocks all signals for a moment": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped, t.Blocked = "sh", "dash", 100, bitsAll
		}, "ShellPID1NoTrap", diagnose.Proved},
		"a shell that blocked all signals for a moment, before": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped = "sh", "dash", 100
			wasKnown(p, func(_ *evidence.Baseline, b *evidence.Task) { b.Comm, b.Blocked = "sh", bitsAll })
		}, "ShellPID1NoTrap", diagnose.Proved},
		"a shell that blocks all signals for a moment, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped, t.Blocked = "sh", "dash", 100, bitsAll
			wasKnown(p, func(_ *evidence.Baseline, b *evidence.Task) { b.Comm, b.Blocked = "sh", bitsAll })
			gone(p, 137, 0)
		}, "ShellPID1NoTrap", diagnose.Proved},
		"a shell that blocks other signals from reading to reading": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped = "sh", "dash", 100
			t.SignalsSince, t.ActionsSince = p.Time, requested
		}, "ShellPID1NoTrap", diagnose.Proved},
		"another program that blocks others from reading to reading": {func(p *evidence.Pod, t *evidence.Task) {
			t.SignalsSince, t.ActionsSince = p.Time, requested
		}, "", ""},
		"another program that has run programs": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Reaped = "python3", "python3.11", 100
		}, "SignalDroppedByPID1", diagnose.Proved},
		"the runtime could not send it, in the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			p.KillFailures = []evidence.KillFailure{{Count: 1, Text: "failed to stop container: unknown error after kill: unable to signal init: permission denied"}}
		}, "", ""},
		"kubelet is gone and was never asked for its health": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Read = p.Time
		}, "", ""},
		"kubelet is part of another program": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Read, p.Node.Kubelet.Health = p.Time, "ok"
		}, "SignalDroppedByPID1", diagnose.Proved},
		"kubelet could not be looked for": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Read, p.Node.Kubelet.Error = p.Time, "list of processes: permission denied"
		}, "SignalDroppedByPID1", diagnose.Proved},
		"another container's image could not be pulled, and will be tried again": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers = append(p.Containers, evidence.Container{Name: "second", Kind: evidence.App, Waiting: true, BackedOff: true})
		}, "SignalDroppedByPID1", diagnose.Proved},
		"another container could not be created, and the runtime tries again": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers = append(p.Containers, evidence.Container{Name: "second", Kind: evidence.App, Waiting: true, BackedOff: true})
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "create", Container: "d"}}
		}, "", ""},
		"another container's image is being pulled": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers = append(p.Containers, evidence.Container{Name: "second", Kind: evidence.App, Waiting: true})
		}, "", ""},
		"another container could not be created, and the kubelet has begun to stop the pod": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers, p.StopBegun = append(p.Containers, evidence.Container{Name: "second", Kind: evidence.App, Waiting: true}), true
		}, "SignalDroppedByPID1", diagnose.Proved},
		"the kubelet has not begun to stop the pod": {func(p *evidence.Pod, _ *evidence.Task) { p.StopAwaited = true }, "", ""},
		"killed at the deadline of a kubelet that has begun late": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.StopBegun, p.StopAwaitedUntil = bitTERM, true, requested.Add(11*time.Second)
			gone(p, 137, 0)
		}, "", ""},
		"killed at the deadline of a kubelet that has begun at once": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.StopBegun, p.StopAwaitedUntil = bitTERM, true, requested.Add(2*time.Second)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"its postStart hook runs": {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].Waiting = true }, "", ""},
		"killed at the deadline of a kubelet that was started anew": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
				Probe: &evidence.Probe{Started: requested.Add(time.Second)}}
			gone(p, 137, 0)
		}, "", ""},
		"an init container drops the signal, the others are not there yet": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Kind = evidence.Init
			p.Containers = append(p.Containers, evidence.Container{Name: "second", Kind: evidence.App, Waiting: true})
		}, "SignalDroppedByPID1", diagnose.Proved},
		"another container's group is frozen": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: "/kubepods/podu/d", Version: 2, Container: "d", Frozen: true})
		}, "", ""},

		"killed at the deadline while it drained": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline while it drained, of which nothing is known from before": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.Before = bitTERM, new(evidence.Baseline)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline, of which nothing is known from before, its handler was seen to come": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.Before = bitTERM, new(evidence.Baseline)
			p.UnchangedSince, t.SignalsSince = requested.Add(2*time.Second), requested.Add(6*time.Second)
			gone(p, 137, 0)
		}, "", ""},
		"killed at the deadline, of which nothing is known from before, its handler was there": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.Before = bitTERM, new(evidence.Baseline)
			p.UnchangedSince, t.SignalsSince = requested.Add(2*time.Second), requested.Add(2*time.Second)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline, last seen in a handler that blocks all signals": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Before, t.Blocked = known(p), ^evidence.SignalSet(0)
			gone(p, 137, 0)
			t.SignalsSince = p.Time
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline, last seen in a handler, of which nothing is known from before": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, t.Blocked, p.Before = bitTERM, ^evidence.SignalSet(0), new(evidence.Baseline)
			gone(p, 137, 0)
			t.SignalsSince = p.Time
		}, "", ""},
		"killed at the deadline, had other handlers before, too": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM | bitINT
			p.Before, t.Caught = known(p), bitTERM
			gone(p, 137, 0)
			t.SignalsSince = p.Time
		}, "", ""},
		"killed at the deadline, its handler came after the deletion": {func(p *evidence.Pod, t *evidence.Task) {
			p.Before, t.Caught = known(p), bitTERM
			gone(p, 137, 0)
		}, "", ""},
		"killed at the deadline, had just been started": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, t.Probe.Started, p.Before = bitTERM, requested.Add(-10*time.Second), new(evidence.Baseline)
			gone(p, 137, 0)
		}, "", ""},
		"tini over a program whose handler came after the deletion, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(*evidence.Task) {})(p, t)
			p.Before = known(p)
			p.Tasks[1].Caught = bitTERM
			gone(p, 137, 0)
		}, "", ""},
		"killed at the deadline, the runtime could not send the stop signal": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.KillFailures = []evidence.KillFailure{{Text: "error killing pod: failed to \"KillContainer\"", First: requested, Last: requested, Count: 1}}
			gone(p, 137, 0)
		}, "", ""},
		"killed at the deadline, with a tracer that lets it run": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, t.TracerPID = bitTERM, 7
			gone(p, 137, 0)
		}, "", ""},
		"a sidecar is stopped when the app has used up the grace period": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Kind, t.Caught = evidence.Sidecar, bitTERM
			gone(p, 137, 2*time.Second) // the kubelet gives it its least, two seconds
			p.Time = p.Deadline.Add(time.Second)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateExited, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
			})
		}, "", ""},
		"a sidecar that had the grace period, the app had ended at once": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Kind, t.Caught = evidence.Sidecar, bitTERM
			gone(p, 137, 0)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateExited, Exit: &evidence.Exit{At: requested.Add(time.Second)},
			})
		}, "SlowShutdown", diagnose.Proved},
		"a sidecar waits for the one behind it": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Kind, t.Caught = evidence.Sidecar, bitTERM
			gone(p, 137, 2*time.Second)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "logs", Kind: evidence.Sidecar, ID: "l", State: evidence.StateRunning, StopSignal: evidence.SIGTERM,
				PreStop: true, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
			})
		}, "", ""},
		"a sidecar that drops the signal waits for the one behind it": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Kind = evidence.Sidecar
			p.Containers = append(p.Containers, evidence.Container{Name: "logs", Kind: evidence.Sidecar, ID: "l", State: evidence.StateRunning})
		}, "", ""},
		"trap, python in the foreground, gone": {func(p *evidence.Pod, t *evidence.Task) {
			trap("dash", func(_ *evidence.Pod, c *evidence.Task) { c.Comm, c.Caught = "python3", bitINT })(p, t)
			gone(p, 137, 0)
		}, "ShellPID1TrapDeferred", diagnose.Proved},
		"force delete with a finalizer": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Deadline = p.DeletionRequested
			gone(p, 137, 0)
		}, "", ""},
		"killed by a person, long after the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 20*time.Second)
			p.Time = p.Deadline.Add(19 * time.Second)
		}, "", ""},
		"throttled for four seconds, then asleep until the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			var last *evidence.Pod
			for s, n := 0, uint64(0); s <= 28; s += 2 { // a period of 100 ms counts only while something runs
				busy := min(uint64(s), 4) * 10
				now := &evidence.Pod{UID: "u", Time: requested.Add(time.Duration(s) * time.Second), Cgroups: []evidence.Cgroup{{Path: p.Cgroups[0].Path}}}
				now.Cgroups[0].CPU = &evidence.CPU{Millis: 100, Periods: busy + n, Throttled: busy, UsedMicros: busy*10_000 + n*1000}
				now.Since(last)
				if last = now; s >= 4 {
					n++
				}
			}
			p.Cgroups[0].CPU = last.Cgroups[0].CPU
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"the pod's group is throttled by another container": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: "/kubepods/podu", Version: 2, CPU: &evidence.CPU{Millis: 2000, RecentMillis: 2000,
				ThrottledSince: requested}})
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline, takes signals with signalfd": {func(p *evidence.Pod, t *evidence.Task) {
			t.Blocked = bitTERM
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"killed at the deadline, not seen since its beginning": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 0)
			p.Time = p.Deadline.Add(-25 * time.Second)
		}, "", ""},
		"killed at the deadline, its end takes half a minute": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 30*time.Second)
		}, "SlowShutdown", diagnose.Proved},
		"gone long after the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 5*time.Minute)
		}, "", ""},
		"hung in the kernel when last seen": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, t.State = bitTERM, evidence.Uninterruptible
			gone(p, 137, 0)
		}, "", ""},
		"ended by itself in the last second": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 0, 0)
		}, "", ""},
		"killed before the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, -4*time.Second)
		}, "", ""},
		"killed at the deadline, by a clock that is behind": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, -2*time.Second)
		}, "SlowShutdown", diagnose.Proved},
		"its preStop hook used up the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 137, 2*time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook used up the grace period, and was started a while after the kubelet had asked for it": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(1500*time.Millisecond))
			gone(p, 137, 2*time.Second)
			p.Time = p.Deadline.Add(time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook is ready to run on a node without a processor for it": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, 2*time.Second)
			p.Tasks[1].State, p.Node.Pressure = evidence.Runnable, &evidence.Pressure{CPU: 98, StarvedUntil: p.Time}
		}, "", ""},
		"what its preStop hook waits for is ready to run on such a node": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks[1].Comm, p.Tasks[1].Probe.Exe = "sh", "dash"
			child := task(121, 120, "sleep", evidence.Runnable, "")
			child.Probe.Started = requested.Add(time.Second)
			p.Tasks = append(p.Tasks, child)
			gone(p, 137, 2*time.Second)
			p.Node.Pressure = &evidence.Pressure{CPU: 98, StarvedUntil: p.Time}
		}, "", ""},
		"its preStop hook sleeps on a node without a processor": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, 2*time.Second)
			p.Tasks[1].State, p.Node.Pressure = evidence.Sleeping, &evidence.Pressure{CPU: 98, StarvedUntil: p.Time}
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook computes": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, 2*time.Second)
			p.Tasks[1].State, p.Node.Pressure = evidence.Runnable, &evidence.Pressure{CPU: 10}
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook began late": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(20*time.Second))
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"its preStop hook, and the program ended by itself": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, 2*time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook, and the program ended immediately when it was sent its signal": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook, and the program ended by itself before the end": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 0, -2*time.Second)
		}, "", ""},
		"its preStop hook was last seen long before the end": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			gone(p, 137, 2*time.Second)
			p.Time = p.Deadline.Add(-10 * time.Second)
		}, "", ""},
		"somebody's kubectl exec from before the deletion": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(-time.Minute))
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"somebody's kubectl exec beside the preStop hook": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			other := task(121, 50, "sh", evidence.Sleeping, "wait4")
			other.Probe.Started = requested.Add(3 * time.Second)
			p.Tasks = append(p.Tasks, other)
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"somebody's kubectl exec with a terminal, in the moment of the deletion": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks[1].Comm, p.Tasks[1].Probe.Exe, p.Tasks[1].Probe.Terminal = "sh", "dash", true
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"somebody's kubectl exec, a second before the deletion": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(-time.Second))
			gone(p, 137, 0)
		}, "", ""},
		"its preStop hook sleeps as long as the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 2*time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook sleeps for longer than a deletion with a shorter grace period gives": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 600, 2*time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook sleeps and leaves two seconds": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 28, time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook sleeps and leaves three seconds": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 27, time.Second)
		}, "", ""},
		"its preStop hook sleeps for half of the grace period, and the program handles and is slow": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			sleepy(p, 15, time.Second)
		}, "SlowShutdown", diagnose.Proved},
		"no handler, and its preStop hook has slept": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep, p.Time = true, 5, requested.Add(16*time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, and the kubelet has begun late with its preStop hook": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep, p.Time = true, 5, requested.Add(25*time.Second)
			p.StopBegun, p.StopAwaitedUntil = true, requested.Add(14*time.Second)
		}, "", ""},
		"no handler, and its preStop hook may have slept": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep, p.Time = true, 5, requested.Add(14*time.Second)
		}, "", ""},
		"no handler, and its preStop hook, sleep(1), has ended": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Containers[0].PreStopProgram, p.Time, p.Tasks = "sleep", requested.Add(11*time.Second), p.Tasks[:1]
			p.Containers[0].HookOver = requested.Add(8 * time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, and its preStop hook, sleep(1), may not have begun": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Containers[0].PreStopProgram, p.Time, p.Tasks = "sleep", requested.Add(9*time.Second), p.Tasks[:1]
			p.Containers[0].HookOver = requested.Add(8 * time.Second)
		}, "", ""},
		"no handler, and whether its preStop hook, sleep(1), is being executed is not known": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Containers[0].PreStopProgram, p.Time, p.Tasks = "sleep", requested.Add(11*time.Second), p.Tasks[:1]
			p.Lack(evidence.RuntimeCommands, "no time was left")
		}, "", ""},
		"no handler, and its preStop hook, sleep(1), runs": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Containers[0].PreStopProgram, p.Time = "sleep", requested.Add(11*time.Second)
		}, "", ""},
		"no handler, and its preStop hook, a shell, has ended": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Time, p.Tasks, p.Containers[0].HookOver = requested.Add(11*time.Second), p.Tasks[:1], requested.Add(8*time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, and its preStop hook, a shell, was seen and has ended soon": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Time, p.Tasks, p.StopBegun = requested.Add(7*time.Second), p.Tasks[:1], true
			p.Containers[0].HookSeen, p.Containers[0].HookOver = requested.Add(3*time.Second), requested.Add(5*time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, and its preStop hook, a script that may have asked the program to end, has ended": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Time, p.Tasks, p.Containers[0].HookOver = requested.Add(11*time.Second), p.Tasks[:1], requested.Add(8*time.Second)
			p.Containers[0].PreStopOnlySleeps = false
		}, "", ""},
		"no handler, gone, and its preStop hook, a script, has ended": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks, p.Containers[0].PreStopOnlySleeps = p.Tasks[:1], false
			gone(p, 137, 0)
			p.Containers[0].HookOver = requested.Add(20 * time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, gone, and its preStop hook, a shell, has left ten seconds": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks = p.Tasks[:1]
			gone(p, 137, 0)
			p.Containers[0].HookOver = requested.Add(20 * time.Second)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"its preStop hook has slept, and the program blocks the signal": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep, p.Time = true, 10, requested.Add(25*time.Second)
			t.Blocked, t.SharedPending, t.PendingSince = bitTERM, bitTERM, requested.Add(10*time.Second)
		}, "StopSignalBlocked", diagnose.Proved},
		"its preStop hook sleeps, by a kubelet that does not know such hooks": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 0)
		}, "", ""},
		"its preStop hook sleeps, and the program ended by itself": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 2*time.Second)
			p.Containers[0].Exit.Code = 0
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook sleeps, and the container ended long before": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, -20*time.Second)
		}, "", ""},
		"its preStop hook sleeps, and the kubelet was started anew": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 2*time.Second)
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
				Probe: &evidence.Probe{Started: requested.Add(time.Second)}}
		}, "", ""},
		"its preStop hook sleeps, and the kubelet is stopped": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 2*time.Second)
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Stopped}
		}, "", ""},
		"its preStop hook sleeps, and it is deleted by force": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Deadline, p.GracePeriodSeconds = requested, 0
			sleepy(p, 30, 2*time.Second)
		}, "", ""},
		"its preStop hook sleeps, by a kubelet that does not know such hooks, and whole seconds make it look late": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, time.Second)
		}, "", ""},
		"its preStop hook sleeps and leaves one second": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 29, time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"another container's preStop hook sleeps": {func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 30, 2*time.Second)
			p.Containers = append(p.Containers, p.Containers[0])
			p.Containers[1].Name, p.Containers[1].ID, p.Containers[1].Exit = "other", "o", &evidence.Exit{At: requested.Add(time.Second)}
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep = false, 0
		}, "SignalDroppedByPID1", diagnose.Proved},
		"its preStop hook has no answer": {func(p *evidence.Pod, _ *evidence.Task) { asking(p) }, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook cannot connect": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Requests[0].State = "SYN_SENT"
		}, "PreStopHookRunning", diagnose.Inferred},
		"its preStop hook has had its answer": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			asking(p)
			p.Requests = nil
		}, "", ""},
		"another request has no answer, and the program that is slow is killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			asking(p)
			gone(p, 137, time.Second)
		}, "", ""},
		"its preStop hook had no answer some seconds before the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Time = p.Deadline.Add(-3 * time.Second)
		}, "", ""},
		"its preStop hook had no answer, long before the end": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Containers[0].Exit.At = p.Deadline.Add(8 * time.Second)
		}, "", ""},
		"another request, late in the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Requests[0].Since = requested.Add(20 * time.Second)
		}, "", ""},
		"its preStop hook has no answer, and the program is killed a whole grace period later": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Time, p.Containers[0].Exit.At = p.Deadline.Add(28*time.Second), p.Deadline.Add(30*time.Second)
		}, "", ""},
		"a request to another port": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Requests[0].Port = 8081
		}, "", ""},
		"two containers ask the same port, and one request has no answer": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Containers = append(p.Containers, p.Containers[0])
			p.Containers[1].Name, p.Containers[1].ID = "other", "o"
		}, "", ""},
		"two containers ask the same port, of which one has ended, and a connection was never used": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Containers = append(p.Containers, p.Containers[0])
			p.Containers[1].Name, p.Containers[1].ID, p.Containers[1].State = "other", "o", evidence.StateExited
			p.Containers[1].Exit = &evidence.Exit{At: requested.Add(time.Second)}
		}, "", ""},
		"a preStop hook asks for the end of the app, which is slow": {func(p *evidence.Pod, _ *evidence.Task) {
			asking(p)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
			})
		}, "", ""},
		"its preStop hook is a shell, and still one": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks[1].Comm, p.Tasks[1].Probe.Exe = "sh", "dash"
			gone(p, 137, 2*time.Second)
		}, "PreStopHookRunning", diagnose.Inferred},
		"another program than the hook's": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Containers[0].PreStopProgram = "drain"
			gone(p, 137, 2*time.Second)
		}, "", ""},
		"trap, bash, a Python server in the background with handlers of its own": {trap("bash", func(_ *evidence.Pod, c *evidence.Task) {
			c.Comm, c.Probe.Exe, c.Caught = "uvicorn", "python3.11", bitINT|bitTERM
		}), "", ""},
		"tini -g over a script that ignores, and outlives the server that handles": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) {
				c.Comm, c.Probe.Exe, c.Probe.Syscall, c.Ignored = "sh", "dash", "wait4", bitTERM
			})(p, t)
			server := task(102, 101, "node", evidence.Sleeping, "epoll_wait")
			server.Caught = bitTERM
			p.Tasks = append(p.Tasks, server)
		}, "", ""},
		"tini -g over a script that ignores, and a server that does": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) {
				c.Comm, c.Probe.Exe, c.Probe.Syscall, c.Ignored = "sh", "dash", "wait4", bitTERM
			})(p, t)
			server := task(102, 101, "server", evidence.Sleeping, "epoll_wait")
			server.Ignored = bitTERM
			p.Tasks = append(p.Tasks, server)
		}, "ChildIgnoresForwardedSignal", diagnose.Proved},
		"sigwait for a signal that it has not blocked, which is dropped, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.Caught = "python3", "python3.11", "rt_sigtimedwait", bitINT
			gone(p, 137, 0)
		}, "", ""},
		"tini over a program that handles, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Caught = bitTERM })(p, t)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"tini over a program that has removed its handler, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(*evidence.Task) {})(p, t)
			p.Before = known(p)
			p.Before.Tasks[1].Caught = bitTERM
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"tini over a program that ignores, not known from before, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Ignored = bitTERM })(p, t)
			p.Before = new(evidence.Baseline)
			gone(p, 137, 0)
		}, "", ""},
		"tini over a program that leaves the signal pending, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) { c.Blocked, c.SharedPending, c.PendingSince = bitTERM, bitTERM, requested })(p, t)
			p.Tasks[1].UnchangedSince = p.Deadline.Add(-2 * time.Second)
			gone(p, 137, 0)
		}, "", ""},
		"tini over a trap that waits for an old child, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			tini(func(c *evidence.Task) {
				c.Comm, c.Probe.Exe, c.Probe.Syscall, c.Caught = "bash", "bash", "wait4", bitTERM
			})(p, t)
			child := task(102, 101, "node", evidence.Sleeping, "epoll_wait")
			child.Caught = bitINT | bitTERM
			p.Tasks = append(p.Tasks, child)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Inferred},
		"no handler now, one in the only reading before, killed at the deadline": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.Caught, t.SignalsSince = bitTERM, b.Read })
			gone(p, 137, 0)
		}, "", ""},
		"its handler was removed before the deletion, for which a probe may be the reason": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) {
				b.Read = requested.Add(-4 * time.Second)
				t.SignalsSince, t.Removed = b.Read, bitTERM
			})
		}, "", ""},
		"its handler was removed before a deletion with a shorter grace period than a probe gives": {func(p *evidence.Pod, _ *evidence.Task) {
			p.SpecifiedGraceSeconds = 120
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince, t.Removed = b.Read, bitTERM })
		}, "", ""},
		"its handler was removed long before the deletion": {func(p *evidence.Pod, _ *evidence.Task) {
			wasKnown(p, func(b *evidence.Baseline, t *evidence.Task) { t.SignalsSince, t.Removed = b.Read, bitTERM })
		}, "SignalDroppedByPID1", diagnose.Proved},
		"read before a deletion of which the time is in doubt": {func(p *evidence.Pod, _ *evidence.Task) {
			p.SetSkew(-9*time.Second, 9*time.Second)
			wasKnown(p, func(b *evidence.Baseline, _ *evidence.Task) { b.Read = requested.Add(-5 * time.Second) })
		}, "", ""},
		"gVisor, the process that serves its files": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Runtime = "io.containerd.runsc.v1"
		}, "", ""},
		"gVisor, the process that serves its files, killed at the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Runtime, t.Caught = "io.containerd.runsc.v1", bitTERM
			gone(p, 137, 0)
		}, "", ""},
		// adversary
		"force delete with a finalizer, in its preStop hook": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Deadline, p.GracePeriodSeconds = requested, 0
			gone(p, 137, 13*time.Second)
			p.Time = requested.Add(12 * time.Second)
		}, "", ""},
		"its preStop hook took most of the grace period, the program had seven seconds": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			hooked(p, requested.Add(500*time.Millisecond))
			gone(p, 137, time.Second)
			p.Time = requested.Add(23400 * time.Millisecond)
		}, "", ""},
		"host PIDs, a daemon that the preStop hook has left to the shim": {func(p *evidence.Pod, t *evidence.Task) {
			p.HostPID, t.NSpid, t.Caught = true, []int{100}, bitTERM
			hooked(p, requested.Add(300*time.Millisecond))
			p.Tasks[1].Comm, p.Tasks[1].NSpid = "drain", []int{120}
			gone(p, 137, time.Second)
			p.Time = p.Deadline
		}, "", ""},
		"a proxy's preStop hook waits for the app, which is slow": {func(p *evidence.Pod, _ *evidence.Task) {
			proxied(p, bitTERM)
		}, "SlowShutdown", diagnose.Proved},
		"a proxy's preStop hook waits for the app, which drops the signal": {func(p *evidence.Pod, _ *evidence.Task) {
			proxied(p, 0)
		}, "SignalDroppedByPID1", diagnose.Proved},
		"its preStop hook hangs in the kernel, and the container with it": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(time.Second))
			p.Tasks[1].State = evidence.Uninterruptible
			gone(p, 137, 50*time.Second)
			p.Time = requested.Add(78 * time.Second)
		}, "", ""},
		"kubelet's first thread hangs on a disk, and the kubelet is well": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Uninterruptible, UnchangedSince: requested}
			p.Node.Kubelet.Health = "ok"
		}, "SignalDroppedByPID1", diagnose.Proved},
		"kubelet started just before the deletion, by a clock that is behind": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
				Probe: &evidence.Probe{Started: requested.Add(-2 * time.Second)}}
		}, "", ""},
		"shim does not answer, in the grace period": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Task = evidence.ShimTask{UnansweredSince: requested.Add(-5 * time.Second), Attempts: 2}
		}, "", ""},
		"mirror pod: its deletion waits for no process that somebody has stopped": {func(p *evidence.Pod, t *evidence.Task) {
			p.Mirror, t.State = true, evidence.Stopped
		}, "", ""},
		"killed well before the deadline, by clocks that are in doubt": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.SetSkew(-9*time.Second, 9*time.Second)
			gone(p, 137, -8*time.Second)
			p.Time = p.Deadline.Add(-9 * time.Second)
		}, "", ""},
		"mirror pod: its deletion signals nobody": {func(p *evidence.Pod, _ *evidence.Task) { p.Mirror = true }, "", ""},
		"short grace period, the app used it up before the sidecar": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].Kind, t.Caught = evidence.Sidecar, bitTERM
			p.Deadline, p.GracePeriodSeconds = requested.Add(5*time.Second), 5
			gone(p, 137, 2*time.Second)
			p.Time = p.Deadline.Add(time.Second)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateExited, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
			})
		}, "", ""},
		"killed for want of memory": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			gone(p, 137, 0)
			p.Containers[0].Exit.OutOfMemory = true
		}, "", ""},
		"no handler, gone":                {func(p *evidence.Pod, _ *evidence.Task) { gone(p, 137, 0) }, "SignalDroppedByPID1", diagnose.Proved},
		"no handler, and ended by itself": {func(p *evidence.Pod, _ *evidence.Task) { gone(p, 0, 0) }, "", ""},
		"throttled until the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups[0].CPU = &evidence.CPU{Millis: 10, ThrottledSince: requested.Add(2 * time.Second)}
			gone(p, 137, 0)
		}, "ShutdownThrottled", diagnose.Inferred},
		"throttled for a moment": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups[0].CPU = &evidence.CPU{Millis: 10, ThrottledSince: p.Deadline.Add(-4 * time.Second)}
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"held down by memory.high": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups[0].Memory = &evidence.Memory{Current: 64 << 20, High: 60 << 20, StalledSince: requested}
			gone(p, 137, 0)
		}, "ShutdownThrottled", diagnose.Inferred},
		"another container of the pod is held down by memory.high": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups[0].Memory = &evidence.Memory{Current: 10 << 20}
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: "/kubepods/podu", Version: 2, Memory: &evidence.Memory{Current: 64 << 20,
				High: 60 << 20, StalledSince: requested}})
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"the container is what the pod's memory.high holds down": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Cgroups[0].Memory = &evidence.Memory{Current: 50 << 20}
			p.Cgroups = append(p.Cgroups, evidence.Cgroup{Path: "/kubepods/podu", Version: 2, Memory: &evidence.Memory{Current: 64 << 20,
				High: 60 << 20, StalledSince: requested}})
			gone(p, 137, 0)
		}, "ShutdownThrottled", diagnose.Inferred},
		"what somebody has executed there dumps core": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
			shell := task(120, 50, "bash", evidence.Sleeping, "wait4")
			dumps := task(121, 120, "tool", evidence.Uninterruptible, "")
			dumps.CoreDumping = true
			p.Tasks = append(p.Tasks, shell, dumps)
			gone(p, 137, 0)
		}, "SlowShutdown", diagnose.Proved},
		"its worker dumps core until the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.Caught = bitTERM
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
			dumps := task(121, 100, "worker", evidence.Uninterruptible, "")
			dumps.CoreDumping = true
			p.Tasks = append(p.Tasks, dumps)
			gone(p, 137, time.Second)
		}, "CoreDumpInProgress", diagnose.Proved},
		"dumps core until the deadline": {func(p *evidence.Pod, t *evidence.Task) {
			t.CoreDumping = true
			gone(p, 134, time.Second)
		}, "CoreDumpInProgress", diagnose.Proved},
	} {
		t.Run(name, func(t *testing.T) {
			p := stopping(tc.change)
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			if v.Cause != tc.want || v.Confidence != tc.confidence {
				t.Errorf("verdict %q (%s), want %q (%s): %s", v.Cause, v.Confidence, tc.want, tc.confidence, v.Message)
			}
			if len(d.Unknown) > 0 && len(p.Missing) == 0 {
				t.Errorf("not looked for: %v", d.Unknown)
			}
		})
	}
}

// A hook that has run for long is told of while it runs: for a tenth of the grace period, in limits.
func TestLongHook(t *testing.T) {
	for _, tc := range []struct {
		grace, ran, long time.Duration
		want             string
	}{
		{time.Hour, 5 * time.Minute, 0, ""},
		{time.Hour, 6 * time.Minute, 0, "PreStopHookRunning"},
		{10 * time.Minute, 4 * time.Minute, 0, ""},
		{10 * time.Minute, 5 * time.Minute, 0, "PreStopHookRunning"},
		{168 * time.Hour, 14 * time.Minute, 0, ""},
		{168 * time.Hour, 15 * time.Minute, 0, "PreStopHookRunning"},
		{time.Hour, time.Minute, time.Minute, "PreStopHookRunning"},
	} {
		for kind, hook := range map[string]func(*evidence.Pod, *evidence.Task){
			"exec": func(p *evidence.Pod, _ *evidence.Task) { hooked(p, p.Time.Add(-tc.ran)) },
			"sleep": func(p *evidence.Pod, _ *evidence.Task) {
				p.Containers[0].PreStop, p.Containers[0].PreStopSleep = true, int64(tc.grace/time.Second)
				p.Time = requested.Add(tc.ran)
			},
			"httpGet": func(p *evidence.Pod, _ *evidence.Task) {
				p.Containers[0].PreStop, p.Containers[0].PreStopPort = true, 8080
				p.Requests = []evidence.Request{{Port: 8080, Socket: 500, State: evidence.Established, Since: p.Time.Add(-tc.ran)}}
			},
		} {
			p := stopping(func(p *evidence.Pod, first *evidence.Task) {
				p.Time = requested.Add(tc.ran + time.Second)
				p.Deadline, p.GracePeriodSeconds, p.LongHook = requested.Add(tc.grace), int64(tc.grace/time.Second), tc.long
				hook(p, first)
			})
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			if v.Cause != tc.want {
				t.Errorf("%s, %s of %s: verdict %q, want %q", kind, tc.ran, tc.grace, v.Cause, tc.want)
			}
			if v.Cause != "" && !strings.Contains(v.Message, "SIGKILL comes at ") {
				t.Errorf("%s: %s", kind, v.Message)
			}
		}
	}
}

// What somebody executes in the container when the hook is over is not taken for the hook.
func TestLongHookIsNoExec(t *testing.T) {
	d := cause.Diagnose(stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time, p.Deadline, p.GracePeriodSeconds = requested.Add(20*time.Minute), requested.Add(time.Hour), 3600
		first.Caught = bitTERM
		hooked(p, requested.Add(10*time.Minute))
	}))
	if v, found := d.Verdict(); found {
		t.Errorf("verdict %q: %s", v.Cause, v.Message)
	}
}

// A handler that a program installs after its signal was dropped does not bring that back: the verdict of before is
// neither confirmed nor refuted.
func TestHandlerSince(t *testing.T) {
	d := cause.Diagnose(stopping(func(p *evidence.Pod, first *evidence.Task) {
		wasKnown(p, func(*evidence.Baseline, *evidence.Task) {})
		first.Caught = bitTERM
	}))
	if !d.NotLookedFor("SignalDroppedByPID1") {
		t.Error("the verdict of before is refuted")
	}
}

// A thread that is woken from sigwait shows none of the signals that it waits for until it has had a processor.
func TestWokenFromSigwait(t *testing.T) {
	asleep := stopping(tini(func(*evidence.Task) {}))
	for name, syscall := range map[string]string{"from sigwait": "rt_sigtimedwait", "from another call": "epoll_wait"} {
		asleep.Tasks[0].Probe.Syscall = syscall
		earlier := asleep
		for range 3 { // one that does not get a processor for long is woken once
			woken := stopping(tini(func(*evidence.Task) {}))
			woken.Time = earlier.Time.Add(2 * time.Second)
			woken.Tasks[0].State, woken.Tasks[0].Probe.Syscall, woken.Tasks[0].Switches = evidence.Runnable, "", 1
			woken.Before = known(woken)
			woken.Since(earlier)
			earlier = woken
		}
		d := cause.Diagnose(earlier)
		v, _ := d.Verdict()
		if waits := syscall == "rt_sigtimedwait"; v.Cause == "SignalDroppedByPID1" == waits || d.NotLookedFor("SignalDroppedByPID1") != waits {
			t.Errorf("woken %s: verdict %q (%s), not looked for is %t", name, v.Cause, v.Message, d.NotLookedFor("SignalDroppedByPID1"))
		}
	}
}

// tini makes the first process one that hands its signals to a child.
func tini(change func(child *evidence.Task)) func(*evidence.Pod, *evidence.Task) {
	return func(p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe, first.Probe.Syscall = "tini", "tini", "rt_sigtimedwait"
		child := task(101, 100, "server", evidence.Sleeping, "epoll_wait")
		change(&child)
		p.Tasks = append(p.Tasks, child)
	}
}

// A verdict of the grace period stands on while SIGKILL is late, and is not told
// anew: what it says comes at the deadline has not come.
func TestGracePeriodOver(t *testing.T) {
	for after, want := range map[time.Duration]bool{
		-time.Second: false, 0: true, 30 * time.Second: true, fact.UnknownAfter: false,
	} {
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Time = p.Deadline.Add(after)
			p.SetSkew(0, 0)
		})
		d := cause.Diagnose(p)
		if got := d.NotLookedFor("SignalDroppedByPID1"); got != want {
			t.Errorf("%s after the deadline: not looked for is %t, want %t", after, got, want)
		}
		if d.NotLookedFor("UninterruptibleSleep") {
			t.Errorf("%s after the deadline UninterruptibleSleep is not looked for", after)
		}
	}
	unknown := stopping(func(p *evidence.Pod, _ *evidence.Task) { p.Before = new(evidence.Baseline) })
	if d := cause.Diagnose(unknown); !d.NotLookedFor("SignalDroppedByPID1") {
		t.Error("what an earlier run of the agent has told is taken back by one that does not know what was before")
	}
	unseen := stopping(func(_ *evidence.Pod, first *evidence.Task) { first.Probe = nil })
	if d := cause.Diagnose(unseen); !d.NotLookedFor("SignalDroppedByPID1") {
		t.Error("what was told is taken back by a reading that does not show what the process sleeps in")
	}
	killed := stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Time, p.Phase, p.Tasks = p.Deadline.Add(10*time.Second), "Failed", nil
		p.Mounts = []evidence.Mount{{Point: "/var/lib/kubelet/pods/u/volumes/x/y", Type: "ext4"}}
	})
	if d := cause.Diagnose(killed); d.NotLookedFor("SignalDroppedByPID1") {
		t.Errorf("the pod was killed in time and is in phase %s, and its verdict stands on", d.Phase)
	}
}

// A hook that the kubelet is busy with itself is told of by what the specification has.
func TestPreStopHookOfTheKubelet(t *testing.T) {
	const sleep = "container main: its preStop hook (sleep of 30s) used up the grace period of 30s. " +
		"SIGTERM came only two seconds before SIGKILL killed the program at 03:00:32 UTC"
	const request = "container main: its preStop hook (HTTP request to port 8080 of the pod) had no response and " +
		"used up the grace period of 30s. " +
		"SIGTERM came only two seconds before SIGKILL killed the program at 03:00:32 UTC"
	for want, change := range map[string]func(p *evidence.Pod, _ *evidence.Task){
		sleep:   func(p *evidence.Pod, _ *evidence.Task) { sleepy(p, 30, 2*time.Second) },
		request: func(p *evidence.Pod, _ *evidence.Task) { asking(p) },
	} {
		d := cause.Diagnose(stopping(change))
		f, _ := d.Verdict()
		since := map[string]string{sleep: "deleted at 03:00:00 UTC", request: "open since 03:00:01 UTC"}[want]
		if f.Message != want || !strings.Contains(said(&f), since) {
			t.Errorf("%s", f.Message)
		}
		if asked := strings.Contains(f.Remedy, "The hook itself may have asked the program to stop earlier."); asked != (want == request) {
			t.Errorf("may have asked the program %v: %s", asked, f.Remedy)
		}
	}
}

// busybox's shell is told from its other applets by what it does with signals, whatever its script is called. The masks
// are those that busybox 1.35 shows as the first process of a container.
func TestShellsOfBusybox(t *testing.T) {
	const bitCHLD, bitHUP = 1 << (evidence.SIGCHLD - 1), 1 << (evidence.SIGHUP - 1)
	for name, tc := range map[string]struct {
		comm            string
		caught, ignored evidence.SignalSet
		want            string
	}{
		"a script":                   {"entrypoint", bitCHLD | bitINT, bitQUIT, "ShellPID1NoTrap"},
		"a script called run":        {"run", bitCHLD | bitINT, bitQUIT, "ShellPID1NoTrap"},
		"busybox sh":                 {"busybox", bitCHLD | bitINT, bitQUIT, "ShellPID1NoTrap"},
		"a script with a trap":       {"start", bitCHLD | bitINT | bitTERM, bitQUIT, "ShellPID1TrapDeferred"},
		"a script that ignores TERM": {"start", bitCHLD | bitINT, bitQUIT | bitTERM, "StopSignalIgnored"},
		"timeout":                    {"timeout", 0, 0, "SignalDroppedByPID1"},
		"httpd":                      {"httpd", bitHUP, bitCHLD, "SignalDroppedByPID1"},
		"inetd":                      {"inetd", bitCHLD | bitINT | bitHUP | bitTERM, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(stopping(func(p *evidence.Pod, first *evidence.Task) {
				first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught, first.Ignored = tc.comm, "busybox", "wait4", tc.caught, tc.ignored
				p.Tasks = append(p.Tasks, task(101, 100, "node", evidence.Sleeping, "epoll_wait"))
			}))
			if v, _ := d.Verdict(); v.Cause != tc.want {
				t.Errorf("%q, want %q", v.Cause, tc.want)
			}
		})
	}
}

// What is to be done depends on what the first process is there for.
func TestRemediesOfSignals(t *testing.T) {
	shell := func(children ...evidence.Task) func(*evidence.Pod, *evidence.Task) {
		return func(p *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Probe.Syscall, t.HadChild = "sh", "dash", "wait4", true
			p.Tasks = append(p.Tasks, children...)
		}
	}
	with := func(children ...evidence.Task) func(*evidence.Pod, *evidence.Task) {
		return func(p *evidence.Pod, _ *evidence.Task) { p.Tasks = append(p.Tasks, children...) }
	}
	server, sleep := task(101, 100, "server", evidence.Sleeping, "epoll_wait"), task(102, 100, "sleep", evidence.Sleeping, "clock_nanosleep")
	young := sleep
	young.Probe = &evidence.Probe{Start: 900, Started: requested.Add(8 * time.Second), Group: 100, Exe: "curl", Syscall: "poll"}
	young.Comm = "curl"
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, first *evidence.Task)
		says   string
		not    string
	}{
		"a shell over a server":             {shell(server), "start the program with exec in the script", "trap '"},
		"a shell over a server and a sleep": {shell(sleep, server), "let the script pass SIGTERM on to each program that it starts", "exec form"},
		"a shell that sleeps in a loop":     {shell(sleep), "begin the script with trap 'exit 143' TERM", "exec"},
		"a shell that runs a program again": {shell(young), "begin the script with trap 'exit 143' TERM", "exec"},
		"a shell between two programs":      {shell(), "begin the script with trap 'exit 143' TERM", "exec"},
		"a program alone":                   {with(), "run the program under an init such as tini", "pass it on"},
		"a program with an orphan":          {with(sleep), "run the program under an init such as tini", "pass it on"},
		"a program that runs another one":   {with(server), "What it has started gets SIGKILL, with an init and without", "pass it on"},
		"a program that waits for another one": {func(p *evidence.Pod, t *evidence.Task) {
			t.Probe.Syscall = "wait4"
			with(server)(p, t)
		}, "pass it on to server (PID 101 on the node)", "shareProcessNamespace"},
		"sleep": {func(_ *evidence.Pod, t *evidence.Task) { t.Comm = "sleep" }, "sh -c 'trap exit TERM; sleep infinity & wait'", "handle SIGTERM"},
		"sleep, and another signal": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].StopSignal, t.Comm = evidence.SIGQUIT, "sleep"
		}, "SIGQUIT then ends it immediately. Or delete such a pod", "trap exit"},
		"sleep that ignores the signal": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Ignored = "sleep", bitTERM
		}, "Run sleep under an init such as tini as well", "let the program"},
		"a program that ignores the signal": {func(_ *evidence.Pod, t *evidence.Task) { t.Ignored = bitTERM }, "let the program handle SIGTERM", "terminal"},
		"a shell that ignores the signal": {func(_ *evidence.Pod, t *evidence.Task) {
			t.Comm, t.Probe.Exe, t.Ignored = "sh", "dash", bitTERM
		}, "If the shell has a terminal", "nohup"},
		"tini over a program that ignores": {tini(func(c *evidence.Task) { c.Ignored = bitTERM }), "handle SIGTERM", "tini -g"},
		"a shell in turn, and another stop signal": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].StopSignal = evidence.SIGHUP
			shell(sleep)(p, t)
		}, "begin the script with a trap for SIGHUP that exits", "143"},
		"a shell over a server, and another signal": {func(p *evidence.Pod, t *evidence.Task) {
			p.Containers[0].StopSignal = evidence.SIGHUP
			shell(server)(p, t)
		}, "If the program has no handler for SIGHUP", "trap '"},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(stopping(tc.change))
			v, ok := d.Verdict()
			if !ok || !strings.Contains(v.Remedy, tc.says) || strings.Contains(v.Remedy, tc.not) {
				t.Errorf("%s: %q, want %q and not %q", v.Cause, v.Remedy, tc.says, tc.not)
			}
		})
	}
}
