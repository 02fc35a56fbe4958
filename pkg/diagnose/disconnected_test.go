package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// cutOff is a pod that runs as if it were not deleted, on a node whose kubelet runs and is not
// heard by the API server.
func cutOff(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return goesOn(past, func(p *evidence.Pod) {
		k := &p.Node.Kubelet
		k.Health, k.Answers, k.Blocked, k.Strangers = "", true, nil, nil
		k.Process.Probe = &evidence.Probe{Start: 1, Started: requested.Add(-time.Hour)}
		p.Node.Pressure = &evidence.Pressure{}
		p.Node.Ready = &evidence.NodeReady{
			Status: "Unknown", Reason: "NodeStatusUnknown", Transition: requested.Add(-time.Minute), Asked: p.Time.Add(-time.Second),
			Since: p.Time.Add(-31 * time.Second),
		}
		change(p)
	})
}

// bare takes all that is on the node from such a pod.
func bare(p *evidence.Pod) {
	p.Tasks, p.Cgroups, p.Seen.Group = nil, nil, true
	for i := range p.Containers {
		p.Containers[i].State = evidence.StateExited
	}
}

func TestDisconnected(t *testing.T) {
	const is = "KubeletDisconnected"
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for anything else
		phase  diagnose.Phase
		proved bool
		says   string
	}{
		"the pod runs on": {20 * time.Second, func(*evidence.Pod) {}, is, diagnose.Delivery, false, "has not received the deletion, so the pod keeps running"},
		"the kubelet cannot have a token reviewed": {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Health = evidence.TokenRefused + " (401)" },
			is, diagnose.Delivery, true, "Unknown since"},
		"it cannot, and was cut off after the deletion": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Health, p.Node.Ready.Transition = evidence.TokenRefused+" (401)", requested.Add(time.Second)
		}, is, diagnose.Delivery, false, ""},
		"it cannot, and nothing is left": {20 * time.Second, func(p *evidence.Pod) { bare(p); p.Node.Kubelet.Health = evidence.TokenRefused + " (401)" }, is, diagnose.FinalDelete, true, ""},
		"it cannot, and a sandbox is left": {20 * time.Second, func(p *evidence.Pod) {
			bare(p)
			p.Containers[1].State, p.Node.Kubelet.Health = evidence.StateRunning, evidence.TokenRefused+" (401)"
		}, is, diagnose.Sandbox, false, ""},
		"it cannot, and may have had the time": {20 * time.Second, func(p *evidence.Pod) {
			bare(p)
			p.Node.Kubelet.Health, p.Node.Ready.Transition = evidence.TokenRefused+" (401)", p.UnchangedSince.Add(time.Minute)
		}, is, diagnose.FinalDelete, false, ""},
		"the kubelet does not answer in time": {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Health = "no answer from 192.0.2.1:10250 within 3s" },
			is, diagnose.Delivery, false, ""},
		"its loop hangs too": {70 * time.Second, func(p *evidence.Pod) {
			other := goesOn(70*time.Second, func(*evidence.Pod) {}).Node.Kubelet
			p.Node.Kubelet.Blocked, p.Node.Kubelet.Strangers = other.Blocked, other.Strangers
		}, is, diagnose.Delivery, false, ""},
		"nothing is left":        {20 * time.Second, bare, is, diagnose.FinalDelete, false, "cannot report that the pod has ended"},
		"nothing else than that": {20 * time.Second, func(p *evidence.Pod) { bare(p); p.Phase = "Succeeded" }, is, diagnose.FinalDelete, false, "nor delete it"},
		"nothing since a moment": {20 * time.Second, func(p *evidence.Pod) { bare(p); p.UnchangedSince = p.Time.Add(-19 * time.Second) }, "", "", false, ""},
		"its sandbox is left": {20 * time.Second, func(p *evidence.Pod) { bare(p); p.Containers[1].State = evidence.StateRunning }, is,
			diagnose.Sandbox, false, "cannot report"},
		"a plugin is at work": {20 * time.Second, func(p *evidence.Pod) { bare(p); p.Plugins = []evidence.Task{{PID: 70, TID: 70}} }, "", "", false, ""},
		"its volumes are left": {20 * time.Second, func(p *evidence.Pod) {
			bare(p)
			p.Phase, p.Mounts = "Succeeded",
				[]evidence.Mount{{ID: 1}}
		}, "", "", false, ""},
		"the node is heard": {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.Status, p.Node.Ready.Reason = "True", "KubeletReady" }, "", "", false, ""},
		"the node is not ready": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Status, p.Node.Ready.Reason = "False",
				"KubeletNotReady"
		}, "", "", false, ""},
		"it was never heard":      {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.Reason = "NodeStatusNeverUpdated" }, "", "", false, ""},
		"nobody has asked":        {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready = nil }, "", "", false, ""},
		"it may write in time":    {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.Since = p.Node.Ready.Asked.Add(-29 * time.Second) }, "", "", false, ""},
		"its deadline is at hand": {9 * time.Second, func(*evidence.Pod) {}, "", "", false, ""},
		"its port is silent":      {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Answers = false }, "", "", false, ""},
		"it is not there":         {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, "", "", false, ""},
		"it has just begun":       {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.YoungSince = p.Time.Add(-59 * time.Second) }, "", "", false, ""},
		"it was away when this began": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Since = p.Time.Add(-time.Hour)
			p.Node.Kubelet.YoungSince = p.Node.Ready.Since.Add(29 * time.Second)
		}, "", "", false, ""},
		"it has begun anew, and the one before was not heard": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Since = p.Time.Add(-time.Hour)
			p.Node.Kubelet.YoungSince = p.Time.Add(-10 * time.Second)
		}, is, diagnose.Delivery, false, ""},
		"it was stopped, and goes on": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Since = p.Time.Add(-time.Hour)
			p.Node.Kubelet.SilentUntil = p.Node.Ready.Asked.Add(-29 * time.Second)
		}, "", "", false, ""},
		"it was stopped, went on and is not heard": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Since = p.Time.Add(-time.Hour)
			p.Node.Kubelet.SilentUntil = p.Node.Ready.Asked.Add(-30 * time.Second)
		}, is, diagnose.Delivery, false, ""},
		"it was heard after the deletion": {10 * time.Minute, func(p *evidence.Pod) { p.Node.Ready.Transition = requested.Add(71 * time.Second) }, "", "", false, ""},
		"it may not have been heard after the deletion": {10 * time.Minute, func(p *evidence.Pod) { p.Node.Ready.Transition = requested.Add(70 * time.Second) },
			is, diagnose.Delivery, false, ""},
		"the API server's clock is ahead": {10 * time.Minute, func(p *evidence.Pod) {
			p.Skew = &evidence.Skew{LeastMillis: 3_600_000, MostMillis: 3_600_000}
			p.Node.Ready.Transition = requested.Add(time.Hour + 70*time.Second)
		}, is, diagnose.Delivery, false, ""},
		"another one was heard after the deletion": {20 * time.Minute, func(p *evidence.Pod) {
			p.Node.Ready.Transition = requested.Add(10 * time.Minute)
			p.Node.Kubelet.Process.Probe.Started = requested.Add(9*time.Minute + time.Second)
		}, is, diagnose.Delivery, false, ""},
		"another one was told": {20 * time.Minute, func(p *evidence.Pod) {
			p.Node.Ready.Transition = requested.Add(10 * time.Minute)
			p.Node.Kubelet.Process.Probe.Started = requested.Add(8 * time.Minute)
		}, "", "", false, ""},
		"nothing was left for long while it was heard": {10 * time.Minute, func(p *evidence.Pod) {
			bare(p)
			p.UnchangedSince, p.Node.Ready.Transition = requested, requested.Add(121*time.Second)
		}, "", "", false, ""},
		"nothing was left shortly before": {10 * time.Minute, func(p *evidence.Pod) {
			bare(p)
			p.UnchangedSince, p.Node.Ready.Transition = requested, requested.Add(120*time.Second)
		}, is, diagnose.FinalDelete, false, ""},
		"a container is to be started again": {20 * time.Second, func(p *evidence.Pod) {
			bare(p)
			p.Containers[0].Running, p.Containers[0].Waiting, p.Containers[0].BackedOff = false, true, true
			p.Containers[1].State = evidence.StateRunning
		}, "", "", false, ""},
		"its age is not known": {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe = nil }, "", "", false, ""},
		"its first thread is blocked": {20 * time.Second, func(p *evidence.Pod) {
			k := p.Node.Kubelet.Process
			k.State, k.UnchangedSince, k.UnchangedUntil = evidence.Uninterruptible, p.Time.Add(-time.Minute), p.Time
		}, "", "", false, ""},
		"it is stopped": {20 * time.Second, func(p *evidence.Pod) {
			k := p.Node.Kubelet.Process
			k.State, k.UnchangedSince, k.UnchangedUntil = evidence.Stopped, p.Time.Add(-time.Minute), p.Time
		}, "KubeletDown", diagnose.StopSignal, true, ""},
		"the node is short of processors": {20 * time.Second, func(p *evidence.Pod) { p.Node.Pressure.StarvedUntil = p.Time }, is, diagnose.Delivery, false, ""},
		"SIGKILL is sent": {20 * time.Second, func(p *evidence.Pod) {
			p.Tasks[0].Pending, p.Tasks[0].SharedPending = bitKILL,
				bitKILL
		}, "", "", false, ""},
		"a container has ended": {20 * time.Second, func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }, "", "", false, ""},
		"a command of runc runs": {20 * time.Second, func(p *evidence.Pod) {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill"}}
		}, "", "", false, ""},
		"the kubelet has tried":   {20 * time.Second, func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{{Count: 1}} }, "", "", false, ""},
		"the shim is silent":      {20 * time.Second, func(p *evidence.Pod) { p.Lack(evidence.Shims, "no answer") }, "", "", false, ""},
		"containerd is silent":    {20 * time.Second, func(p *evidence.Pod) { p.Node.Containerd.Error = "no answer" }, "", "", false, ""},
		"a static pod":            {20 * time.Second, func(p *evidence.Pod) { p.Mirror = true }, "", "", false, ""},
		"the Node was not read":   {20 * time.Second, func(p *evidence.Pod) { p.Lack(evidence.NodeObject, "refused") }, "", "", false, ""},
		"tasks that are not read": {20 * time.Second, func(p *evidence.Pod) { p.Tasks = nil; p.Lack(evidence.Processes, "too many") }, "", "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(cutOff(tc.past, tc.change))
			f, _ := d.Verdict()
			if tc.want == "" && f.Cause != is {
				return
			}
			if f.Cause != tc.want || d.Phase != tc.phase || (f.Confidence == diagnose.Proved) != tc.proved || !strings.Contains(f.Message, tc.says) {
				t.Fatalf("phase %s, verdict %s (%s), want %q in %s: %s", d.Phase, f.Cause, f.Confidence, tc.want, tc.phase, f.Message)
			}
		})
	}
}

