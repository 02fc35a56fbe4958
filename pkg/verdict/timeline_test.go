package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// at is a reading of a pod that was deleted at start with a grace period of 30 s.
func at(after time.Duration, change func(p *evidence.Pod)) *evidence.Pod {
	p := &evidence.Pod{
		Time: start.Add(after), UID: "u1", Phase: "Running", DeletionRequested: start, Deadline: start.Add(30 * time.Second), GracePeriodSeconds: 30,
		Containers: []evidence.Container{{Name: "main", Kind: evidence.App, State: evidence.StateRunning}, {Name: "POD", Kind: evidence.Sandbox}},
		Skew:       &evidence.Skew{},
	}
	if change != nil {
		change(p)
	}
	return p
}

// exited has the container end so long after the deletion.
func exited(after time.Duration) func(p *evidence.Pod) {
	return func(p *evidence.Pod) { p.Containers[0].Exit = &evidence.Exit{At: start.Add(after)} }
}

// finished is exited, and the kubelet has written that.
func finished(after time.Duration) func(p *evidence.Pod) {
	return func(p *evidence.Pod) {
		exited(after)(p)
		p.Phase = "Succeeded"
	}
}

// final is finished, and the final delete has moved the deletion.
func final(after, deleted time.Duration) func(p *evidence.Pod) {
	return func(p *evidence.Pod) {
		finished(after)(p)
		p.Deadline, p.GracePeriodSeconds = start.Add(deleted), 0
		p.KeepDeadline(at(0, nil))
	}
}

// Of a pod that the kubelet has not admitted no container has ended.
func TestTimelineOfARejectedPod(t *testing.T) {
	var c Case
	look := at(40*time.Second, func(p *evidence.Pod) {
		p.Phase, p.GracePeriodSeconds, p.Deadline = "Failed", 0, start
		p.Containers = []evidence.Container{{Name: "main", Kind: evidence.App, Exit: &evidence.Exit{Code: 137}}} // TerminatePod of the kubelet
	})
	c.Judge(web, look, diagnose.Diagnosis{Phase: diagnose.Finalizers})
	if got := c.Timeline(); !strings.HasPrefix(got, "node done by ") {
		t.Errorf("says %q", got)
	}
}

