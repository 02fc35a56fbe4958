package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const sec = time.Second

// executedAt adds a process that the shim has executed in the container.
func executedAt(p *evidence.Pod, pid int, comm string, started time.Duration, terminal bool) {
	t := task(pid, 50, comm, evidence.Sleeping, "wait4")
	t.Probe.Started, t.Probe.Terminal, t.Probe.Group = requested.Add(started), terminal, pid
	p.Tasks = append(p.Tasks, t)
}

// withHook has an exec hook, a shell, run from one time to another.
func withHook(p *evidence.Pod, from, to time.Duration) {
	c := &p.Containers[0]
	c.PreStop, c.PreStopProgram, c.PreStopOnlySleeps = true, "sh", true
	p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
	if at := p.Time.Sub(requested); at >= from && at < to {
		executedAt(p, 120, "sh", from, false)
	}
}

// readings reads a pod of a grace period at some times; the last one is returned.
func readings(grace time.Duration, times []time.Duration, change func(at time.Duration, p *evidence.Pod, first *evidence.Task)) []*evidence.Pod {
	var all []*evidence.Pod
	var before *evidence.Pod
	for _, at := range times {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) {
			p.Time, p.Deadline, p.GracePeriodSeconds = requested.Add(at), requested.Add(grace), int64(grace/sec)
			p.Skew = new(evidence.Skew)
			change(at, p, first)
		})
		p.Since(before)
		all, before = append(all, p), p
	}
	return all
}

func every(from, to, step time.Duration) (out []time.Duration) {
	for ; from <= to; from += step {
		out = append(out, from)
	}
	return out
}

func last(all []*evidence.Pod) *evidence.Pod { return all[len(all)-1] }

func killedAt(p *evidence.Pod, code int, after time.Duration) {
	p.Gone = true
	p.Containers[0].Exit = &evidence.Exit{Code: code, At: p.Deadline.Add(after)}
}

func handles(p *evidence.Pod, first *evidence.Task) {
	first.Caught = bitTERM
	p.Before = known(p)
	p.Before.Tasks = p.Before.Tasks[:1]
}

func verdictOf(p *evidence.Pod) diagnose.Finding {
	d := cause.Diagnose(p)
	f, _ := d.Verdict()
	return f
}

