package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// onNode is an overdue pod that handles its stop signal, on a node that a reading shows
// as it is changed to.
func onNode(change func(n *evidence.Node)) *evidence.Pod {
	return stopping(func(p *evidence.Pod, first *evidence.Task) {
		first.Caught = bitTERM
		p.Time = p.Deadline.Add(30 * time.Second)
		p.Node.Time, p.Node.Read, p.Node.Pressure = p.Time, p.Time, &evidence.Pressure{}
		change(&p.Node)
	})
}

func changed(p *evidence.Pod, change func(n *evidence.Node)) *evidence.Pod {
	change(&p.Node)
	return p
}

// TestDown checks when the kubelet and containerd are said to be down.
func TestDown(t *testing.T) {
	away := func(seconds int, refused bool, seen time.Duration) *evidence.Pod {
		return onNode(func(n *evidence.Node) {
			n.Kubelet.AbsentSince, n.Kubelet.Refused = n.Time.Add(-time.Duration(seconds)*time.Second), refused
			if refused {
				n.Kubelet.Health = "dial tcp 192.0.2.1:10250: connect: connection refused" // it has answered before
			}
			if seen != 0 {
				n.Kubelet.LastSeen = n.Time.Add(-seen)
			}
		})
	}
	stopped := func(state evidence.TaskState, seconds int) *evidence.Pod {
		return onNode(func(n *evidence.Node) {
			n.Kubelet.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: state,
				UnchangedSince: n.Time.Add(-time.Duration(seconds) * time.Second), UnchangedUntil: n.Time}
		})
	}
	again := func(seconds, starts int, process bool) *evidence.Pod {
		return onNode(func(n *evidence.Node) {
			k := &n.Kubelet
			k.YoungSince, k.Starts, k.LastSeen = n.Time.Add(-time.Duration(seconds)*time.Second), starts, n.Time.Add(-5*time.Second)
			if k.AbsentSince = n.Time; process {
				k.AbsentSince = time.Time{}
				k.Process = &evidence.Task{PID: 7, TID: 7, Comm: "kubelet", State: evidence.Sleeping, Probe: &evidence.Probe{Start: 1, Started: n.Time.Add(-time.Second)}}
			}
		})
	}
	startsSeen := func(p *evidence.Pod, seconds int) *evidence.Pod {
		p.Node.Kubelet.StartSeen = p.Node.Time.Add(-time.Duration(seconds) * time.Second)
		return p
	}
	containerd := func(refused, absent int, process bool, change func(n *evidence.Node)) *evidence.Pod {
		p := onNode(func(n *evidence.Node) {
			n.Containerd = evidence.ContainerdService{Error: "refused", Refused: true, RefusedSince: n.Time.Add(-time.Duration(refused) * time.Second), Asked: n.Time}
			if absent > 0 {
				n.Containerd.AbsentSince = n.Time.Add(-time.Duration(absent) * time.Second)
			}
			if process {
				n.Containerd.Process = &evidence.Task{PID: 80, TID: 80, Comm: "containerd", State: evidence.Sleeping}
			}
			change(n)
		})
		p.Lack(evidence.Containers, "refused")
		p.Lack(evidence.Shims, "refused")
		return p
	}
	// loops has containerd not have answered for a minute since it ended so many seconds ago, and have ended so often.
	loops := func(answers bool, seconds, ends int) *evidence.Pod {
		return onNode(func(n *evidence.Node) {
			c := &n.Containerd
			c.FirstEnd, c.Ends = n.Time.Add(-time.Duration(seconds)*time.Second), ends
			if answers {
				c.AnsweringSince = n.Time.Add(-5 * time.Second)
			} else {
				c.Error, c.Refused, c.RefusedSince, c.Asked = "refused", true, n.Time.Add(-2*time.Second), n.Time
			}
		})
	}
	nothing := func(*evidence.Node) {}
	for name, test := range map[string]struct {
		pod    *evidence.Pod
		want   string
		family string
	}{
		"kubelet, seen before":                               {away(21, false, time.Hour), "KubeletDown", ""},
		"kubelet, its port refuses":                          {away(21, true, 0), "KubeletDown", ""},
		"kubelet, whose port has refused from the beginning": {changed(away(600, true, 0), func(n *evidence.Node) { n.Kubelet.Health = "" }), "", ""},
		"kubelet, that answers under another name":           {changed(away(600, false, time.Hour), func(n *evidence.Node) { n.Kubelet.Health = "ok" }), "", ""},
		"kubelet, that answers and is not well": {changed(away(600, false, time.Hour),
			func(n *evidence.Node) { n.Kubelet.Health = "failing checks: syncloop" }), "", ""},
		"kubelet, that may have another name":      {away(600, false, 0), "", ""},
		"kubelet, about to be started again":       {away(19, true, time.Minute), "", ""},
		"kubelet, stopped":                         {stopped(evidence.Stopped, 4), "KubeletDown", "Stopped"},
		"kubelet, stopped a moment ago":            {stopped(evidence.Stopped, 2), "", ""},
		"kubelet, traced":                          {stopped(evidence.Traced, 60), "", ""},
		"kubelet, that ends again and again":       {again(181, 1, false), "KubeletDown", "Restarts"},
		"kubelet, that is started again and again": {again(181, 2, true), "KubeletDown", "Restarts"},
		"kubelet, that has run since before the deletion": {func() *evidence.Pod {
			p := again(181, 2, true)
			p.DeletionRequested = p.Node.Kubelet.Process.Started().Add(time.Second)
			return p
		}(), "", ""},
		"kubelet, that was away, and was started twice": {startsSeen(again(600, 2, true), 179), "", ""},
		"kubelet, that was away, and does not stay up":  {startsSeen(again(600, 2, true), 180), "KubeletDown", "Restarts"},
		"kubelet, that was started at last":             {again(600, 1, true), "", ""},
		"kubelet, that was away before":                 {again(600, 0, false), "", ""},
		"kubelet, that may stay up this time":           {again(179, 9, true), "", ""},
		"kubelet, asleep":                               {stopped(evidence.Sleeping, 60), "", ""},
		"containerd, without a process":                 {containerd(30, 21, false, nothing), "ContainerdDown", ""},
		"containerd, about to be started again":         {containerd(30, 19, false, nothing), "", ""},
		"containerd, refused a moment ago":              {containerd(19, 60, false, nothing), "", ""},
		"containerd, process not read":                  {containerd(600, 0, false, nothing), "", ""},
		"containerd, starts":                            {containerd(59, 0, true, nothing), "", ""},
		"containerd, does not listen":                   {containerd(61, 0, true, nothing), "ContainerdDown", "NotListening"},
		"containerd, starts on a starved node":          {containerd(240, 0, true, func(n *evidence.Node) { n.Pressure.StarvedUntil = n.Time }), "", ""},
		"containerd, ends and is started again there": {containerd(301, 5, true,
			func(n *evidence.Node) { n.Pressure.StarvedUntil = n.Time }), "ContainerdDown", "NotListening"},
		"containerd, ends and is started again and again": {loops(false, 181, 3), "ContainerdDown", "Restarts"},
		"containerd, does so, and answers now":            {loops(true, 181, 3), "ContainerdDown", "Restarts"},
		"containerd, ended twice":                         {loops(true, 181, 2), "", ""},
		"containerd, may stay up this time":               {loops(true, 179, 3), "", ""},
		"containerd, ends, and the pod has been killed": {func() *evidence.Pod {
			p := loops(true, 181, 3)
			p.Tasks[0].Pending = 1 << (evidence.SIGKILL - 1)
			return p
		}(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(test.pod)
			v, _ := d.Verdict()
			if v.Cause != test.want || v.Family != test.family {
				t.Errorf("found %q, family %q, want %q, family %q", v.Cause, v.Family, test.want, test.family)
			}
		})
	}
}

