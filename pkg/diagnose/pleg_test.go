package diagnose_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// unlisted is a pod that runs as if it were not deleted, on a node whose kubelet had its last list of
// containers ten minutes before the deletion.
func unlisted(past time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	return goesOn(past, func(p *evidence.Pod) {
		k := &p.Node.Kubelet
		k.Blocked, k.Strangers = nil, nil
		k.Process.Probe = &evidence.Probe{Start: 1, Started: requested.Add(-time.Hour)}
		p.Node.Name = "node-1"
		p.Node.Pressure = &evidence.Pressure{}
		p.Node.Containerd.AnsweringSince = requested
		active := requested.Add(-10 * time.Minute)
		p.Node.Ready = &evidence.NodeReady{
			Status: "False", Reason: "KubeletNotReady", Transition: active.Add(3 * time.Minute), Asked: p.Time.Add(-time.Second), Since: requested,
			PLEG: &evidence.PLEG{Said: p.Time.Add(-10 * time.Second), Active: active, Unhealthy: active.Add(3 * time.Minute)},
		}
		change(p)
	})
}

// lateList has the last list be of shortly before or after the deletion.
func lateList(p *evidence.Pod, active time.Duration) {
	g := p.Node.Ready.PLEG
	g.Active = requested.Add(active)
	g.Unhealthy = g.Active.Add(3 * time.Minute)
}

// over has the containers of such a pod have ended ten seconds after the deletion, so that nothing
// but its control group is left.
func over(p *evidence.Pod) {
	bare(p)
	p.Phase, p.Cgroups = "Succeeded", []evidence.Cgroup{{Path: "/kubepods/pod" + podUID}}
	p.Containers[0].Running, p.Containers[0].Exit = false, &evidence.Exit{At: requested.Add(10 * time.Second)}
}

// counted has the kubelet not have said so yet, and its counts show how old its last list is.
func counted(p *evidence.Pod, age time.Duration) {
	p.Node.Ready = &evidence.NodeReady{Status: "True", Reason: "KubeletReady", Asked: p.Time, Since: requested}
	k := &p.Node.Kubelet
	k.VolumeCallsRead = p.Time.Add(-10 * time.Second)
	k.Listed = k.VolumeCallsRead.Add(-age)
	p.Containers[0].Exit.At = k.Listed.Add(2 * time.Second)
	p.Node.Containerd.Lists = []evidence.List{{Of: evidence.Sandboxes, Bytes: evidence.MaxList + 1}}
}

// busy has containerd not answer for a list, on a node that is short of processors, and the kubelet have
// had its last one so long before.
func busy(p *evidence.Pod, active time.Duration) {
	g := p.Node.Ready.PLEG
	g.Active, g.Unhealthy = p.Time.Add(active), requested.Add(-time.Minute)
	p.Node.Pressure.StarvedUntil = p.Time
	p.Node.Containerd.Lists = []evidence.List{{Of: evidence.AllContainers, Asked: p.Time, UnansweredSince: p.Time.Add(-time.Minute), Attempts: 4}}
}

