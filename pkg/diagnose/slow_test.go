package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// tooSlow is a pod of which the first process has taken its stop signal and was ended by SIGKILL.
func tooSlow(change func(p *evidence.Pod, first *evidence.Task)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		first.Caught = bitTERM
		change(p, first)
		gone(p, 137, 0)
	})
}

// under adds a process that another one runs.
func under(p *evidence.Pod, pid, parent int, comm, syscall string) *evidence.Task {
	p.Tasks = append(p.Tasks, task(pid, parent, comm, evidence.Sleeping, syscall))
	return &p.Tasks[len(p.Tasks)-1]
}

// What the program runs and what has not ended is named, as far as it is seen.
func TestSlowShutdownNamesWhatLingers(t *testing.T) {
	shell := func(p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
		c := under(p, 101, 100, "gunicorn", "select")
		c.Caught = bitINT | bitTERM
	}
	const nothing = "; its main thread was last seen in epoll_wait\n" // is said of it
	for name, tc := range map[string]struct {
		change     func(p *evidence.Pod, first *evidence.Task)
		confidence diagnose.Confidence
		says       []string
	}{
		"it waits for a program that ignores the signal": {func(p *evidence.Pod, first *evidence.Task) {
			first.Probe.Syscall = "wait4"
			under(p, 101, 100, "app", "epoll_wait").Ignored = bitTERM
		}, diagnose.Proved, []string{"It was waiting for app, which was set to ignore SIGTERM\n", "app (PID 101 on the node) was set to ignore SIGTERM", "Let app handle SIGTERM"}},
		"it polls, over a program that handles the signal": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe = "supervisord", "python3.11"
			under(p, 101, 100, "app", "epoll_wait").Caught = bitTERM
		}, diagnose.Proved, []string{
			"Its subprocess app had a handler for SIGTERM and did not exit\n", "app (PID 101 on the node) had a handler for SIGTERM",
			"Check what supervisord waits for. If that is app, check what app does on SIGTERM and whether supervisord forwards it",
		}},
		"over one that would have ended by the signal": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "chrome", "poll")
		}, diagnose.Proved, []string{
			"Its subprocess chrome was not sent SIGTERM, although that would have ended it\n", "Check what app waits for. If that is chrome, let app forward SIGTERM",
		}},
		"over one of which the call is not known": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "chrome", "").Probe = nil
		}, diagnose.Proved, []string{"Its subprocess chrome did not exit\n", "Check what app waits for. If that is chrome"}},
		"over one that has taken the signal": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "node", "epoll_wait").Caught = bitTERM
			p.Before, p.Tasks[1].Caught = known(p), 0
		}, diagnose.Proved, []string{"Its subprocess node took SIGTERM and did not exit\n"}},
		"over one that leaves the signal pending": {func(p *evidence.Pod, _ *evidence.Task) {
			c := under(p, 101, 100, "ruby", "futex")
			c.Blocked, c.SharedPending = bitTERM, bitTERM
		}, diagnose.Proved, []string{"Its subprocess ruby blocked SIGTERM and had not taken it\n", "If that is ruby, let ruby take SIGTERM"}},
		"over one that blocks the signal, which is not pending": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "ruby", "futex").Blocked = bitTERM
		}, diagnose.Proved, []string{"Its subprocess ruby did not exit\n"}},
		"over shells": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe = "npm start", "node"
			under(p, 101, 100, "sh", "wait4")
			under(p, 102, 101, "node", "epoll_wait").Caught = bitTERM
			under(p, 103, 102, "esbuild", "futex")
			under(p, 104, 101, "tail", "read")
		}, diagnose.Proved, []string{"program \"npm start\"", "Its subprocess node had a handler", "node (PID 102 on the node) had a " +
			"handler", "closeAllConnections"}},
		"over a supervisor of one": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "s6-supervise", "ppoll").Caught = bitTERM
			under(p, 102, 101, "nginx", "rt_sigsuspend").Caught = bitTERM | bitQUIT
			p.Tasks[2].Probe.Group = 102
		}, diagnose.Proved, []string{"Its subprocess nginx had a handler", "nginx (PID 102 on the node) had a handler", "worker_shutdown_timeout"}},
		"over several": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm = "runner"
			under(p, 103, 100, "worker", "epoll_wait").Caught = bitTERM
			under(p, 101, 100, "queue", "epoll_wait").Ignored = bitTERM
			under(p, 102, 100, "tail", "epoll_wait")
		}, diagnose.Proved, []string{"Its subprocess worker had a handler", "worker (PID 103 on the node) had a handler"}},
		"over several that handle it": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm = "runner"
			under(p, 101, 100, "queue", "epoll_wait").Caught = bitTERM
			under(p, 103, 100, "worker", "epoll_wait").Caught = bitTERM
		}, diagnose.Proved, []string{"Of its 2 subprocesses, the youngest (worker) had a handler", "worker (PID 103 on the node) had a handler"}},
		"it waits for what it has started since": {func(p *evidence.Pod, first *evidence.Task) {
			first.Probe.Syscall = "wait4"
			c := under(p, 101, 100, "nodetool", "futex")
			c.Probe.Started = requested.Add(4 * time.Second)
		}, diagnose.Proved, []string{
			"It was waiting for nodetool, which it had started after the deletion\n", "nodetool (PID 101 on the node)",
			"Check why nodetool takes so long",
		}},
		"over one that is about to end": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "app", "epoll_wait").SharedPending = bitKILL
		}, diagnose.Proved, []string{nothing}},
		"it waits in a loop, beside a program": {func(p *evidence.Pod, first *evidence.Task) {
			first.Probe.Syscall = "wait4"
			under(p, 101, 100, "app", "epoll_wait").Caught = bitTERM
			under(p, 102, 100, "sleep", "clock_nanosleep")
		}, diagnose.Proved, []string{"Its subprocess app had a handler", "app (PID 101 on the node) had a handler"}},
		"over a zombie": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "app", "").State = evidence.Zombie
		}, diagnose.Proved, []string{nothing}},
		"over a sideshow": {func(p *evidence.Pod, _ *evidence.Task) { under(p, 101, 100, "tail", "read") }, diagnose.Proved, []string{nothing}},
		"a thread of it is at work": {func(p *evidence.Pod, _ *evidence.Task) {
			under(p, 101, 100, "app", "epoll_wait").Caught = bitTERM
			other := p.Tasks[0]
			other.TID, other.State = 110, evidence.Runnable
			p.Tasks = append(p.Tasks, other)
		}, diagnose.Proved, []string{nothing}},
		"what somebody has executed there": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
			under(p, 120, 50, "bash", "read")
		}, diagnose.Proved, []string{nothing}},
		"under tini": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "tini", "tini", "rt_sigtimedwait", 0
			c := under(p, 101, 100, "wrapper", "wait4")
			c.Caught = bitTERM
			under(p, 102, 101, "app", "epoll_wait").Ignored = bitTERM
		}, diagnose.Proved, []string{"wrapper (PID 101 on the node)", "It was waiting for app, which was set to ignore SIGTERM\n", "app (PID 102 " +
			"on the node) was set to ignore SIGTERM"}},

		"bash with a trap": {shell, diagnose.Inferred, []string{
			"Its child gunicorn did not exit: if it ran in the foreground, the shell never ran its trap\n", "gunicorn (PID 101 on the node)",
			"trap 'kill -TERM $pid' TERM", "--graceful-timeout",
		}},
		"bash with a trap, that has started something since": {func(p *evidence.Pod, first *evidence.Task) {
			shell(p, first)
			under(p, 102, 100, "curl", "poll").Probe.Started = requested.Add(5 * time.Second)
		}, diagnose.Inferred, []string{"It was running curl, which it had started after the deletion\n", "curl (PID 102 on the node)"}},
		"bash with a trap for EXIT": {func(p *evidence.Pod, first *evidence.Task) {
			first.Caught |= bitILL
			shell(p, first)
		}, diagnose.Inferred, []string{"It was waiting for gunicorn, which had a handler for SIGTERM and did not exit\n", "gunicorn (PID 101 on the node)"}},
		"bash whose trap has reset itself": {func(p *evidence.Pod, first *evidence.Task) {
			shell(p, first)
			p.Before, p.Tasks[0].Caught = known(p), 0
		}, diagnose.Proved, []string{"It was waiting for gunicorn,", "gunicorn (PID 101 on the node)"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(tooSlow(tc.change))
			v, _ := d.Verdict()
			if v.Cause != "SlowShutdown" || v.Confidence != tc.confidence {
				t.Errorf("%s (%s), want SlowShutdown (%s)", v.Cause, v.Confidence, tc.confidence)
			}
			for _, want := range tc.says {
				if !strings.Contains(said(&v), want) {
					t.Errorf("%q is not said: %s", want, said(&v))
				}
			}
		})
	}
}