// An exec readiness probe goes on during termination; it is no hook.
func TestProbeMovesNoEnd(t *testing.T) {
	p := last(readings(30*sec, every(1*sec, 29*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		handles(p, first)
		withHook(p, 500*time.Millisecond, 4*sec)
		if at == 23*sec {
			executedAt(p, 300, "redis-cli", 22500*time.Millisecond, false)
		}
	}))
	killedAt(p, 137, 0)
	if f := verdictOf(p); !strings.Contains(f.Message, "within the 25s that its preStop hook left") {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// The same in the words about what is left, of a program that drops the signal.
func TestProbeMovesNoEndLive(t *testing.T) {
	p := last(readings(60*sec, every(1*sec, 33*sec, 2*sec), func(at time.Duration, p *evidence.Pod, _ *evidence.Task) {
		withHook(p, 500*time.Millisecond, 4*sec)
		if at == 29*sec {
			executedAt(p, 300, "redis-cli", 28500*time.Millisecond, false)
		}
		p.Before = known(p)
		p.Before.Tasks = p.Before.Tasks[:1]
	}))
	if f := verdictOf(p); !strings.Contains(f.Message, "left 55s of the 1m0s grace period") {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// The words that are written once are about a hook that is long over.
func TestProbeIsNoHookThatWaits(t *testing.T) {
	p := last(readings(time.Hour, every(1*sec, 61*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		handles(p, first)
		withHook(p, 500*time.Millisecond, 4*sec)
		if at == 61*sec {
			executedAt(p, 300, "redis-cli", 60500*time.Millisecond, false)
		}
	}))
	d := cause.Diagnose(p)
	if w, _ := diagnose.WaitsFor(p, &d); strings.Contains(w.Message, ", and SIGTERM follows") {
		t.Error(w.Message)
	}
}

// outcomes runs readings through the verdict, and returns the outcomes.
func outcomes(all []*evidence.Pod) (last verdict.Outcome, withdrawn int, c *verdict.Case) {
	c = new(verdict.Case)
	for _, p := range all {
		d := cause.Diagnose(p)
		c.Judge(verdict.Subject{Kind: verdict.Pod, Namespace: "n", Name: "p", UID: "u"}, p, d)
		if last = c.Outcome(); last == verdict.Withdrawn {
			withdrawn++
		}
	}
	return last, withdrawn, c
}

// What a probe that timed out has left, or a kubectl exec without a terminal, takes a verdict back that is true.
func TestExecTakesNothingBack(t *testing.T) {
	for name, add := range map[string]func(at time.Duration, p *evidence.Pod){
		"kubectl exec -i": func(at time.Duration, p *evidence.Pod) {
			if at >= 60*sec {
				executedAt(p, 300, "tail", 59*sec, false)
			}
		},
		"orphan of a readiness probe that was ended": func(at time.Duration, p *evidence.Pod) {
			if at >= 60*sec {
				o := task(301, 100, "curl", evidence.Sleeping, "poll")
				o.Probe.Started, o.Probe.Group = requested.Add(59*sec), 300
				p.Tasks = append(p.Tasks, o)
			}
		},
	} {
		all := readings(10*time.Minute, every(1*sec, 120*sec, 2*sec), func(at time.Duration, p *evidence.Pod, _ *evidence.Task) {
			withHook(p, 500*time.Millisecond, 4*sec)
			p.Before = known(p)
			p.Before.Tasks = p.Before.Tasks[:1]
			add(at, p)
		})
		if _, n, c := outcomes(all); n > 0 {
			t.Errorf("%s: withdrawn; %v", name, c.Standing().Cause)
		}
	}
}

// Somebody looks, with a terminal, or a probe runs, while the hook does.
func TestSecondProcessHidesNoHook(t *testing.T) {
	for name, tty := range map[string]bool{"kubectl exec -it": true, "readiness probe, hanging": false} {
		all := readings(time.Hour, every(1*sec, 500*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
			handles(p, first)
			withHook(p, 500*time.Millisecond, time.Hour)
			if at >= 400*sec {
				executedAt(p, 300, "bash", 399*sec, tty)
			}
		})
		o, n, c := outcomes(all)
		d := cause.Diagnose(last(all))
		w, _ := diagnose.WaitsFor(last(all), &d)
		if n > 0 || c.Standing().Cause != "PreStopHookRunning" {
			t.Errorf("%s: %v, withdrawn %d times, standing %q, and then: %s", name, o, n, c.Standing().Cause, w.Message)
		}
	}
}

// The hook has asked the program to end, which the shell does not do: it drains and ends in time.
func TestHookHasAsked(t *testing.T) {
	p := last(readings(120*sec, every(1*sec, 15*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe, first.Probe.Syscall = "sh", "dash", "wait4"
		nginx := task(101, 100, "nginx", evidence.Sleeping, "rt_sigsuspend")
		nginx.Caught = bitTERM | bitQUIT | bitINT
		p.Tasks = append(p.Tasks, nginx)
		p.Before = known(p)
		withHook(p, 500*time.Millisecond, 800*time.Millisecond) // nginx -s quit, or pkill -TERM nginx
		p.Containers[0].PreStopOnlySleeps = false
	}))
	if f := verdictOf(p); f.Cause != "" {
		t.Errorf("%s: %s. Remedy: %s Danger: %s", f.Cause, f.Message, f.Remedy, f.Danger)
	}
}

// The app has used up the grace period, and its sidecar, which has no handler, is told of.
func TestSidecarIsNotBlamed(t *testing.T) {
	{
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Kind, p.Containers[0].Name = evidence.Sidecar, "logs"
			gone(p, 137, 2*time.Second)
			p.Time = p.Deadline.Add(time.Second)
			p.Containers = append(p.Containers, evidence.Container{
				Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateExited, Exit: &evidence.Exit{Code: 137, At: p.Deadline},
			})
		})
		if f := verdictOf(p); f.Cause != "" {
			t.Errorf("%s: %s", f.Cause, f.Message)
		}
	}
}

// A native sidecar is asked when the app has ended.
func TestWaitOfASidecar(t *testing.T) {
	p := last(readings(300*sec, every(1*sec, 61*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		p.StopBegun = true
		p.Containers[0].Kind, p.Containers[0].Name = evidence.Sidecar, "istio-proxy"
		handles(p, first)
		app := evidence.Container{
			Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{PID: 300},
		}
		if at >= 55*sec {
			app.State, app.Exit = evidence.StateExited, &evidence.Exit{At: requested.Add(54 * sec)}
		}
		p.Containers = append(p.Containers, app)
	}))
	d := cause.Diagnose(p)
	if w, _ := diagnose.WaitsFor(p, &d); strings.Contains(w.Message, "was sent SIGTERM at 03:00:00") {
		t.Error(w.Message)
	}
}

// A hook that asks a port had its answer at once, and the program drains.
func TestWaitBehindAnHTTPHook(t *testing.T) {
	p := last(readings(time.Hour, every(1*sec, 61*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		p.StopBegun = true
		p.Containers[0].PreStop, p.Containers[0].PreStopPort = true, 8080
		handles(p, first)
	}))
	d := cause.Diagnose(p)
	if w, _ := diagnose.WaitsFor(p, &d); strings.Contains(w.Message, ", and SIGTERM follows") {
		t.Error(w.Message)
	}
}

// The kubelet is down, stopped, or its node is shutting down.
func TestNoWaitUnderADeadKubelet(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){
		"gone": func(p *evidence.Pod) {
			p.Node.Read, p.Node.Kubelet.LastSeen, p.StopAwaited = p.Time, requested.Add(-5*time.Minute), true
			p.Node.Kubelet.AbsentSince = requested.Add(-5 * time.Minute)
		},
		"stopped": func(p *evidence.Pod) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Stopped, UnchangedSince: requested}
		},
		"shutting down": func(p *evidence.Pod) { p.Node.Ready = &evidence.NodeReady{ShuttingDown: true} },
	} {
		p := last(readings(time.Hour, every(1*sec, 61*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
			handles(p, first)
			change(p)
		}))
		d := cause.Diagnose(p)
		if w, ok := diagnose.WaitsFor(p, &d); ok && !w.Back {
			t.Errorf("%s: %s", name, w.Message)
		}
	}
}