func TestPLEGUnhealthy(t *testing.T) {
	const is = "PLEGUnhealthy"
	large := evidence.List{Of: evidence.Sandboxes, Bytes: evidence.MaxList + 1}
	for name, tc := range map[string]struct {
		past   time.Duration
		change func(p *evidence.Pod)
		want   string // "" for anything else
		phase  diagnose.Phase
		proved bool
		says   string
	}{
		"it has read no deletion": {20 * time.Second, func(*evidence.Pod) {}, is, diagnose.Delivery, true, "The pod was deleted when the " +
			"kubelet already processed no deletions, so it has not seen this one"},
		"a list is too large": {20 * time.Second, func(p *evidence.Pod) { p.Node.Containerd.Lists = []evidence.List{large} },
			is, diagnose.Delivery, true, "list of all sandboxes > 16 MiB"},
		"a list is large enough": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.Sandboxes, Bytes: evidence.MaxList}, {Of: evidence.AllContainers}}
		}, is, diagnose.Delivery, true, "containerd responds to other requests"},
		"the list of containers is too large": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.Sandboxes}, {Of: evidence.AllContainers, Bytes: 17 << 20}}
		}, is, diagnose.Delivery, true, "list of all containers > 16 MiB"},
		"a list hangs": {2 * time.Minute, func(p *evidence.Pod) {
			p.Lack(evidence.Containers, "containerd has not listed containers within 3s")
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.Sandboxes}, {Of: evidence.AllContainers, Asked: p.Time,
				UnansweredSince: p.Time.Add(-40 * time.Second), Attempts: 3}}
		}, is, diagnose.StopSignal, true, "no response to a request for all containers"},
		"a list has had no answer twice": {2 * time.Minute, func(p *evidence.Pod) {
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.AllContainers, Asked: p.Time, UnansweredSince: p.Time.Add(-20 * time.Second), Attempts: 2}}
		}, "", "", false, ""},
		"a list has had no answer, and was not asked for again": {2 * time.Minute, func(p *evidence.Pod) {
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.AllContainers, Asked: p.Time, UnansweredSince: p.Time.Add(-50 * time.Second), Attempts: 2}}
		}, is, diagnose.Delivery, true, "containerd responds to other requests"},
		"a list has had no answer on a busy node": {2 * time.Minute, func(p *evidence.Pod) {
			busy(p, -299*time.Second)
		}, "", "", false, ""},
		"a list has had no answer on a busy node for long": {2 * time.Minute, func(p *evidence.Pod) {
			busy(p, -300*time.Second)
		}, is, diagnose.Delivery, true, "no response to a request for all containers"},
		"its deadline is at hand":            {9 * time.Second, func(*evidence.Pod) {}, "", "", false, ""},
		"the node is ready":                  {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.Status, p.Node.Ready.PLEG = "True", nil }, "", "", false, ""},
		"the node is not ready for the rest": {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.PLEG = nil }, "", "", false, ""},
		"nobody has asked for the node":      {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready = nil }, "", "", false, ""},
		"it has said so before":              {20 * time.Minute, func(p *evidence.Pod) { p.Node.Ready.PLEG.Said = p.Time.Add(-time.Minute) }, "", "", false, ""},
		"containerd has answered for seconds": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Containerd.AnsweringSince = p.Node.Ready.PLEG.Said.Add(-14 * time.Second)
		}, "", "", false, ""},
		"containerd does not answer": {20 * time.Second, func(p *evidence.Pod) { p.Node.Containerd.AnsweringSince = time.Time{} }, "", "", false, ""},
		"the kubelet is not there any more": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Kubelet.Process, p.Node.Kubelet.LastSeen = nil,
				requested
		}, "", "", false, ""},
		"the kubelet is part of K3s": {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process = nil }, is, diagnose.Delivery, true, ""},
		"the kubelet is stopped":     {20 * time.Second, func(p *evidence.Pod) { p.Node.Kubelet.Process.State = evidence.Stopped }, "", "", false, ""},
		"it is a static pod":         {20 * time.Second, func(p *evidence.Pod) { p.Mirror = true }, "", "", false, ""},
		"deleted as it began to do nothing": {20 * time.Second, func(p *evidence.Pod) { lateList(p, -3*time.Minute-9*time.Second) },
			is, diagnose.StopSignal, false, "the kubelet cannot begin to stop this pod"},
		"deleted ten seconds after that": {20 * time.Second, func(p *evidence.Pod) { lateList(p, -3*time.Minute-10*time.Second) },
			is, diagnose.Delivery, true, ""},
		"deleted after the last list": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, -time.Second) }, is, diagnose.StopSignal, false,
			"the kubelet cannot begin to stop this pod"},
		"deleted before the last list": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, time.Second) }, "", "", false, ""},
		"no list was ever given": {20 * time.Second, func(p *evidence.Pod) { p.Node.Ready.PLEG = &evidence.PLEG{Said: p.Time} },
			is, diagnose.Delivery, true, "has failed since the kubelet started"},
		"no list was ever given to a kubelet that was started after the deletion": {20 * time.Second, func(p *evidence.Pod) {
			p.Node.Ready.PLEG = &evidence.PLEG{Said: p.Time}
			p.Node.Kubelet.Process.Probe.Started = p.DeletionRequested.Add(time.Second)
		}, "", "", false, ""},
		"the kubelet has begun to stop it": {5 * time.Minute, func(p *evidence.Pod) {
			lateList(p, -time.Second)
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill"}}
		}, "", "", false, ""},
		"deleted after the last list, with a silent shim": {5 * time.Minute, func(p *evidence.Pod) {
			lateList(p, -time.Second)
			p.Lack(evidence.Shims, "no answer")
		}, "", "", false, ""},
		"deleted after the last list, the containers not known": {5 * time.Minute, func(p *evidence.Pod) {
			lateList(p, -time.Second)
			p.Lack(evidence.Containers, "no time was left")
		}, "", "", false, ""},
		"its containers have ended": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, -time.Second); over(p) },
			is, diagnose.Cleanup, false, "the kubelet cannot complete the deletion"},
		"they ended as the last list was made": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, 9*time.Second); over(p) }, "", "", false, ""},
		"it was never started": {20 * time.Second, func(p *evidence.Pod) {
			bare(p)
			p.Phase, p.Containers = "Pending", []evidence.Container{{Name: "main", Kind: evidence.App, Waiting: true}}
		}, is, diagnose.PhaseUnknown, true, "The pod was deleted when the kubelet already processed no deletions, so it has not seen this one"},
		"they ended before the last list": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, 10*time.Second); over(p) }, "", "", false, ""},
		"they ended right after the list": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, 8*time.Second); over(p) }, is, diagnose.Cleanup, false, ""},
		"its volumes are left":            {5 * time.Minute, func(p *evidence.Pod) { over(p); p.Mounts = []evidence.Mount{{ID: 1}} }, "", "", false, ""},
		// One that was stopped says so as it goes on, and has a list then.
		"it has said so once": {time.Minute, func(p *evidence.Pod) { p.Node.Ready.PLEG.First = p.Node.Ready.PLEG.Said }, "", "", false, ""},
		"it has said so twice": {time.Minute, func(p *evidence.Pod) { p.Node.Ready.PLEG.First = p.Node.Ready.PLEG.Said.Add(-10 * time.Second) },
			is, diagnose.Delivery, true, ""},
		"the one before it has said so": {time.Minute, func(p *evidence.Pod) { p.Node.Kubelet.Process.Probe.Started = p.Time.Add(-5 * time.Second) }, "", "", false, ""},
		"the one before it said so, too": {time.Minute, func(p *evidence.Pod) {
			over(p)
			p.Node.Ready.PLEG = &evidence.PLEG{Said: p.Time.Add(-time.Second), First: requested}
			p.Node.Kubelet.Process.Probe.Started = p.Time.Add(-5 * time.Second)
		}, "", "", false, ""},
		"it said so before the pod was late": {30 * time.Second, func(p *evidence.Pod) { p.Node.Ready.PLEG.Said = p.Time.Add(-21 * time.Second) }, "", "", false, ""},
		"it said so when its containers had just ended": {time.Minute, func(p *evidence.Pod) {
			lateList(p, -time.Second)
			over(p)
			p.UnchangedSince = p.Time.Add(-29 * time.Second)
		}, "", "", false, ""},
		"it stops the pod for another reason": {time.Minute, func(p *evidence.Pod) {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "kill"}}
		}, "", "", false, ""},
		"it has told that it could not stop it": {time.Minute, func(p *evidence.Pod) { p.KillFailures = []evidence.KillFailure{{Count: 1}} }, "", "", false, ""},
		"a probe runs": {time.Minute, func(p *evidence.Pod) {
			p.RuntimeCommands = []evidence.RuntimeCommand{{Runtime: "runc", Command: "exec"}}
		}, is, diagnose.StopSignal, true, "The pod was deleted when the kubelet already processed no deletions, so it has not seen this one"},
		"only since a moment": {5 * time.Minute, func(p *evidence.Pod) {
			lateList(p, -time.Second)
			over(p)
			p.UnchangedSince = p.Time.Add(-19 * time.Second)
		}, "", "", false, ""},
		"only the object is left": {5 * time.Minute, func(p *evidence.Pod) { lateList(p, -time.Second); over(p); p.Cgroups, p.Seen.Group = nil, true },
			is, diagnose.FinalDelete, false, "the kubelet cannot complete the deletion"},
		"the kubelet's counts tell": {30 * time.Second, func(p *evidence.Pod) {
			over(p)
			counted(p, 20*time.Second)
		}, is, diagnose.Cleanup, false, "list of all sandboxes > 16 MiB"},
		"they tell of a list of lately": {30 * time.Second, func(p *evidence.Pod) {
			over(p)
			counted(p, 19*time.Second)
		}, "", "", false, ""},
		"they tell, and the lists are not too large": {30 * time.Second, func(p *evidence.Pod) {
			over(p)
			counted(p, 30*time.Second)
			p.Node.Containerd.Lists = []evidence.List{{Of: evidence.Sandboxes}, {Of: evidence.AllContainers}}
		}, "", "", false, ""},
		"its processes are not known":    {20 * time.Second, func(p *evidence.Pod) { p.Lack(evidence.Processes, "no time was left") }, "", "", false, ""},
		"the node was not asked in time": {20 * time.Second, func(p *evidence.Pod) { p.Lack(evidence.NodeObject, "no answer") }, "", "", false, ""},
		"SIGKILL is sent by somebody else": {20 * time.Second, func(p *evidence.Pod) {
			p.Tasks[0].Pending, p.Tasks[0].SharedPending = bitKILL,
				bitKILL
		}, "", "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := cause.Diagnose(unlisted(tc.past, tc.change))
			f, _ := d.Verdict()
			if tc.want == "" && f.Cause != is {
				return
			}
			if f.Cause != tc.want || d.Phase != tc.phase || (f.Confidence == diagnose.Proved) != tc.proved {
				t.Fatalf("phase %s, verdict %s (%s), want %q: %s", d.Phase, f.Cause, f.Confidence, tc.want, f.Message)
			}
			if text := said(&f); !strings.Contains(text, tc.says) {
				t.Errorf("%q is not in: %s", tc.says, text)
			}
		})
	}
}

// Of a program that ignores the stop signal nothing is said as long as the kubelet sends none, nor while
// it may come at another time than the deadline.
func TestNotSignalled(t *testing.T) {
	for name, change := range map[string]func(*evidence.NodeReady){
		"":                          func(*evidence.NodeReady) {},
		"no list":                   func(r *evidence.NodeReady) { r.Status, r.PLEG = "False", &evidence.PLEG{} },
		"the node is shutting down": func(r *evidence.NodeReady) { r.Status, r.ShuttingDown = "False", true },
	} {
		p := stopping(func(_ *evidence.Pod, first *evidence.Task) { first.Ignored = bitTERM })
		p.Node.Ready = &evidence.NodeReady{Status: "True", Reason: "KubeletReady"}
		change(p.Node.Ready)
		d := cause.Diagnose(p)
		f, found := d.Verdict()
		if found != (name == "") {
			t.Errorf("%q: %s: %s", name, f.Cause, f.Message)
		}
		if name != "" && !d.NotLookedFor("StopSignalIgnored") {
			t.Errorf("%q: a verdict of before is refuted", name)
		}
	}
}