// A shell that is known to put its trap off is told of as that, and not as slow.
func TestSlowShutdownTellsNoTrapTwice(t *testing.T) {
	for _, exe := range []string{"bash", "dash"} {
		d := cause.Diagnose(tooSlow(func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = exe, exe, "wait4"
			under(p, 101, 100, "server", "epoll_wait")
		}))
		if len(d.Findings) != 1 || d.Findings[0].Cause != "ShellPID1TrapDeferred" {
			t.Errorf("%s: %+v", exe, d.Findings)
		}
	}
}

// What to do about a program that does not end by the signal is to change that, and about one that waits
// for the last of its connections to give it a limit: by the signal by which it does so.
func TestSlowShutdownRemedy(t *testing.T) {
	for _, tc := range []struct {
		comm, exe string
		signal    evidence.Signal
		want      string
	}{
		{"uwsgi", "uwsgi", evidence.SIGTERM, "die-on-term"},
		{"systemd", "systemd", evidence.SIGTERM, "SIGRTMIN+3"},
		{"nginx", "nginx", evidence.SIGQUIT, "Set nginx's worker_shutdown_timeout to less than the grace period, or raise"},
		{"nginx", "nginx", evidence.SIGTERM, "Limit its shutdown time, or raise"},
		{"php-fpm8.2", "php-fpm8.2", evidence.SIGQUIT, "process_control_timeout"},
		{"gunicorn: maste", "python3.11", evidence.SIGTERM, "--graceful-timeout"},
		{"gunicorn", "python3.11", evidence.SIGTERM, "--graceful-timeout"},
		{"uvicorn", "python3.11", evidence.SIGTERM, "--timeout-graceful-shutdown"},
		{"node_exporter", "node_exporter", evidence.SIGTERM, "Limit its shutdown time"},
		{"nodejs", "nodejs", evidence.SIGTERM, "closeAllConnections"},
		{"java", "java", evidence.SIGTERM, "spring.lifecycle.timeout-per-shutdown-phase"},
		{"javac", "javac", evidence.SIGTERM, "Limit its shutdown time"},
	} {
		d := cause.Diagnose(tooSlow(func(p *evidence.Pod, first *evidence.Task) {
			p.Containers[0].StopSignal = tc.signal
			first.Comm, first.Probe.Exe, first.Caught = tc.comm, tc.exe, bitTERM|bitQUIT
		}))
		if v, _ := d.Verdict(); v.Cause != "SlowShutdown" || !strings.Contains(v.Remedy, tc.want) {
			t.Errorf("%s: the remedy of %q does not say %q: %s", tc.comm, v.Cause, tc.want, v.Remedy)
		}
	}
	d := cause.Diagnose(tooSlow(func(p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe = "node", "node"
		p.Before, first.Caught = known(p), 0
	}))
	if v, _ := d.Verdict(); !strings.Contains(v.Remedy, "without a listener") {
		t.Errorf("node without a listener: %s", v.Remedy)
	}
}