// Of a program to which nobody may have sent a signal nothing is said.
// A kubelet that gets through again begins then, with the whole grace period: until that is over nothing is stuck. From Kubernetes 1.34 on the
// status says when it has begun.
func TestHeardAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		ago     time.Duration // since it got through
		change  func(p *evidence.Pod)
		unknown bool
	}{
		"5 seconds later":  {5 * time.Second, func(*evidence.Pod) {}, false},
		"28 seconds later": {28 * time.Second, func(*evidence.Pod) {}, false},
		"much later":       {30 * time.Minute, func(*evidence.Pod) {}, true},
		"it was heard all the time": {5 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.Transition = requested.Add(-time.Hour)
		}, true},
	} {
		d := cause.Diagnose(cutOff(40*time.Minute, func(p *evidence.Pod) {
			back := p.Time.Add(-tc.ago)
			p.Node.Kubelet.Health = "ok"
			p.Node.Ready = &evidence.NodeReady{Asked: p.Time.Add(-time.Second), Status: "True", Reason: "KubeletReady", Since: back, Transition: back}
			tc.change(p)
		}))
		if v, ok := d.Verdict(); ok != tc.unknown || ok && v.Cause != "Unknown" {
			t.Errorf("%s: verdict %q, %t", name, v.Cause, ok)
		}
	}
}

