package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// starting is a pod ten seconds past its deadline that the kubelet is still at the start
// of: its first process, and half a second later its postStart hook, were started ten
// seconds before the deletion.
func starting(change func(p *evidence.Pod, hook *evidence.Task)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		p.Time = p.Deadline.Add(10 * time.Second)
		p.Skew = new(evidence.Skew)
		p.Phase = "Pending"
		p.Node.Pressure = new(evidence.Pressure)
		p.Node.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping,
			Probe: &evidence.Probe{Started: requested.Add(-time.Hour * 72)}}
		p.Node.Containerd.ConnectedSince = requested.Add(-time.Hour * 72)
		first.Caught, first.Probe.Started = bitTERM, requested.Add(-10*time.Second)
		p.Containers[0].PostStart, p.Containers[0].PostStartProgram, p.Containers[0].Waiting = true, "register", true
		p.Parents = append(p.Parents, evidence.Task{PID: 50, TID: 50, Comm: "containerd-shim", State: evidence.Sleeping})
		hook := task(120, 50, "register", evidence.Sleeping, "epoll_wait")
		hook.Probe.Started, hook.Probe.Group = requested.Add(-9500*time.Millisecond), 120
		p.Tasks = append(p.Tasks, hook)
		change(p, &p.Tasks[1])
	})
}

// second adds a container in a state of containerd's, with a first process that was
// started then.
func second(p *evidence.Pod, state evidence.ContainerState, started time.Time) {
	o := evidence.Container{Name: "second", Kind: evidence.App, Waiting: true}
	if state != "" {
		o.ID, o.State, o.Task = "s", state, evidence.ShimTask{Status: string(state), PID: 300}
	}
	p.Containers = append(p.Containers, o)
	if state == evidence.StateRunning {
		t := task(300, 50, "second", evidence.Sleeping, "epoll_wait")
		t.Container, t.NSpid, t.Probe.Started, t.Probe.Group = "s", []int{300, 1}, started, 300
		p.Tasks = append(p.Tasks, t)
	}
}

