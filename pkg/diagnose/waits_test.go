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
		"another deadline": {func(p *evidence.Pod, _ *evidence.Task) { p.DeadlineUnsure = true }, "it will be killed at the latest at 04:00:00 UTC"},
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
