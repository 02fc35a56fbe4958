package diagnose_test

import (
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// silent is a pod whose containerd, or shim, has not answered so many questions
// in the last seconds.
func silent(shim bool, attempts int, seconds time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time = p.Deadline.Add(10 * time.Minute)
		first.Caught = bitTERM
		since := p.Time.Add(-seconds * time.Second)
		if shim {
			p.Containers[0].Task = evidence.ShimTask{Asked: p.Time, UnansweredSince: since, Attempts: attempts}
			p.Parents = append(p.Parents, evidence.Task{PID: 90, TID: 90, Comm: "containerd-shim", State: evidence.Sleeping, UnchangedSince: since})
		} else {
			p.Node.Containerd = evidence.ContainerdService{Error: "no answer", UnansweredSince: since, Attempts: attempts,
				Process: &evidence.Task{PID: 80, TID: 80, Comm: "containerd", State: evidence.Sleeping, UnchangedSince: since}}
		}
		change(p)
	})
}

// TestSilence checks when a silence of the container runtime is a hang.
func TestSilence(t *testing.T) {
	nothing := func(*evidence.Pod) {}
	pressure := func(x evidence.Pressure) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Pressure = &x }
	}
	containerdIn := func(state evidence.TaskState) func(*evidence.Pod) {
		return func(p *evidence.Pod) { p.Node.Containerd.Process.State = state }
	}
	for name, test := range map[string]struct {
		pod  *evidence.Pod
		want string
	}{
		"containerd, for a minute":                                {silent(false, 3, 61, nothing), "ContainerdHung"},
		"containerd, for less":                                    {silent(false, 3, 59, nothing), ""},
		"containerd, for a minute, pressure low":                  {silent(false, 3, 61, pressure(evidence.Pressure{CPU: 20, IO: 3})), "ContainerdHung"},
		"containerd, for four minutes, no processor to spare":     {silent(false, 16, 240, pressure(evidence.Pressure{CPU: 97})), ""},
		"containerd, for four minutes, memory is reclaimed":       {silent(false, 16, 240, pressure(evidence.Pressure{Memory: 60})), ""},
		"containerd, for four minutes, the disk is busy":          {silent(false, 16, 240, pressure(evidence.Pressure{IO: 80})), ""},
		"containerd, for five minutes, no processor to spare":     {silent(false, 20, 301, pressure(evidence.Pressure{CPU: 97})), "ContainerdHung"},
		"containerd, stopped for five seconds":                    {silent(false, 2, 5, containerdIn(evidence.Stopped)), "ContainerdHung"},
		"containerd, in uninterruptible sleep for five seconds":   {silent(false, 2, 5, containerdIn(evidence.Uninterruptible)), ""},
		"containerd, in uninterruptible sleep for eleven seconds": {silent(false, 2, 11, containerdIn(evidence.Uninterruptible)), "ContainerdHung"},
		"shim, over three minutes":                                {silent(true, 3, 183, nothing), "ShimHung"},
		"shim, over three minutes, no processor to spare":         {silent(true, 3, 183, pressure(evidence.Pressure{CPU: 97})), ""},
		"shim, over six minutes, no processor to spare":           {silent(true, 4, 363, pressure(evidence.Pressure{CPU: 97})), "ShimHung"},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(test.pod)
			got := ""
			for _, f := range d.Findings {
				if f.Cause == "ContainerdHung" || f.Cause == "ShimHung" {
					got = f.Cause
				}
			}
			if got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}