// The kubelet has begun late, or has not begun, and SIGKILL comes later than the deadline.
func TestWaitUnderALateKubelet(t *testing.T) {
	for name, begun := range map[string]bool{"begun late": true, "not begun": false, "started anew": true} {
		p := last(readings(300*sec, every(1*sec, 61*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
			handles(p, first)
			if name == "started anew" {
				p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Started: requested.Add(50 * sec)}}
				return
			}
			p.StopBegun, p.StopAwaited = begun && at > 45*sec, !begun || at <= 45*sec
		}))
		d := cause.Diagnose(p)
		if w, _ := diagnose.WaitsFor(p, &d); strings.Contains(w.Message, "SIGKILL comes at 03:05:00") {
			t.Errorf("%s: %s", name, w.Message)
		}
	}
}

// A program hangs in the kernel.
func TestNoWaitOfWhatHangs(t *testing.T) {
	p := last(readings(time.Hour, every(1*sec, 61*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		p.StopBegun = true
		handles(p, first)
		first.State, first.SharedPending = evidence.Uninterruptible, bitTERM
		first.Probe.Wchan = "rpc_wait_bit_killable"
	}))
	d := cause.Diagnose(p)
	if w, ok := diagnose.WaitsFor(p, &d); ok {
		t.Error(w.Message)
	}
}

