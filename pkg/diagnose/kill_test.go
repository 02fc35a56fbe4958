package diagnose_test

import (
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// leftVolume is a pod, late by so long, whose containers ended ten seconds after the request for its deletion, and of which a volume is
// still mounted. The kubelet works.
func leftVolume(grace, late time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, _ *evidence.Task) {
		p.Deadline, p.GracePeriodSeconds = requested.Add(grace), int64(grace/time.Second)
		p.Time = p.Deadline.Add(late)
		p.Skew, p.Node.Pressure, p.Node.Read, p.Node.Time = new(evidence.Skew), new(evidence.Pressure), p.Time, p.Time
		p.ContainersRead, p.CgroupsRead, p.TasksRead = p.Time, p.Time, p.Time
		k, before := &p.Node.Kubelet, requested.Add(-72*time.Hour)
		k.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Started: before, Start: 700}}
		k.Health, k.LastSeen, k.Answers = "ok", p.Time, true
		p.Node.Containerd.ConnectedSince = before
		p.Node.Ready = &evidence.NodeReady{Asked: p.Time.Add(-time.Second), Status: "True", Since: before, Transition: before}
		p.Phase, p.Tasks = "Succeeded", nil
		c := &p.Containers[0]
		c.State, c.Running, c.Exit, c.Task = evidence.StateExited, false, &evidence.Exit{At: requested.Add(5 * time.Second)}, evidence.ShimTask{}
		p.Cgroups = []evidence.Cgroup{{Path: "/kubepods/podu", Version: 2}}
		p.Mounts = []evidence.Mount{{ID: 5, Volume: "data", Plugin: "kubernetes.io~csi", Type: "ext4"}}
		p.UnchangedSince, p.StageSince = requested.Add(10*time.Second), requested.Add(10*time.Second)
		p.Seen = evidence.Seen{Group: true, Directory: true, Runtimes: []string{"io.containerd.runc.v2"}}
		change(p)
	})
}

// Where nothing is left to kill nobody waits for a grace period, however long it is: not the kubelet that was started anew or is heard again, and
// not for a hook at the start.
func TestNobodyWaitsForTheDead(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		after  time.Duration // how long after the deadline it is told, at the latest
	}{
		"nothing else":                            {func(*evidence.Pod) {}, 65 * time.Second},
		"a postStart hook":                        {func(p *evidence.Pod) { p.Containers[0].PostStart = true }, 65 * time.Second},
		"a postStart hook in 1.34":                {func(p *evidence.Pod) { p.Containers[0].PostStart, p.StopBegun = true, true }, 65 * time.Second},
		"the kubelet was started at the deadline": {func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe.Started = p.Deadline }, 65 * time.Second},
		"the node became Ready at the deadline":   {func(p *evidence.Pod) { p.Node.Ready.Transition = p.Deadline }, 65 * time.Second},
	} {
		for _, grace := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour} {
			first := time.Duration(-1)
			for late := time.Second; late < 3*time.Hour && first < 0; late += 4 * time.Second {
				if _, told := ptr(cause.Diagnose(leftVolume(grace, late, tc.change))).Verdict(); told {
					first = late
				}
			}
			if first < 55*time.Second || first > tc.after {
				t.Errorf("%s, grace %s: told %s after the deadline", name, grace, first)
			}
		}
	}
}

// A kubelet that does not stay up, or a node that is Ready again and again, does not silence a pod for ever.
func TestRestartsDoNotSilence(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod, last time.Time){
		"the kubelet is started": func(p *evidence.Pod, last time.Time) { p.Node.Kubelet.Process.Probe.Started = last },
		"the node becomes Ready": func(p *evidence.Pod, last time.Time) { p.Node.Ready.Transition, p.Node.Ready.Since = last, last },
	} {
		for _, every := range []time.Duration{90 * time.Second, 2 * time.Minute, 5 * time.Minute} {
			told := 0
			for late := time.Hour; late < time.Hour+every; late += 5 * time.Second {
				p := leftVolume(30*time.Second, late, func(p *evidence.Pod) { change(p, p.Time.Add(-(late % every))) })
				if _, ok := ptr(cause.Diagnose(p)).Verdict(); ok {
					told++
				}
			}
			if told == 0 {
				t.Errorf("%s each %s: told in none of its readings", name, every)
			}
		}
	}
}

// What still waits for a start that took its time, or runs where nobody sees it, has all of its grace period.
func TestUnknownWaitsForTheLiving(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod, first *evidence.Task){
		"a postStart hook has ended since, of a kubelet that does not tell": func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].PostStart = true },
		"its processes are in a kernel of their own": func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Runtime, p.Tasks = "io.containerd.kata.v2", nil
			p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Started: p.Deadline}}
		},
	} {
		p := stopping(func(p *evidence.Pod, first *evidence.Task) {
			p.Skew, p.Node.Pressure, first.Caught = new(evidence.Skew), new(evidence.Pressure), bitTERM
			p.Deadline, p.GracePeriodSeconds = requested.Add(10*time.Minute), 600
			p.Time = p.Deadline.Add(3 * time.Minute)
			p.Node.Time, p.Node.Read = p.Time, p.Time
			p.UnchangedSince = requested.Add(5 * time.Minute)
			change(p, first)
		})
		if v, told := ptr(cause.Diagnose(p)).Verdict(); told {
			t.Errorf("%s: %s: %s", name, v.Cause, v.Message)
		}
	}
}

// A hook that is over is not told of because the kubelet was away for a while.
func TestHookIsOverThoughTheNodeWasAway(t *testing.T) {
	p := stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Skew, first.Ignored = new(evidence.Skew), bitTERM
		p.Deadline, p.GracePeriodSeconds = requested.Add(time.Hour), 3600
		p.Time = requested.Add(50*time.Minute + 5*time.Second)
		p.Node.Time = p.Time
		p.Node.Ready = &evidence.NodeReady{Status: "True", Transition: requested.Add(50 * time.Minute), Asked: p.Time}
		p.Containers[0].PreStop, p.Containers[0].PreStopSleep = true, 15
	})
	v, _ := ptr(cause.Diagnose(p)).Verdict()
	if v.Cause == "PreStopHookRunning" || v.Objects.HookLeftSeconds > 3600 {
		t.Errorf("%s: %s", v.Cause, v.Message)
	}
}