func TestPostStartHook(t *testing.T) {
	shell := func(comm string) func(p *evidence.Pod, hook *evidence.Task) {
		return func(p *evidence.Pod, hook *evidence.Task) {
			p.Containers[0].PostStartProgram, hook.Comm, hook.Probe.Exe = "sh", comm, "busybox"
		}
	}
	executed := func(p *evidence.Pod, comm string, started time.Time) {
		o := task(130, 50, comm, evidence.Sleeping, "epoll_wait")
		o.Probe.Started, o.Probe.Group = started, 130
		p.Tasks = append(p.Tasks, o)
	}
	left := func(_ *evidence.Pod, hook *evidence.Task) { hook.PPID, hook.Probe.Group = 100, 119 }
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod, hook *evidence.Task)
		want   diagnose.Confidence // "" for silence
	}{
		"it runs":                         {func(*evidence.Pod, *evidence.Task) {}, diagnose.Proved},
		"a shell":                         {shell("sh"), diagnose.Proved},
		"what a shell has executed":       {shell("sleep"), diagnose.Proved},
		"before the deadline":             {func(p *evidence.Pod, _ *evidence.Task) { p.Time = p.Deadline.Add(-time.Second) }, ""},
		"no hook":                         {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].PostStartProgram = "" }, ""},
		"another program than the hook's": {func(_ *evidence.Pod, h *evidence.Task) { h.Comm, h.Probe.Exe = "curl", "curl" }, ""},
		"it has just ended":               {func(_ *evidence.Pod, h *evidence.Task) { h.State = evidence.Zombie }, ""},
		"the kubelet says that it runs":   {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].Waiting = false }, ""},
		"a child of the program":          {func(_ *evidence.Pod, h *evidence.Task) { h.PPID = 100 }, ""},
		"in the background, with hostPID": {func(p *evidence.Pod, h *evidence.Task) { p.HostPID, h.Probe.Group = true, 119 }, ""},
		"a daemon of a shell, hostPID":    {func(p *evidence.Pod, h *evidence.Task) { p.HostPID = true; shell("sh")(p, h) }, ""},
		"with hostPID":                    {func(p *evidence.Pod, _ *evidence.Task) { p.HostPID = true }, diagnose.Inferred},
		"with hostPID, another to come":   {func(p *evidence.Pod, _ *evidence.Task) { p.HostPID = true; second(p, "", time.Time{}) }, ""},
		"with a terminal":                 {func(_ *evidence.Pod, h *evidence.Task) { h.Probe.Terminal = true }, ""},
		"kubectl exec of its program":     {func(p *evidence.Pod, _ *evidence.Task) { p.Tasks[0].Probe.Started = requested.Add(-time.Minute) }, ""},
		"kubectl exec beside it":          {func(p *evidence.Pod, _ *evidence.Task) { executed(p, "sh", requested.Add(20*time.Second)) }, diagnose.Proved},
		"kubectl exec beside it, early":   {func(p *evidence.Pod, _ *evidence.Task) { executed(p, "sh", requested.Add(-9*time.Second)) }, ""},
		"one that could not be looked at": {func(p *evidence.Pod, _ *evidence.Task) { executed(p, "sh", requested); p.Tasks[2].Probe = nil }, ""},
		"late, on a node that is pressed": {func(p *evidence.Pod, h *evidence.Task) {
			h.Probe.Started = requested.Add(time.Second)
			p.Node.Pressure.StarvedUntil = p.Time
		}, diagnose.Proved},
		"late, and the pressure is not known": {func(p *evidence.Pod, h *evidence.Task) {
			h.Probe.Started = requested.Add(time.Second)
			p.Node.Pressure = nil
		}, ""},
		"after the deletion": {func(p *evidence.Pod, h *evidence.Task) {
			h.Probe.Started = requested.Add(4 * time.Second)
			p.Node.Pressure.StarvedUntil = p.Time
		}, ""},
		"first process not known": {func(p *evidence.Pod, _ *evidence.Task) { p.Tasks[0].Probe = nil }, ""},
		"restarted after a crash": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].Waiting, p.Containers[0].Exit = false, &evidence.Exit{Code: 1, At: requested.Add(-time.Minute)}
		}, diagnose.Proved},
		"restarted after CrashLoopBackOff": {func(p *evidence.Pod, _ *evidence.Task) { p.Containers[0].BackedOff = true }, diagnose.Proved},
		"in CrashLoopBackOff": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Containers[0].BackedOff, p.Containers[0].State = true, evidence.StateExited
		}, ""},
		"another container to come": {func(p *evidence.Pod, _ *evidence.Task) { second(p, "", time.Time{}) }, diagnose.Inferred},
		"a shell, another to come":  {func(p *evidence.Pod, h *evidence.Task) { shell("sleep")(p, h); second(p, "", time.Time{}) }, diagnose.Inferred},
		"another container from before": {func(p *evidence.Pod, h *evidence.Task) {
			shell("sh")(p, h)
			second(p, evidence.StateRunning, requested.Add(-time.Hour))
		}, diagnose.Proved},
		"another container has followed": {func(p *evidence.Pod, _ *evidence.Task) {
			second(p, evidence.StateRunning, requested.Add(-5*time.Second))
		}, ""},
		"the kubelet was started anew": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.Process.Probe.Started = requested.Add(-time.Second)
		}, ""},
		"a kubelet under another name":                  {func(p *evidence.Pod, _ *evidence.Task) { p.Node.Kubelet.Process = nil }, diagnose.Inferred},
		"what it has left":                              {left, diagnose.Inferred},
		"what it has left, another to come":             {func(p *evidence.Pod, h *evidence.Task) { left(p, h); second(p, "", time.Time{}) }, ""},
		"what it has left, and the kubelet has gone on": {func(p *evidence.Pod, h *evidence.Task) { left(p, h); p.Containers[0].Waiting = false }, ""},
		"a job of the program":                          {func(p *evidence.Pod, h *evidence.Task) { left(p, h); h.Probe.Group = 100 }, ""},
		"a daemon of the program":                       {func(p *evidence.Pod, h *evidence.Task) { left(p, h); h.Probe.Group = h.PID }, ""},
		"what it has left, beside kubectl exec":         {func(p *evidence.Pod, h *evidence.Task) { left(p, h); executed(p, "sh", requested) }, ""},
		"there is no kubelet": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, requested
		}, ""},
		"containerd was started anew": {func(p *evidence.Pod, _ *evidence.Task) { p.Node.Containerd.ConnectedSince = requested }, ""},
		"containerd was started anew long ago": {func(p *evidence.Pod, _ *evidence.Task) {
			p.Node.Containerd.ConnectedSince, p.Time = requested, p.Deadline.Add(time.Minute)
		}, diagnose.Proved},
	} {
		t.Run(name, func(t *testing.T) {
			p := starting(tc.change)
			d := cause.Diagnose(p)
			var got diagnose.Confidence
			for _, f := range d.Findings {
				if f.Cause == "PostStartHookRunning" {
					got = f.Confidence
				}
			}
			if got != tc.want || got != "" && d.Phase != diagnose.Startup {
				t.Errorf("found %q in phase %s, want %q", got, d.Phase, tc.want)
			}
		})
	}
}