func TestNoSignalWithoutTheAPIServer(t *testing.T) {
	p := stopping(func(_ *evidence.Pod, first *evidence.Task) { first.Ignored = bitTERM })
	p.Node.Ready = &evidence.NodeReady{Status: "True", Reason: "KubeletReady"}
	if v, _ := ptr(cause.Diagnose(p)).Verdict(); v.Cause != "StopSignalIgnored" {
		t.Fatalf("with an API server: %q", v.Cause)
	}
	p.Node.Ready = &evidence.NodeReady{Status: "Unknown", Reason: "NodeStatusUnknown"}
	if v, found := ptr(cause.Diagnose(p)).Verdict(); found {
		t.Errorf("without one: %q", v.Cause)
	}
	p.Node.Ready, p.Node.Kubelet.Health = nil, evidence.TokenRefused+" (401)"
	if v, found := ptr(cause.Diagnose(p)).Verdict(); found {
		t.Errorf("whose kubelet cannot ask: %q", v.Cause)
	}
}

// The first answers about the Node after a start of the agent do not refute what was told before, nor
// does a kubelet that is being started again.
func TestUnheardForTooShortRefutesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *evidence.Pod)
		want   bool
	}{
		"the first answer":      {func(p *evidence.Pod) { p.Node.Ready.Since = p.Node.Ready.Asked }, true},
		"it is started again":   {func(p *evidence.Pod) { p.Node.Kubelet.Process, p.Node.Kubelet.AbsentSince = nil, p.Time }, true},
		"the node is heard":     {func(p *evidence.Pod) { p.Node.Ready.Status, p.Node.Ready.Reason = "True", "KubeletReady" }, false},
		"a container has ended": {func(p *evidence.Pod) { p.Containers[0].State = evidence.StateExited }, true},
	} {
		d := cause.Diagnose(cutOff(20*time.Second, tc.change))
		if f, _ := d.Verdict(); f.Cause == "KubeletDisconnected" || d.NotLookedFor("KubeletDisconnected") != tc.want {
			t.Errorf("%s: verdict %q, not looked for %v, want %v", name, f.Cause, !tc.want, tc.want)
		}
	}
}