// The agent was started in the middle of a long grace period.
func TestAgentStartedBehindAHook(t *testing.T) {
	p := last(readings(time.Hour, every(50*time.Minute, time.Hour-sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Caught = bitTERM
		p.Before = new(evidence.Baseline)
		withHook(p, 500*time.Millisecond, 4*sec)
	}))
	killedAt(p, 137, 0)
	if f := verdictOf(p); strings.Contains(f.Message, "10m0s that its preStop hook left") {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// The hook is over, and its verdict stands until the deadline: nothing is known from before, as of a pod that was deleted soon after
// the agent, or the pod, was started.
func TestHookVerdictEndsWithTheHook(t *testing.T) {
	all := readings(time.Hour, every(1*sec, 600*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, _ *evidence.Task) {
		withHook(p, 500*time.Millisecond, 400*sec)
		p.Before = new(evidence.Baseline)
	})
	if _, _, c := outcomes(all); c.Standing().Cause == "PreStopHookRunning" {
		t.Error("stands 200 seconds after the hook was over")
	}
}

// The hook of a proxy waits for the app, which drains.
func TestHookWaitsForTheApp(t *testing.T) {
	p := last(readings(time.Hour, every(1*sec, 400*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, _ *evidence.Task) {
		p.Containers[0].Name = "istio-proxy"
		withHook(p, 500*time.Millisecond, time.Hour)
		app := task(300, 50, "server", evidence.Sleeping, "epoll_wait")
		app.Container, app.NSpid, app.Caught = "a", []int{300, 1}, bitTERM
		p.Tasks = append(p.Tasks, app)
		p.Containers = append(p.Containers, evidence.Container{
			Name: "app", Kind: evidence.App, ID: "a", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{Status: "running", PID: 300},
		})
	}))
	if f := verdictOf(p); f.Cause != "" {
		t.Errorf("%s: %s. Remedy: %s", f.Cause, f.Message, f.Remedy)
	}
}

// Hooks that have not used up the grace period.
func TestHookHasNotUsedUp(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod, first *evidence.Task){
		"a sleep of 28 seconds leaves two, and the program ends in one": func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 28, -time.Second)
			p.Containers[0].Exit.Code = 0
		},
		"a sleep of 28 seconds leaves two, and the program ends a moment before SIGKILL": func(p *evidence.Pod, _ *evidence.Task) {
			sleepy(p, 28, 0)
			p.Containers[0].Exit.Code = 0
		},
		"sleep 25, the program drains for five seconds, and the last whole reading is from before": func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested.Add(500*time.Millisecond))
			gone(p, 0, 0)
			p.Time = requested.Add(25 * time.Second)
		},
	} {
		p := stopping(change)
		if f := verdictOf(p); strings.Contains(f.Message, "used up") {
			t.Errorf("%s: %s", name, f.Message)
		}
	}
}

// A starved node; the kubelet has begun, its hook has not, and a probe was seen.
func TestProbeBeforeTheHook(t *testing.T) {
	all := readings(60*sec, every(1*sec, 8*sec, time.Second), func(at time.Duration, p *evidence.Pod, _ *evidence.Task) {
		p.StopBegun = at > 2*sec
		withHook(p, 9*sec, 40*sec)
		if at == 1*sec {
			executedAt(p, 300, "redis-cli", 500*time.Millisecond, false)
		}
		if at >= 5*sec {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Command: "exec", Container: "c"}}
		}
		p.Before = known(p)
		p.Before.Tasks = p.Before.Tasks[:1]
	})
	for _, p := range all {
		if f := verdictOf(p); f.Cause != "" {
			t.Errorf("after %s: %s: %s", p.Time.Sub(requested), f.Cause, f.Message)
		}
	}
}