// within makes the hook one that the kubelet is busy with itself: a sleep of a minute, which lasts for
// ten seconds more, or a request to port 8080 that has had no answer.
func within(p *evidence.Pod, sleeps bool) {
	c := &p.Containers[0]
	c.PostStartProgram, p.Tasks = "", p.Tasks[:1]
	if sleeps {
		c.PostStartSleep = 60
		return
	}
	c.PostStartPort = 8080
	p.Requests = []evidence.Request{{Port: 8080, Socket: 500, State: evidence.Established, Since: requested.Add(2 * time.Second)}}
}

func TestPostStartHookOfTheKubelet(t *testing.T) {
	kubelet := func(change func(k *evidence.Task)) func(p *evidence.Pod) {
		return func(p *evidence.Pod) { change(p.Node.Kubelet.Process) }
	}
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		sleep  diagnose.Confidence // "" for silence
		asks   diagnose.Confidence
	}{
		"it goes on":                    {func(*evidence.Pod) {}, diagnose.Inferred, diagnose.Inferred},
		"the kubelet has gone on":       {func(p *evidence.Pod) { p.Containers[0].Waiting = false }, "", ""},
		"before the deadline":           {func(p *evidence.Pod) { p.Time = p.Deadline.Add(-time.Second) }, "", ""},
		"the kubelet is stopped":        {kubelet(func(k *evidence.Task) { k.State = evidence.Stopped }), "", ""},
		"the kubelet was started anew":  {kubelet(func(k *evidence.Task) { k.Probe.Started = requested }), "", ""},
		"since when it runs is unknown": {kubelet(func(k *evidence.Task) { k.Probe = nil }), diagnose.Inferred, diagnose.Inferred},
		"the kubelet is a part of K3s":  {kubelet(func(k *evidence.Task) { k.Comm = "k3s-server" }), diagnose.Inferred, diagnose.Inferred},
		"there is no kubelet": {func(p *evidence.Pod) {
			p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, requested
		}, "", ""},
		"the container has ended": {func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }, "", ""},
		"first process not known": {func(p *evidence.Pod) { p.Tasks[0].Probe = nil }, "", ""},
		"another is yet to come":  {func(p *evidence.Pod) { second(p, "", time.Time{}) }, diagnose.Inferred, diagnose.Inferred},
		"another was started since": {func(p *evidence.Pod) {
			second(p, evidence.StateRunning, requested.Add(-time.Second))
		}, "", ""},
		"another was started before": {func(p *evidence.Pod) {
			second(p, evidence.StateRunning, requested.Add(-time.Hour))
		}, diagnose.Inferred, diagnose.Inferred},
		"the sleep is over":  {func(p *evidence.Pod) { p.Containers[0].PostStartSleep = 49 }, "", diagnose.Inferred},
		"an answer has come": {func(p *evidence.Pod) { p.Requests = nil }, diagnose.Inferred, ""},
		"two requests": {func(p *evidence.Pod) {
			p.Containers[0].PostStartSleep, p.Requests = 0, append(p.Requests, evidence.Request{Port: 8080, Socket: 501, Since: requested})
		}, "", ""},
		"a request just now": {func(p *evidence.Pod) {
			p.Containers[0].PostStartSleep, p.Requests = 0, []evidence.Request{{Port: 8080, Socket: 501, Since: p.Time}}
		}, "", ""},
		"a request that a probe may still wait for": {func(p *evidence.Pod) {
			p.Containers[0].PostStartSleep, p.Requests = 0, []evidence.Request{{Port: 8080, Socket: 501, State: evidence.Established,
				Since: p.Time.Add(-4 * time.Second)}}
		}, "", ""},
		"a connection that is still being made": {func(p *evidence.Pod) {
			p.Containers[0].PostStartSleep, p.Requests = 0, []evidence.Request{{Port: 8080, Socket: 501, State: "SYN_SENT", Since: requested}}
		}, "", ""},
		"a request to another port": {func(p *evidence.Pod) {
			p.Containers[0].PostStartSleep, p.Containers[0].PostStartPort = 0, 80
		}, "", ""},
	} {
		for sleeps, want := range map[bool]diagnose.Confidence{true: tc.sleep, false: tc.asks} {
			p := starting(func(p *evidence.Pod, _ *evidence.Task) { within(p, sleeps); tc.change(p) })
			d := cause.Diagnose(p)
			var got diagnose.Confidence
			for _, f := range d.Findings {
				if f.Cause == "PostStartHookRunning" {
					got = f.Confidence
				}
			}
			if got != want || got != "" && d.Phase != diagnose.Startup {
				t.Errorf("%s, sleep %t: found %q in phase %s, want %q", name, sleeps, got, d.Phase, want)
			}
		}
	}
	const next = ". The kubelet stops the pod only after the hook"
	for what, sleeps := range map[string]bool{
		" sleeps until 03:00:50 UTC (sleep of 1m0s)":                                     true,
		" (HTTP request to port 8080 of the pod) has had no response since 03:00:02 UTC": false,
	} {
		d := cause.Diagnose(starting(func(p *evidence.Pod, _ *evidence.Task) { within(p, sleeps) }))
		if f, _ := d.Verdict(); f.Message != "container main: its postStart hook"+what+next || !strings.Contains(said(&f), "no container "+
			"of the pod has been sent its stop signal") {
			t.Errorf("%s", f.Message)
		}
	}
}