func TestTimeline(t *testing.T) {
	const s = time.Second
	type look struct {
		phase diagnose.Phase // "" for the end
		pod   *evidence.Pod
	}
	passed := func(all ...any) []Passage {
		var out []Passage
		for i := 0; i < len(all); i += 2 {
			part, _ := all[i].(Part)
			took, _ := all[i+1].(time.Duration)
			out = append(out, Passage{part, took})
		}
		return out
	}
	for name, tc := range map[string]struct {
		late  bool
		looks []look
		want  []Passage
		line  string
	}{
		"in time": {false, []look{{diagnose.StopSignal, at(2*s, nil)}, {diagnose.Sandbox, at(12*s, exited(11*s))}, {diagnose.Volumes, at(14*s,
			finished(11*s))}, {"", at(16*s, finished(11*s))}},
			passed(GracePeriod, 11*s, Sandbox, 3*s, Volumes, 2*s), ""},
		"between two rounds":      {false, []look{{"", at(3*s, finished(s))}}, passed(GracePeriod, s, Sandbox, 2*s, Volumes, 0*s), ""},
		"between two late rounds": {true, []look{{"", at(3*s, finished(s))}}, nil, ""},
		"overdue, and a finalizer": {false, []look{{diagnose.StopSignal, at(2*s, nil)}, {diagnose.Kill, at(40*s, nil)}, {diagnose.Sandbox,
			at(100*s, nil)}, {diagnose.Volumes, at(110*s, finished(99*s))},
			{diagnose.Finalizers, at(120*s, final(99*s, 115*s))}, {"", at(300*s, final(99*s, 115*s))}},
			passed(GracePeriod, 30*s, Overdue, 70*s, Sandbox, 10*s, Volumes, 10*s, Finalizers, 180*s),
			"deleted 2026-03-01 03:00:00, grace period over 03:00:30, containers ended by 03:01:40, sandbox removed by 03:01:50, node done by 03:02:00."},
		"the final delete is not the deadline": {false, []look{{diagnose.StopSignal, at(2*s, nil)}, {diagnose.Finalizers, at(6*s, final(4*s,
			5*s))}, {diagnose.Finalizers, at(600*s, final(4*s, 5*s))}},
			passed(GracePeriod, 4*s, Sandbox, 2*s, Volumes, 0*s),
			"deleted 2026-03-01 03:00:00, containers ended by 03:00:04, sandbox removed by 03:00:06, node done by 03:00:06, grace period over 03:00:30."},
		"ended in the future": {false, []look{{diagnose.StopSignal, at(2*s, nil)}, {diagnose.Volumes, at(40*s, finished(24*365*time.Hour))}},
			passed(GracePeriod, 30*s, Overdue, 10*s, Sandbox, 0*s),
			"deleted 2026-03-01 03:00:00, grace period over 03:00:30, containers ended by 03:00:40, sandbox removed by 03:00:40."},
		"ended in the past": {false, []look{{diagnose.StopSignal, at(2*s, nil)}, {diagnose.Volumes, at(9*s, finished(-24*365*time.Hour))}},
			passed(GracePeriod, 0*s, Sandbox, 9*s), ""},
		"another day": {false, []look{{diagnose.Kill, at(2*s, nil)}, {diagnose.Volumes, at(30*time.Hour, finished(29*time.Hour))}},
			passed(GracePeriod, 30*s, Overdue, 29*time.Hour-30*s, Sandbox, time.Hour),
			"deleted 2026-03-01 03:00:00, grace period over 03:00:30, containers ended by 2026-03-02 08:00:00, sandbox removed by 09:00:00."},
		"the agent begins in the grace period": {true, []look{{diagnose.StopSignal, at(10*s, nil)}, {diagnose.Volumes, at(50*s, finished(40*s))},
			{"", at(60*s, finished(40*s))}}, passed(Overdue, 10*s, Sandbox, 10*s, Volumes, 10*s),
			"deleted 2026-03-01 03:00:00, grace period over 03:00:30, containers ended by 03:00:40, sandbox removed by 03:00:50."},
		"the agent begins late": {true, []look{{diagnose.Kill, at(35*s, nil)}, {diagnose.Volumes, at(50*s, finished(40*s))}}, passed(Sandbox, 10*s),
			"deleted 2026-03-01 03:00:00, grace period over 03:00:30, containers ended by 03:00:40, sandbox removed by 03:00:50."},
		"the agent begins with the volumes": {true, []look{{diagnose.Volumes, at(50*s, finished(20*s))}, {"", at(99*s, finished(20*s))}}, nil,
			"deleted 2026-03-01 03:00:00, containers ended by 03:00:20, grace period over 03:00:30."},
		"the stage is not known at first": {true, []look{{diagnose.PhaseUnknown, at(31*s, nil)}, {diagnose.Volumes, at(50*s, finished(20*s))},
			{"", at(99*s, finished(20*s))}}, nil,
			"deleted 2026-03-01 03:00:00, containers ended by 03:00:20, grace period over 03:00:30."},
		"by force, with a finalizer": {false, []look{{diagnose.StopSignal, at(2*s, func(p *evidence.Pod) {
			p.GracePeriodSeconds, p.Deadline = 0,
				start
		})}, {diagnose.Finalizers, at(40*s, final(20*s, 0))}, {"", at(50*s, final(20*s, 0))}},
			passed(Finalizers, 10*s), "containers ended by 2026-03-01 03:00:20, sandbox removed by 03:00:40, node done by 03:00:40."},
		"seen after the final delete": {true, []look{{diagnose.Finalizers, at(40*s, func(p *evidence.Pod) {
			final(20*s,
				38*s)(p)
			p.DeletionRequested = start.Add(38 * s)
		})}}, nil, "containers ended by 2026-03-01 03:00:38."},
		"by force, after a while": {false, []look{{diagnose.Kill, at(50*s, nil)}, {"", at(60*s, nil)}}, nil, "deleted 2026-03-01 " +
			"03:00:00, grace period over 03:00:30."},
		"a job's pod": {false, []look{{"", at(s, func(p *evidence.Pod) {
			finished(-time.Hour)(p)
			p.GracePeriodSeconds,
				p.Deadline = 0, start
		})}}, nil, ""},
		"not sure of the deadline": {true, []look{{diagnose.StopSignal, at(10*s, func(p *evidence.Pod) { p.DeadlineUnsure = true })},
			{diagnose.Volumes, at(50*s, finished(40*s))}}, passed(Sandbox, 10*s), "deleted 2026-03-01 03:00:00, containers ended by " +
			"03:00:40, sandbox removed by 03:00:50."},
	} {
		t.Run(name, func(t *testing.T) {
			c := Case{Late: tc.late}
			var got []Passage
			line := ""
			for _, l := range tc.looks {
				if l.phase == "" {
					got = append(got, c.End(l.pod)...)
					continue
				}
				c.Judge(web, l.pod, diagnose.Diagnosis{Phase: l.phase})
				got = append(got, c.Passed()...)
				line = c.Timeline()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if line != tc.line {
				t.Errorf("got  %q\nwant %q", line, tc.line)
			}
		})
	}
}

// An agent after a restart says what the one before it has said, and nothing that it
// cannot have said.
func TestTimelineAfterARestart(t *testing.T) {
	const (
		told = "deleted 2026-02-28 23:59:00, containers ended by 23:59:04, grace period over 2026-03-01 00:00:00."
		own  = "deleted 2026-03-01 03:00:00, grace period over 03:00:30."
	)
	for _, tc := range []struct {
		message string
		late    bool
		want    string
	}{
		{"Cause: m.\nTimeline: " + told, true, told},
		{"Cause: m.\nFix: r.", true, own},
		{"Cause: m.\nTimeline: " + told, false, own},
		{"Cause: m.\nTimeline: deleted 2026-03-01 03:00:00; run this.", true, own},
		{"Cause: m. Timeline: " + told, true, own}, // of a name
		{"Timeline: " + told, true, own},
		{"Blocked in phase Kill: m. Timeline (UTC): " + told, true, own}, // of an earlier version
	} {
		c := Case{Late: tc.late}
		s := web
		s.Condition = &Condition{Blocked: true, Message: tc.message}
		for i := range 2 {
			c.Judge(s, at(time.Duration(40+i)*time.Second, nil), diagnose.Diagnosis{Phase: diagnose.Kill})
			if got := c.Timeline(); got != tc.want {
				t.Errorf("%s: %q", tc.message, got)
			}
		}
	}
}

// A timeline is told by the node's clock as it is now, and its parts are as long as they were.
func TestTimelineOfASetClock(t *testing.T) {
	const s, step = time.Second, -10 * time.Minute
	var c Case
	c.Judge(web, at(10*s, nil), diagnose.Diagnosis{Phase: diagnose.StopSignal})
	c.AfterStep(start.Add(11*s+step), step)
	later := at(40*s+step, func(p *evidence.Pod) {
		p.DeletionRequested, p.Deadline = start.Add(step), start.Add(30*s+step)
		p.Containers[0].Exit = &evidence.Exit{At: start.Add(35*s + step)}
		p.Phase = "Succeeded"
	})
	c.Judge(web, later, diagnose.Diagnosis{Phase: diagnose.Volumes})
	want := []Passage{{GracePeriod, 30 * s}, {Overdue, 5 * s}, {Sandbox, 5 * s}}
	if diff := cmp.Diff(want, c.Passed()); diff != "" {
		t.Error(diff)
	}
	const line = "deleted 2026-03-01 02:50:00, grace period over 02:50:30, containers ended by 02:50:35, sandbox removed by 02:50:40."
	if got := c.Timeline(); got != line {
		t.Errorf("%q", got)
	}
}
