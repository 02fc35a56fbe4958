package diagnose_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

func TestSidecarsWait(t *testing.T) {
	sidecar := func(p *evidence.Pod, name string, pid int, change func(c *evidence.Container, t *evidence.Task)) {
		c := evidence.Container{Name: name, Kind: evidence.Sidecar, ID: name, State: evidence.StateRunning, StopSignal: evidence.SIGTERM,
			Task: evidence.ShimTask{Status: "running", PID: pid}}
		s := task(pid, 50, name, evidence.Sleeping, "epoll_wait")
		s.Container, s.NSpid = name, []int{pid, 1}
		change(&c, &s)
		p.Containers, p.Tasks = append(p.Containers, c), append(p.Tasks, s)
	}
	as := func(*evidence.Container, *evidence.Task) {}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, first *evidence.Task)
		want   []string
	}{
		"one": {func(p *evidence.Pod, _ *evidence.Task) { sidecar(p, "proxy", 200, as) }, []string{"proxy"}},
		"two": {func(p *evidence.Pod, _ *evidence.Task) { sidecar(p, "proxy", 200, as); sidecar(p, "logs", 300, as) }, []string{"proxy", "logs"}},
		"with a preStop hook": {func(p *evidence.Pod, _ *evidence.Task) {
			sidecar(p, "proxy", 200, func(c *evidence.Container, _ *evidence.Task) { c.PreStop = true })
		}, nil},
		"has exited": {func(p *evidence.Pod, _ *evidence.Task) {
			sidecar(p, "proxy", 200, func(c *evidence.Container, _ *evidence.Task) { c.State = evidence.StateExited })
		}, nil},
		"was sent it by somebody": {func(p *evidence.Pod, _ *evidence.Task) {
			sidecar(p, "proxy", 200, func(_ *evidence.Container, t *evidence.Task) { t.SharedPending = bitTERM })
		}, nil},
		"ends": {func(p *evidence.Pod, _ *evidence.Task) {
			sidecar(p, "proxy", 200, func(_ *evidence.Container, t *evidence.Task) { t.SharedPending = bitKILL })
		}, nil},
		"no verdict":           {func(p *evidence.Pod, t *evidence.Task) { t.Caught = bitTERM; sidecar(p, "proxy", 200, as) }, nil},
		"past the deadline":    {func(p *evidence.Pod, _ *evidence.Task) { sidecar(p, "proxy", 200, as); p.Time = p.Deadline }, nil},
		"verdict on a sidecar": {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].Kind = evidence.Sidecar }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(stopping(func(p *evidence.Pod, first *evidence.Task) {
				p.Skew = new(evidence.Skew)
				tc.change(p, first)
			}))
			if diff := cmp.Diff(tc.want, d.Sidecars); diff != "" {
				t.Error(diff)
			}
			if slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return slices.Contains(tc.want, f.Container) }) {
				t.Errorf("a sidecar that waits is accused: %+v", d.Findings)
			}
		})
	}
}

func TestOutlook(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   string
	}{
		"in the grace period": {func(*evidence.Pod) {}, "not stuck: the grace period ends in 20s, at 03:00:30 UTC"},
		"a finalizer": {func(p *evidence.Pod) { p.Finalizers = []string{"example.com/a"} }, "not overdue, but finalizer " +
			"example.com/a will keep it after its containers exit; the grace period ends in 20s, at 03:00:30 UTC"},
		"only a volume is left": {func(p *evidence.Pod) { p.Phase, p.Mounts = "Succeeded", []evidence.Mount{{Point: "/v"}} },
			"not overdue, but volumes that are still mounted will keep it after its containers exit; the grace period ends in 20s, at 03:00:30 UTC"},
		"ended": {func(p *evidence.Pod) { p.Phase = "Failed" }, "not overdue: all containers have " +
			"exited, and the kubelet still cleans up; the grace period ends in 20s, at 03:00:30 UTC"},
		"after the final delete of a finalizer": {func(p *evidence.Pod) { p.Finalizers, p.GracePeriodSeconds = []string{"example.com/a"}, 0 }, ""},
		"another day": {func(p *evidence.Pod) { p.Deadline = p.Deadline.Add(24 * time.Hour) }, "not stuck: the " +
			"grace period ends in 24h0m20s, at 2026-03-02 03:00:30 UTC"},
		"a second deletion, perhaps": {func(p *evidence.Pod) { p.DeadlineUnsure = true }, "not stuck: the grace period ends " +
			"in 20s at the latest, at 03:00:30 UTC"},
		"late":         {func(p *evidence.Pod) { p.Time = p.Deadline }, ""},
		"clocks":       {func(p *evidence.Pod) { p.Skew, p.Time = nil, p.Deadline.Add(-2*time.Second) }, ""},
		"with a cause": {func(p *evidence.Pod) { p.Tasks[0].Caught = 0 }, ""},
	} {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) { p.Skew, first.Caught = new(evidence.Skew), bitTERM })
		tc.change(p)
		p.Before = known(p)
		d := cause.Diagnose(p)
		if got := diagnose.Outlook(p, &d); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
