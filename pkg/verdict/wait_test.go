package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// draining is a pod some time after the request for its deletion, with a grace period of an hour.
func draining(since time.Duration) *evidence.Pod {
	return &evidence.Pod{
		Time: start.Add(since), DeletionRequested: start, Deadline: start.Add(time.Hour), GracePeriodSeconds: 3600, Phase: "Running", StopBegun: true,
		Containers: []evidence.Container{{
			Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{PID: 100},
		}},
		Tasks: []evidence.Task{{PID: 100, TID: 100, NSpid: []int{100, 1}, Comm: "app", State: evidence.Sleeping, Container: "c", Caught: 1 << 14}},
	}
}

// Of a pod inside a long grace period it is said once what runs, after a minute, if nothing else is told.
func TestWait(t *testing.T) {
	const s, m = time.Second, time.Minute
	type look struct {
		at   time.Duration
		d    diagnose.Diagnosis
		says bool
	}
	for name, tc := range map[string]struct {
		condition *Condition
		after     time.Duration
		budget    int
		looks     []look
	}{
		"after a minute":           {nil, m, 9, []look{{59 * s, nothing, false}, {60 * s, nothing, true}}},
		"tried again":              {nil, m, 9, []look{{m, nothing, true}, {2 * m, nothing, true}}},
		"it stands":                {&Condition{Reason: diagnose.InGracePeriod, Message: "Not stuck: "}, m, 9, []look{{m, nothing, false}, {5 * m, nothing, false}}},
		"after what was resolved":  {&Condition{Reason: "Resolved"}, m, 9, []look{{m, nothing, true}}},
		"a cause stands":           {nil, m, 9, []look{{m, found("A"), false}}},
		"a cause of a run before":  {&Condition{Blocked: true, Reason: "A"}, m, 9, []look{{m, nothing, false}}},
		"never":                    {nil, 0, 9, []look{{m, nothing, false}, {50 * m, nothing, false}}},
		"past the deadline":        {nil, m, 9, []look{{61 * m, nothing, false}}},
		"beyond the budget, alone": {nil, m, 0, []look{{m, nothing, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Case
			subject := web
			subject.Condition = tc.condition
			b := &Budget{PerMinute: tc.budget}
			for _, l := range tc.looks {
				c.Judge(subject, draining(l.at), l.d)
				c.Wait(b, tc.after)
				if got := c.Waiting(); (got != "") != l.says {
					t.Errorf("after %s: %q", l.at, got)
				}
			}
		})
	}
}

// The words are written once: what is read later does not change them.
func TestWaitIsWrittenOnce(t *testing.T) {
	var c Case
	b := &Budget{PerMinute: 9}
	c.Judge(web, draining(time.Minute), nothing)
	c.Wait(b, time.Minute)
	want, due := c.ConditionDue(false, diagnose.InGracePeriod, c.Waiting())
	const says = "Not stuck: container main is inside its grace period of 1h0m0s. Process app (PID 100 on the node) was sent SIGTERM at 03:00:00 UTC. "
	if !due || !strings.HasPrefix(want.Message, says) {
		t.Fatalf("%v, %q", due, want.Message)
	}
	c.ConditionWritten(want)
	written := web
	written.Condition = &want
	for _, at := range []time.Duration{2 * time.Minute, 30 * time.Minute} {
		for _, one := range []*Case{&c, new(Case)} { // the second is an agent that was started anew
			c.Judge(written, draining(at), nothing)
			one.Judge(written, draining(at), nothing)
			one.Wait(b, time.Minute)
			if got := one.Waiting(); got != "" {
				t.Errorf("after %s: %q", at, got)
			}
		}
	}
}

// Words that stand are written again when the pod is deleted again, and taken back when it may not be killed at its deadline.
func TestWaitIsTakenBack(t *testing.T) {
	b := &Budget{PerMinute: 9}
	const taken = "The pod is inside its grace period. Whether it will be killed when that is over is not known: containerd has not answered since 03:00:00 UTC."
	silent := func(p *evidence.Pod) {
		p.Node.Containerd.UnansweredSince = p.DeletionRequested
		p.Lack(evidence.Containers, "containerd does not answer")
	}
	for name, tc := range map[string]struct {
		condition *Condition
		change    func(p *evidence.Pod)
		says      string // "" for nothing
	}{
		"deleted again": {&Condition{Reason: diagnose.InGracePeriod, Message: "Not stuck: it"}, func(p *evidence.Pod) { p.Shortened = true },
			"was deleted again with a shorter grace period"},
		"containerd is silent": {&Condition{Reason: diagnose.InGracePeriod, Message: "Not stuck: it"}, silent, "containerd has not answered since"},
		"and was so before":    {&Condition{Reason: diagnose.InGracePeriod, Message: taken}, silent, ""},
		"it answers again":     {&Condition{Reason: diagnose.InGracePeriod, Message: taken}, func(*evidence.Pod) {}, "Not stuck: "},
		"it was another one before": {&Condition{Reason: diagnose.InGracePeriod, Message: strings.Replace(taken, "containerd has", "its shim has", 1)}, silent,
			"containerd has not answered since"},
		"nothing was said":       {nil, silent, ""},
		"another thing was said": {&Condition{Reason: Resolved}, silent, ""},
	} {
		var c Case
		s, p := web, draining(2*time.Minute)
		s.Condition = tc.condition
		tc.change(p)
		c.Judge(s, p, nothing)
		c.Wait(b, time.Minute)
		if got := c.Waiting(); (got != "") != (tc.says != "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, not %q", name, got, tc.says)
		}
	}
}

// Beyond the budget the pods of one workload are told of once.
func TestWaitsOfAWorkload(t *testing.T) {
	b := &Budget{}
	said := 0
	for _, uid := range []string{"a", "b", "c"} {
		var c Case
		s := web
		s.UID, s.Owner = uid, "set"
		c.Judge(s, draining(time.Minute), nothing)
		c.Wait(b, time.Minute)
		if c.Waiting() != "" {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d of three pods are told of", said)
	}
}
