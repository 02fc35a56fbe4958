package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

const (
	bitUSR1  = 1 << (evidence.SIGUSR1 - 1)
	bitWINCH = 1 << (evidence.SIGWINCH - 1)
)

// The masks, calls and process groups are those of the real programs: postgres 15, apache2 2.4.71, python 3.11,
// erlang 25, bash, dash and node under unshare -pf --mount-proc.
func TestSlowShutdownOfRealPrograms(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(p *evidence.Pod, first *evidence.Task)
		not, say []string
		family   string
	}{
		"postgres, smart shutdown over a client's backend": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "postgres", "postgres", "pselect6"
			under(p, 101, 100, "postgres", "epoll_wait").Ignored = bitTERM // checkpointer
			under(p, 102, 100, "postgres", "epoll_wait").Caught = bitTERM  // background writer
			under(p, 103, 100, "postgres", "epoll_wait").Caught = bitTERM  // walwriter
			under(p, 104, 100, "postgres", "epoll_wait").Caught = bitTERM  // the backend that it waits for
		}, []string{"to ignore SIGTERM", "trap ''"}, []string{"SIGINT"}, ""},
		"python with a resource tracker, draining": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "python3", "python3.11", "clock_nanosleep"
			under(p, 101, 100, "python3", "read").Ignored = bitTERM
		}, []string{"to ignore SIGTERM", "trap ''"}, nil, ""},
		"python with workers and a resource tracker": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "uvicorn", "python3.11", "wait4"
			under(p, 101, 100, "python3", "read").Ignored = bitTERM
			under(p, 102, 100, "python3", "epoll_wait").Caught = bitTERM
			under(p, 103, 100, "python3", "epoll_wait").Caught = bitTERM
		}, []string{"to ignore SIGTERM", "trap ''"}, []string{"had a handler"}, ""},
		"erlang": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "beam.smp", "beam.smp", "pselect6"
			c := under(p, 101, 100, "erl_child_setup", "pselect6")
			c.Ignored, c.Probe.Group = bitTERM, 101
		}, []string{"trap ''"}, []string{"Check what beam.smp waits for. If that is erl_child_setup"}, ""},
		"erlang with inet_gethost": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "beam.smp", "beam.smp", "pselect6"
			c := under(p, 101, 100, "erl_child_setup", "pselect6")
			c.Ignored, c.Probe.Group = bitTERM, 101
			under(p, 102, 101, "inet_gethost", "pselect6").Probe.Group = 102
		}, []string{"was not sent SIGTERM", "inet_gethost"}, nil, ""},
		"apache with piped logs": {func(p *evidence.Pod, first *evidence.Task) {
			p.Containers[0].StopSignal = evidence.SIGWINCH
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "apache2", "apache2", "pselect6", bitTERM|bitWINCH
			under(p, 101, 100, "rotatelogs", "read").Ignored = bitINT | bitQUIT
			under(p, 102, 100, "apache2", "poll").Caught = bitTERM | bitWINCH | bitUSR1
		}, []string{"was not sent SIGWINCH", "rotatelogs"}, []string{"GracefulShutdownTimeout"}, ""},
		"a child with the default action for SIGWINCH": {func(p *evidence.Pod, first *evidence.Task) {
			p.Containers[0].StopSignal = evidence.SIGWINCH
			first.Comm, first.Probe.Exe, first.Caught = "apache2", "apache2", bitTERM|bitWINCH
			under(p, 101, 100, "PassengerWatch", "poll")
		}, []string{"was not sent SIGWINCH"}, []string{"GracefulShutdownTimeout"}, ""},
		"bash whose trap sleeps before it passes the signal on": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
			c := under(p, 101, 100, "node", "epoll_wait")
			c.Caught = bitTERM | bitINT
			s := under(p, 102, 100, "sleep", "clock_nanosleep")
			s.Ignored, s.Probe.Started = bitINT|bitQUIT, requested.Add(100*time.Millisecond).Add(4*time.Second)
		}, []string{"heck what node does", "closeAllConnections"}, []string{"It was running sleep, which it had started after the " +
			"deletion", "sleep (PID 102 on the node)"}, ""},
		"bash whose trap sleeps first, from the signal on": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
			under(p, 101, 100, "node", "epoll_wait").Caught = bitTERM | bitINT
			s := under(p, 102, 100, "sleep", "clock_nanosleep")
			s.Ignored, s.Probe.Started = bitINT|bitQUIT, requested.Add(300*time.Millisecond)
		}, []string{"the shell never ran its trap", "heck what node does", "closeAllConnections"}, []string{"sleep (PID 102"}, ""},
		"bash whose trap drains first, from the signal on": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
			under(p, 101, 100, "java", "futex").Caught = bitTERM | bitINT
			under(p, 102, 100, "nodetool", "futex").Probe.Started = requested.Add(300 * time.Millisecond)
		}, []string{"the shell never ran its trap", "heck what java does"}, []string{"nodetool (PID 102"}, ""},
		"bash whose trap asks a registry first": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
			under(p, 101, 100, "node", "epoll_wait").Caught = bitTERM | bitINT
			under(p, 102, 100, "curl", "poll").Probe.Started = requested.Add(4 * time.Second)
		}, []string{"heck what node does", "closeAllConnections"}, []string{"curl (PID 102"}, ""},
		"java over a helper that the entrypoint has started before exec": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "java", "java", "futex"
			under(p, 101, 100, "nginx", "rt_sigsuspend").Caught = bitTERM | bitQUIT
		}, []string{"worker_shutdown_timeout"}, []string{"spring.lifecycle"}, ""},
		"supervisord waits for the program that it has started last": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "supervisord", "python3.11", "poll"
			under(p, 101, 100, "redis-server", "epoll_wait").Caught = bitTERM // priority 10, not asked yet
			under(p, 102, 100, "app", "epoll_wait").Caught = bitTERM          // priority 20
		}, []string{"redis-server"}, []string{"app (PID 102"}, ""},
		"node under tini, that has removed its handler": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "tini", "tini", "rt_sigtimedwait", 0
			under(p, 101, 100, "node", "epoll_wait").Caught = bitTERM
			p.Before, p.Tasks[1].Caught = known(p), 0
			p.Tasks[1].NSpid = []int{101, 2}
		}, nil, []string{"no handler for SIGTERM any more"}, ""},
		"uwsgi under tini": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "tini", "tini", "rt_sigtimedwait", 0
			under(p, 101, 100, "uwsgi", "epoll_wait").Caught = bitTERM
		}, nil, []string{"die-on-term"}, ""},

		// The network: one client that has vanished while what the program really waits for is known.
		"trap put off, and a client has vanished": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe, first.Probe.Syscall = "bash", "bash", "wait4"
			under(p, 101, 100, "gunicorn", "select").Caught = bitINT | bitTERM
			p.Connections = &evidence.Connections{All: 1, Unanswered: 1, Since: requested.Add(8 * time.Second)}
		}, nil, []string{"gunicorn (PID 101", "trap 'kill -TERM $pid' TERM"}, "Trap"},
		"it waits for one that was not asked, and a client has vanished": {func(p *evidence.Pod, first *evidence.Task) {
			first.Probe.Syscall = "wait4"
			under(p, 101, 100, "app", "epoll_wait")
			p.Connections = &evidence.Connections{All: 1, Unanswered: 1, Since: requested.Add(8 * time.Second)}
		}, nil, []string{"let app forward SIGTERM"}, ""},
		"uwsgi, and a client has vanished": {func(p *evidence.Pod, first *evidence.Task) {
			first.Comm, first.Probe.Exe = "uwsgi", "uwsgi"
			p.Connections = &evidence.Connections{All: 1, Unanswered: 1, Since: requested.Add(8 * time.Second)}
		}, nil, []string{"die-on-term"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(tooSlow(tc.change))
			v, _ := d.Verdict()
			all := said(&v)
			for _, s := range tc.not {
				if strings.Contains(all, s) {
					t.Errorf("%q is said: %s", s, all)
				}
			}
			for _, s := range tc.say {
				if !strings.Contains(all, s) {
					t.Errorf("%q is not said: %s", s, all)
				}
			}
			if v.Cause != "SlowShutdown" || v.Family != tc.family {
				t.Errorf("%s %s", v.Cause, v.Family)
			}
		})
	}
}