// That most connections have had no answer for long is told, and what to do about it. One of many, and one that has
// had none for a moment, is not.
func TestSlowShutdownWithoutNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		connections *evidence.Connections
		want        string
	}{
		"not known":        {nil, ""},
		"none":             {&evidence.Connections{}, ""},
		"all are answered": {&evidence.Connections{All: 3}, ""},
		"one of three":     {&evidence.Connections{All: 3, Unanswered: 1, Since: requested.Add(8 * time.Second)}, ""},
		"a moment":         {&evidence.Connections{All: 1, Unanswered: 1, Since: requested.Add(23 * time.Second)}, ""},
		"most":             {&evidence.Connections{All: 3, Unanswered: 2, Since: requested.Add(8 * time.Second)}, "Network"},
	} {
		d := cause.Diagnose(tooSlow(func(p *evidence.Pod, _ *evidence.Task) { p.Connections = tc.connections }))
		v, _ := d.Verdict()
		if v.Cause != "SlowShutdown" || v.Family != tc.want {
			t.Errorf("%s: %s %s", name, v.Cause, v.Family)
		}
		const says = "Since 03:00:08 UTC, data on 2 TCP connections of the pod was not acknowledged"
		if said := strings.Contains(v.Message, says) && strings.Contains(v.Remedy, "If the peers are gone, the program needs a limit. "+
			"Limit its shutdown time"); said != (tc.want != "") {
			t.Errorf("%s: %s. %s", name, v.Message, v.Remedy)
		}
	}
}