// A hook that has run since another day says since which.
func TestPostStartHookOfAnotherDay(t *testing.T) {
	d := cause.Diagnose(starting(func(p *evidence.Pod, h *evidence.Task) {
		p.Tasks[0].Probe.Started, h.Probe.Started = requested.Add(-48*time.Hour), requested.Add(-48*time.Hour+time.Second)
	}))
	const want = "container main: its postStart hook register (PID 120 on the node) has been running since 2026-02-27 03:00:01 UTC. " +
		"The kubelet stops the pod only after the hook"
	if f, _ := d.Verdict(); f.Message != want {
		t.Errorf("%s", f.Message)
	}
	p := starting(func(_ *evidence.Pod, h *evidence.Task) { h.PPID, h.Probe.Group = 100, 119 })
	const left = "container main: its postStart hook has exited, but register (PID 120 on the node), started by it, holds its output open. "
	d = cause.Diagnose(p)
	if f, _ := d.Verdict(); !strings.HasPrefix(f.Message, left) || !strings.Contains(said(&f), "has run in the container since 02:59:50 UTC") {
		t.Errorf("%s", f.Message)
	}
}

// No signal is taken for sent while the kubelet is at the start of a container.
func TestNoSignalWhileAContainerStarts(t *testing.T) {
	for name, change := range map[string]func(c *evidence.Container){
		"first start":       func(c *evidence.Container) { c.Waiting = true },
		"after a crash":     func(c *evidence.Container) { c.Exit = &evidence.Exit{Code: 1} },
		"after a back-off":  func(c *evidence.Container) { c.Waiting, c.BackedOff = true, true },
		"not a start (now)": func(*evidence.Container) {},
	} {
		p := stopping(func(p *evidence.Pod, _ *evidence.Task) { change(&p.Containers[0]) })
		if d := cause.Diagnose(p); (len(d.Findings) > 0) != (name == "not a start (now)") {
			t.Errorf("%s: %+v", name, d.Findings)
		}
	}
}