// cutReadings goes through readings two seconds apart of a pod in its grace period, and gives the verdict when it is gone.
func cutReadings(at func(s int) *evidence.Connections) *evidence.Pod {
	var last *evidence.Pod
	p := tooSlow(func(*evidence.Pod, *evidence.Task) {})
	for s := 5; s <= 29; s += 2 {
		r := &evidence.Pod{UID: "u", Time: requested.Add(time.Duration(s) * time.Second), Connections: at(s)}
		r.TasksRead = r.Time
		r.Since(last)
		last = r
	}
	p.Connections = last.Connections
	return p
}

func TestNetworkTakenAway(t *testing.T) {
	for name, tc := range map[string]struct {
		at     func(s int) *evidence.Connections
		family string
	}{
		// A client has vanished; the nine others are served and end. The server waits for the last one. The network is well.
		"the last of ten is a client that has vanished": {func(s int) *evidence.Connections {
			if s < 15 {
				return &evidence.Connections{All: 10, Unanswered: 1}
			}
			return &evidence.Connections{All: 1, Unanswered: 1}
		}, ""},
		// A client has vanished early; a peer goes in the last seconds: "from 03:00:05 on" is false of two.
		"most only in the last reading": {func(s int) *evidence.Connections {
			if s < 28 {
				return &evidence.Connections{All: 3, Unanswered: 1}
			}
			return &evidence.Connections{All: 3, Unanswered: 2}
		}, ""},
	} {
		d := cause.Diagnose(cutReadings(tc.at))
		v, _ := d.Verdict()
		if v.Cause != "SlowShutdown" || v.Family != tc.family {
			t.Errorf("%s: %s %q, want %q: %s", name, v.Cause, v.Family, tc.family, v.Message)
		}
	}
}

// What kept a program from reacting to its stop signal is told of a pod that is gone if the program was killed, and not if it exited after all.
func TestExitedAfterAll(t *testing.T) {
	told := map[string]bool{}
	for _, f := range fixtures(t) {
		d := cause.Diagnose(f.evidence)
		v, ok := d.Verdict()
		if !ok || f.evidence.Gone || f.evidence.Overdue() >= 0 {
			continue
		}
		ended := func(code int) string {
			p := fixtureNamed(t, f.name)
			p.Gone, p.Time = true, p.Deadline.Add(-time.Second)
			for i := range p.Containers {
				if c := &p.Containers[i]; c.Name == v.Container {
					c.Exit = &evidence.Exit{Code: code, At: p.Deadline}
				}
			}
			d := cause.Diagnose(p)
			v, _ := d.Verdict()
			return v.Cause
		}
		told[ended(137)] = true
		if c := ended(0); c != "" {
			t.Errorf("%s: %s is told of a program that has exited after all", f.name, c)
		}
	}
	for _, c := range []string{
		"ProcessStopped", "StopSignalMismatch", "ShellPID1NoTrap", "SignalDroppedByPID1", "StopSignalIgnored", "StopSignalBlocked",
		"ShellPID1TrapDeferred", "ChildIgnoresForwardedSignal",
	} {
		if !told[c] {
			t.Errorf("%s is told of no program that was killed", c)
		}
	}
}
