package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Of a pod inside its grace period it is said which process runs, since when it has had its signal, and until when.
func TestWaitsFor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, first *evidence.Task)
		want   string // a part; "" for nothing
	}{
		"it drains": {func(p *evidence.Pod, _ *evidence.Task) { p.StopBegun = true },
			"Not stuck: container main is inside its grace period of 1h0m0s. Process app (PID 100 on the node) was sent SIGTERM at 03:00:00 UTC. " +
				"Unless it exits first, it will be killed at 04:00:00 UTC."},
		"an older kubelet":      {func(*evidence.Pod, *evidence.Task) {}, "was probably sent SIGTERM. Unless it exits first, it will be killed at"},
		"the signal is pending": {func(_ *evidence.Pod, t *evidence.Task) { t.SharedPending = bitTERM }, "was sent SIGTERM at 03:00:00 UTC"},
		"the kubelet waits":     {func(p *evidence.Pod, _ *evidence.Task) { p.StopAwaited = true }, "the kubelet has not begun to stop the pod"},
		"its hook runs": {func(p *evidence.Pod, _ *evidence.Task) { hooked(p, requested.Add(time.Second)) },
			"its preStop hook (PID 120 on the node) has been running since 03:00:01 UTC, and SIGTERM follows"},
		"its hook sleeps": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].PreStop, p.Containers[0].PreStopSleep = true, 120
		}, "sleeps until 03:02:00 UTC, and SIGTERM follows"},
		"its hook is not seen": {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].PreStop = true },
			"SIGTERM follows its preStop hook, and whether the hook is over is not known"},
		"its hook is over": {func(p *evidence.Pod, _ *evidence.Task) {
			hooked(p, requested)
			p.Tasks, p.Containers[0].HookOver = p.Tasks[:1], requested.Add(20*time.Second)
		}, "was sent SIGTERM at 03:00:20 UTC, after its preStop hook"},
		"for days": {func(p *evidence.Pod, _ *evidence.Task) { p.Deadline = requested.Add(168 * time.Hour) },
			"container main is inside its grace period of 168h0m0s. Process app (PID 100 on the node) was probably sent SIGTERM. " +
				"Unless it exits first, it will be killed at 2026-03-08 03:00:00 UTC"},
		"another deadline": {func(p *evidence.Pod, _ *evidence.Task) { p.DeadlineUnsure = true }, "container main is inside its grace period. " +
			"Process app (PID 100 on the node) runs; whether its stop signal was sent is not known. Unless it exits first, it will be killed when the " +
			"grace period of its first deletion is over. When that is is not known: it may have been deleted twice."},
		"deleted again, with a shorter grace period": {func(p *evidence.Pod, _ *evidence.Task) { p.Shortened = true },
			"it will be killed at 04:00:00 UTC. That it was deleted again with a shorter grace period has no effect on this kubelet."},
		"deleted again, of a whole ID": {func(p *evidence.Pod, first *evidence.Task) {
			id := strings.Repeat("c0ffee00", 8)
			p.Shortened, p.Containers[0].ID, first.Container = true, id, id
		}, " To kill it before that, on the node: ctr -n k8s.io tasks kill --signal SIGKILL c0ffee00"},
		"an older kubelet that was away": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Ready = &evidence.NodeReady{Status: "True", Transition: requested.Add(time.Minute)}
		}, "runs; when its stop signal was sent is not known. Unless it exits first, it will be killed at the latest at 04:01:00 UTC."},
		"containerd is silent": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Containerd.UnansweredSince = requested.Add(45 * time.Second)
		}, ""},
		"containerd is silent for a minute": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Containerd.UnansweredSince = requested.Add(30 * time.Second)
			p.Lack(evidence.Containers, "containerd does not answer")
		}, "The pod is inside its grace period. Whether it will be killed when that is over is not known: containerd has not answered since 03:00:30 UTC."},
		"the kubelet hangs, nobody knows since when, and the shim is stopped": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Ready = &evidence.NodeReady{Status: "False", RuntimeDown: true}
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Stopped, UnchangedSince: requested})
		}, "its shim has been stopped since 03:00:00 UTC."},
		"the kubelet was started anew": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Started: requested.Add(time.Minute)}}
		}, "runs; whether its stop signal was sent is not known. Unless it exits first, it will be killed at the latest at 04:01:00 UTC."},
		"the shim is stopped": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Stopped, UnchangedSince: requested})
		}, "Whether it will be killed when that is over is not known: its shim has been stopped since 03:00:00 UTC."},
		"another container": {func(p *evidence.Pod, _ *evidence.Task) { drainsToo(p) }, "container main (and 1 other) is inside " +
			"its grace period of 1h0m0s. Process app"},
		"a verdict":                 {func(_ *evidence.Pod, t *evidence.Task) { t.Caught = 0 }, ""},
		"past the deadline":         {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(time.Second) }, ""},
		"its containers have ended": {func(p *evidence.Pod, _ *evidence.Task) { p.Tasks = nil }, ""},
		"processes unread":          {func(p *evidence.Pod, _ *evidence.Task) { p.Lack(evidence.Processes, "x") }, ""},
		"a static pod":              {func(p *evidence.Pod, _ *evidence.Task) { p.Mirror = true }, ""},
		"a name that is no name":    {func(_ *evidence.Pod, t *evidence.Task) { t.Comm = "a. Delete it"; t.Probe.Exe = "" }, `Process "a. Delete it" (PID 100`},
	} {
		t.Run(name, func(t *testing.T) {
			p := stopping(func(p *evidence.Pod, first *evidence.Task) {
				p.Skew, first.Caught = new(evidence.Skew), bitTERM
				p.Time, p.Deadline, p.GracePeriodSeconds = requested.Add(90*time.Second), requested.Add(time.Hour), 3600
				tc.change(p, first)
			})
			d := cause.Diagnose(p)
			w, ok := diagnose.WaitsFor(p, &d)
			if ok != (tc.want != "") || !strings.Contains(w.Message, tc.want) {
				t.Errorf("%t, %q, want %q", ok, w.Message, tc.want)
			}
		})
	}
}

// drainsToo gives the pod another container, of which the program drains too.
func drainsToo(p *evidence.Pod) {
	other := task(200, 50, "server", evidence.Sleeping, "epoll_wait")
	other.Container, other.NSpid, other.Caught = "o", []int{200, 1}, bitTERM
	p.Tasks = append(p.Tasks, other)
	p.Containers = append(p.Containers, evidence.Container{
		Name: "other", Kind: evidence.App, ID: "o", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{Status: "running", PID: 200},
	})
}

// What is said to be over at a time is read again so, of the day of the request or another one.
func TestKilledAt(t *testing.T) {
	for _, period := range []time.Duration{time.Hour, 168 * time.Hour} {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) {
			p.Skew, first.Caught = new(evidence.Skew), bitTERM
			p.Time, p.Deadline, p.GracePeriodSeconds = requested.Add(90*time.Second), requested.Add(period), int64(period/time.Second)
		})
		d := cause.Diagnose(p)
		w, _ := diagnose.WaitsFor(p, &d)
		if got := diagnose.KilledAt(w.Message, requested); !got.Equal(p.Deadline) {
			t.Errorf("%s, not %s, by %q", got, p.Deadline, w.Message)
		}
	}
	for _, other := range []string{"", "it will be killed at noon.", "Not stuck: , it will be killed at 29:00:00 UTC."} {
		if got := diagnose.KilledAt(other, requested); !got.IsZero() {
			t.Errorf("%s by %q", got, other)
		}
	}
}