// Five seconds are left, and the program works on what must not be interrupted.
func TestBlocksForAMomentBehindAHook(t *testing.T) {
	p := last(readings(30*sec, every(1*sec, 29*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		withHook(p, 500*time.Millisecond, 24*sec)
		first.Blocked, first.State, first.Switches = bitTERM, evidence.Runnable, uint64(at)
		if at > 24*sec {
			first.SharedPending = bitTERM
		}
		p.Before = known(p)
		p.Before.Tasks = p.Before.Tasks[:1]
	}))
	killedAt(p, 137, 0)
	if f := verdictOf(p); f.Cause != "" {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// The shell that has dropped its signal executes the server, which handles it.
func TestExecutesAHandlerSince(t *testing.T) {
	all := readings(5*time.Minute, every(1*sec, 120*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Probe.Reaped = "sh", "dash", "wait4", 9
		p.Before = known(p)
		if at > 40*sec {
			first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught, first.Probe.Reaped = "server", "server", "epoll_wait", bitTERM, 9
		}
	})
	if _, n, c := outcomes(all); n > 0 || c.Standing().Cause == "" {
		t.Errorf("withdrawn %d times, standing %q", n, c.Standing().Cause)
	}
}

// The hook has asked the program that is in the shell's foreground, which is said not to have been asked.
func TestHookMayHaveTold(t *testing.T) {
	p := last(readings(120*sec, every(1*sec, 61*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		first.Comm, first.Probe.Exe, first.Probe.Syscall, first.Caught = "sh", "dash", "wait4", bitTERM
		app := task(101, 100, "java", evidence.Sleeping, "futex")
		app.Caught = bitTERM
		p.Tasks = append(p.Tasks, app)
		p.Before = known(p)
		withHook(p, 500*time.Millisecond, 800*time.Millisecond) // pkill -TERM java
		p.Containers[0].PreStopOnlySleeps = false
	}))
	if f := verdictOf(p); strings.Contains(said(&f), "without having been asked to stop") {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// Readings are ten seconds apart on a busy node, and the hook ran between two of them.
func TestHookBetweenReadings(t *testing.T) {
	apart := []time.Duration{300 * time.Millisecond, 10 * sec, 20 * sec, 29 * sec}
	p := last(readings(30*sec, apart, func(_ time.Duration, p *evidence.Pod, first *evidence.Task) {
		handles(p, first)
		withHook(p, 500*time.Millisecond, 9*sec)
	}))
	killedAt(p, 137, 0)
	if f := verdictOf(p); strings.Contains(f.Message, "within the 30s that its preStop hook left of the 30s grace period") {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// Nothing is known of before, and the signal was dropped.
func TestWaitOfADroppedSignal(t *testing.T) {
	p := last(readings(time.Hour, every(1*sec, 61*sec, 2*sec), func(_ time.Duration, p *evidence.Pod, _ *evidence.Task) {
		p.StopBegun, p.Before = true, new(evidence.Baseline)
	}))
	d := cause.Diagnose(p)
	if w, _ := diagnose.WaitsFor(p, &d); strings.Contains(w.Message, "received SIGTERM") {
		t.Error(w.Message)
	}
}

// The runtime could not send the signal, which the kubelet has told, and the last reading is from after the deadline.
func TestKillFailureWhenGone(t *testing.T) {
	p := stopping(func(p *evidence.Pod, _ *evidence.Task) {
		gone(p, 137, 2*time.Second)
		p.Time = p.Deadline.Add(time.Second)
		p.KillFailures = []evidence.KillFailure{{Text: "error killing pod: failed to \"KillContainer\"", First: requested, Last: requested, Count: 1}}
	})
	if f := verdictOf(p); f.Cause != "" {
		t.Errorf("%s: %s", f.Cause, f.Message)
	}
}

// A probe or a person that executes something shortly, in the second in which the hook is read, and the pod is gone.
func TestSecondProcessHidesNoHookWhenGone(t *testing.T) {
	p := last(readings(30*sec, every(1*sec, 31*sec, 2*sec), func(at time.Duration, p *evidence.Pod, first *evidence.Task) {
		handles(p, first)
		withHook(p, 500*time.Millisecond, time.Hour)
		if at == 31*sec {
			executedAt(p, 300, "redis-cli", 30500*time.Millisecond, false)
		}
	}))
	killedAt(p, 137, 2*sec)
	if f := verdictOf(p); f.Cause != "PreStopHookRunning" {
		t.Errorf("%q: %s", f.Cause, f.Message)
	}
}
