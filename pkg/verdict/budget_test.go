package verdict

import (
	"fmt"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// In no minute are there more than the budget, and a workload once an hour.
func TestBudget(t *testing.T) {
	b := Budget{PerMinute: 3}
	told := map[string]int{}
	var times []time.Time
	// A CI cluster: each second a pod of a new job, and one of an old workload.
	for at := start; at.Before(start.Add(2 * time.Hour)); at = at.Add(time.Second) {
		for _, owner := range []string{"old", fmt.Sprint(at)} {
			if !b.Allow(Subject{Namespace: "ci", Owner: owner}, &diagnose.Finding{Cause: "A", Container: "main"}, at) {
				continue
			}
			told[owner]++
			times = append(times, at)
		}
	}
	if told["old"] < 1 || told["old"] > 240 {
		t.Errorf("the workload was told of %d times in two hours", told["old"])
	}
	// Three a minute, and in each hour those that are new to it and find room.
	if len(times) > 2*60*3+2*maxWorkloads+3 {
		t.Errorf("%d told in two hours", len(times))
	}
	if len(b.workloads) > maxWorkloads || len(b.told) > b.PerMinute {
		t.Errorf("%d workloads and %d times are remembered", len(b.workloads), len(b.told))
	}
	// Whatever has room was told of when it was first seen.
	var c Budget
	one := Subject{Namespace: "shop", Owner: "web"}
	f := diagnose.Finding{Cause: "A", Container: "main"}
	for _, tc := range []struct {
		s    Subject
		f    diagnose.Finding
		at   time.Duration
		want bool
	}{
		{one, f, 0, true},
		{one, f, 59 * time.Minute, false},
		{one, diagnose.Finding{Cause: "A", Container: "side"}, 0, true},
		{one, diagnose.Finding{Cause: "B", Container: "main"}, 0, true},
		{Subject{Namespace: "shop", UID: "u1"}, f, 0, true}, // without a controller
		{Subject{Namespace: "shop", UID: "u1"}, f, 0, false},
		{Subject{Namespace: "shop", UID: "u2"}, f, 0, true},
		{Subject{Namespace: "shop", Owner: "web", UID: "u2"}, f, 0, false},
		{one, f, time.Hour, true},
	} {
		if got := c.Allow(tc.s, &tc.f, start.Add(tc.at)); got != tc.want {
			t.Errorf("%+v %+v after %s: %v", tc.s, tc.f, tc.at, got)
		}
	}
}

// What is decided about a verdict from look to look.
func TestWeigh(t *testing.T) {
	type look struct {
		at        time.Duration // after the deadline
		d         diagnose.Diagnosis
		outcome   Outcome
		heldBack  bool // stands so
		justThen  bool // and has just been held back
		confirmed bool // the finding has words
	}
	const s = time.Second
	expired := func(cause string) diagnose.Diagnosis { return blind(cause, nothing) }
	a := diagnose.Diagnosis{Phase: diagnose.StopSignal, Findings: []diagnose.Finding{{Cause: "A", Message: "words"}}}
	for name, tc := range map[string]struct {
		budget    int
		condition *Condition
		looks     []look
	}{
		"room":                        {2, nil, []look{{-9 * s, a, Found, false, false, true}, {s, expired("A"), Held, false, false, false}}},
		"none":                        {0, nil, []look{{-9 * s, a, Found, true, true, true}, {-7 * s, a, Found, true, false, true}}},
		"told before":                 {0, &Condition{Blocked: true, Reason: "A"}, []look{{-9 * s, a, Found, false, false, true}}},
		"another told":                {0, &Condition{Blocked: true, Reason: "B"}, []look{{-9 * s, a, Found, false, false, true}}},
		"told before, and taken back": {0, &Condition{Reason: "Resolved"}, []look{{-9 * s, a, Found, false, false, true}}},
		"another one":                 {0, nil, []look{{-9 * s, a, Found, true, true, true}, {-7 * s, found("B"), Found, true, true, false}}},
		"withdrawn": {0, nil, []look{{-30 * s, a, Found, true, true, true}, {-28 * s, nothing, Held, true, false, false},
			{-12 * s, nothing, Withdrawn, true, false, false}, {-10 * s, nothing, Nothing, false, false, false}}},
		"late": {0, nil, []look{{-9 * s, a, Found, true, true, true}, {lateBy - s, a, Found, true, false, true}, {lateBy, a, Found, false, false, true}}},
		"SIGKILL is late": {0, nil, []look{{-9 * s, a, Found, true, true, true}, {lateBy - s, expired("A"), Held, true, false, false},
			{lateBy, expired("A"), Found, false, false, true}, {lateBy + 2*s, expired("A"), Found, false, false, true}}},
		"late from the start": {0, nil, []look{{lateBy, a, Found, false, false, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := Budget{PerMinute: tc.budget}
			if tc.budget == 0 {
				b.Allow(web, &diagnose.Finding{Cause: "A"}, start) // its workload has been told of
				b.Allow(web, &diagnose.Finding{Cause: "B"}, start)
			}
			var c Case
			subject := web
			subject.Condition = tc.condition
			for _, l := range tc.looks {
				c.Judge(subject, &evidence.Pod{Time: start.Add(time.Minute + l.at), Deadline: start.Add(time.Minute)}, l.d)
				got := c.Weigh(&b)
				if c.Allowed("A") && (l.heldBack || c.Finding().Cause == "B") {
					t.Errorf("%s after the deadline: what was held back counts as allowed", l.at)
				}
				if got != l.justThen || c.HeldBack() != l.heldBack || c.Outcome() != l.outcome || (c.Finding().Message != "") != l.confirmed {
					t.Errorf("%s after the deadline: outcome %d, held back just then %v, held back %v, finding %+v",
						l.at, c.Outcome(), got, c.HeldBack(), c.Finding())
				}
			}
		})
	}
}