// While containerd refuses, as when it is restarted, what was found before is neither
// confirmed nor refuted.
func TestRestartRefutesNothing(t *testing.T) {
	p := onNode(func(n *evidence.Node) {
		n.Containerd = evidence.ContainerdService{Error: "refused", Refused: true, RefusedSince: n.Time}
	})
	p.Lack(evidence.Containers, "refused")
	if d := cause.Diagnose(p); !d.NotLookedFor("ContainerFrozen") {
		t.Error("ContainerFrozen counts as looked for, and would be taken back")
	}
}

// Of a kubelet that is away nothing says that it has sent a signal.
func TestNoSignalWithoutAKubelet(t *testing.T) {
	p := stopping(func(_ *evidence.Pod, first *evidence.Task) {
		first.Ignored = bitTERM
	})
	if v, _ := ptr(cause.Diagnose(p)).Verdict(); v.Cause != "StopSignalIgnored" {
		t.Fatalf("with a kubelet: %q", v.Cause)
	}
	p.Node.Kubelet.AbsentSince, p.Node.Kubelet.LastSeen = p.Time, p.DeletionRequested
	if v, found := ptr(cause.Diagnose(p)).Verdict(); found {
		t.Errorf("without one: %q", v.Cause)
	}
}

func ptr[T any](v T) *T { return &v }

