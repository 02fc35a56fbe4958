package verdict

import (
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// stands returns for how long A stands of a pod of which A is not found, as change makes it so.
func stands(table diagnose.Table, long time.Duration, change func(p *evidence.Pod, at time.Duration)) (until time.Duration, other string) {
	const s = time.Second
	c, last := Case{Late: true}, (*evidence.Pod)(nil)
	subject := web
	subject.Condition = &Condition{Blocked: true, Reason: "A", Since: start.Add(-time.Hour)}
	for at := time.Duration(0); at <= long; at += 2 * s {
		p := &evidence.Pod{UID: "u1", Phase: "Running", Time: start.Add(at), DeletionRequested: start.Add(-time.Hour), Deadline: start.Add(-time.Hour),
			Node: evidence.Node{Time: start.Add(at), Read: start.Add(at)}}
		change(p, at)
		p.Since(last)
		last = p
		c.Judge(subject, p, diagnose.Run(p, table))
		if c.Standing().Cause != "A" {
			return at, c.Standing().Cause
		}
	}
	return long, "A"
}

// A source that is unread for one look now and then does not renew a promise for ever.
func TestUnreadRenewsNoPromise(t *testing.T) {
	moves := func(p *evidence.Pod, at time.Duration) { p.GracePeriodSeconds = int64(at / time.Second) }
	for every, most := range map[time.Duration]time.Duration{0: 30 * time.Second, 20 * time.Second: 150 * time.Second} {
		until, other := stands(still[:1], 2*time.Hour, func(p *evidence.Pod, at time.Duration) {
			moves(p, at)
			if every > 0 && at%every == 0 {
				p.Lack(evidence.Limits, "no")
			}
		})
		if until > most {
			t.Errorf("unread for one look each %s: it stands for %s, then %q", every, until, other)
		}
	}
}

// What moves all the time is withdrawn soon, however long it has to last to be found.
func TestMovesAllTheTime(t *testing.T) {
	for _, patience := range []time.Duration{20, 40, 70, 135, 180, 270, 300, 520, 600} {
		patience *= time.Second
		table := diagnose.Table{{Rule: &diagnose.Rule{Cause: "A", By: lasting(patience)}}}
		until, _ := stands(table, time.Hour, func(p *evidence.Pod, at time.Duration) { p.GracePeriodSeconds = int64(at / time.Second) })
		if until > 30*time.Second {
			t.Errorf("patience %s: though it moves in each reading it stands for %s", patience, until)
		}
	}
}

// A cause that is found is not hidden by one that stands, has healed, and is not looked for for want of a source that is missing for ever.
func TestFoundIsNotHidden(t *testing.T) {
	symptom := &diagnose.Rule{Cause: "Symptom", By: lasting(0)}
	a := lasting(10 * time.Minute)
	a.Partly = []evidence.Source{evidence.Limits}
	table := diagnose.Table{{Rule: &diagnose.Rule{Cause: "A", By: a}, Explains: []*diagnose.Rule{symptom}}, {Rule: symptom}}
	until, other := stands(table, time.Hour, func(p *evidence.Pod, at time.Duration) {
		p.GracePeriodSeconds = int64(at / time.Second)
		p.Lack(evidence.Limits, "no")
	})
	if until > 30*time.Second || other != "Symptom" {
		t.Errorf("Symptom is found in each look, and hidden for %s", until)
	}
}