// Where something is in progress for a pod, or it is not known whether anything is, Unknown says that the kubelet has not begun to
// stop it.
func TestUnknownOfAStopNotBegun(t *testing.T) {
	for awaited, want := range map[bool]bool{true: true, false: false} {
		p := onNode(func(*evidence.Node) {})
		p.StopAwaited, p.StopBegun = awaited, !awaited
		p.Time = p.Deadline.Add(10 * time.Minute)
		v, _ := ptr(cause.Diagnose(p)).Verdict()
		if v.Cause != "Unknown" || strings.Contains(v.Message, "The kubelet has not begun to stop the pod (status.observedGeneration)") != want {
			t.Errorf("awaited %t: %s: %s", awaited, v.Cause, v.Message)
		}
	}
}

// What the kubelet has begun with before the deletion, or is done with, is not said to be yet to begin.
func TestUnknownOfAStopThatHasGotOn(t *testing.T) {
	for name, change := range map[string]func(p *evidence.Pod){
		"its containers have ended": func(p *evidence.Pod) { p.Phase, p.Tasks = "Failed", nil },
		"its program has been killed": func(p *evidence.Pod) {
			p.Tasks[0].SharedPending = bitKILL
			p.Node.Pressure = nil
		},
		"its status may not be written": func(p *evidence.Pod) {
			p.Refusal = &evidence.Refusal{Webhook: "billing.test", Uncalled: true, Code: "500", At: p.Time.Add(-time.Minute)}
		},
		"its sandbox is taken down": func(p *evidence.Pod) {
			p.Tasks, p.Containers[0].State = nil, evidence.StateExited
			p.Containers = append(p.Containers, evidence.Container{Name: "POD", Kind: evidence.Sandbox, ID: sandboxID, State: evidence.StateRunning})
		},
	} {
		p := stopping(func(p *evidence.Pod, t *evidence.Task) {
			t.Caught, p.StopAwaited, p.Time = bitTERM, true, p.Deadline.Add(20*time.Minute)
			change(p)
		})
		v, _ := ptr(cause.Diagnose(p)).Verdict()
		if v.Cause != "Unknown" || strings.Contains(v.Message, "has not begun") {
			t.Errorf("%s: %s: %s %s", name, v.Cause, v.Message, v.Remedy)
		}
	}
}

// A large process may take minutes to exit. While it is seen to run it is not stuck.
func TestUnknownWaitsForALargeProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *evidence.Task)
		past   time.Duration
		want   string
	}{
		"it runs":                    {func(t *evidence.Task) { t.State = evidence.Runnable }, 70 * time.Second, ""},
		"it ran since the last look": {func(t *evidence.Task) { t.UnchangedSince = t.UnchangedSince.Add(69 * time.Second) }, 70 * time.Second, ""},
		"it runs for ten minutes":    {func(t *evidence.Task) { t.State = evidence.Runnable }, 11 * time.Minute, "Unknown"},
		"it is not on its way out": {func(t *evidence.Task) {
			t.State, t.Pending, t.SharedPending, t.Probe = evidence.Runnable, 0, 0, nil
		}, 70 * time.Second, "Unknown"},
	} {
		p := onNode(func(*evidence.Node) {})
		p.Time = p.Deadline.Add(tc.past)
		k := &p.Tasks[0]
		k.Pending, k.SharedPending, k.State, k.UnchangedSince = bitKILL, bitKILL, evidence.Sleeping, p.Deadline
		tc.change(k)
		if v, _ := ptr(cause.Diagnose(p)).Verdict(); v.Cause != tc.want {
			t.Errorf("%s: verdict %q, want %q", name, v.Cause, tc.want)
		}
	}
}

// A kubelet that was just started may be about to end again, which takes time to see.
func TestUnknownWaitsForAYoungKubelet(t *testing.T) {
	for starts, want := range map[int]string{0: "Unknown", 1: ""} {
		p := onNode(func(n *evidence.Node) { n.Kubelet.Starts = starts })
		p.Time = p.Deadline.Add(100 * time.Second)
		if v, _ := ptr(cause.Diagnose(p)).Verdict(); v.Cause != want {
			t.Errorf("%d starts: %q, want %q", starts, v.Cause, want)
		}
	}
}
