package verdict

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var start = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

var web = Subject{Kind: Pod, Namespace: "shop", Name: "web-0", UID: "u1"}

func found(cause string) diagnose.Diagnosis {
	return diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{{Cause: cause, Confidence: diagnose.Inferred}}}
}

// blind returns the diagnosis of a reading in which the cause could not be looked
// for.
func blind(cause string, d diagnose.Diagnosis) diagnose.Diagnosis {
	d.Unknown = []diagnose.Unknown{{Source: evidence.Containers, Causes: []string{cause}}}
	return d
}

var (
	nothing = diagnose.Diagnosis{Phase: diagnose.Volumes}
	waits   = diagnose.Diagnosis{Phase: diagnose.Kill} // nothing either, in the phase in which the others are found
	unknown = found(diagnose.Unrecognised.Cause)
)

// What each look in a row means for what stands.
func TestJudge(t *testing.T) {
	type look struct {
		at      time.Duration
		d       diagnose.Diagnosis
		want    Outcome
		stands  string
		sinceAt time.Duration
	}
	const s, m = time.Second, time.Minute
	told := &Condition{Blocked: true, Reason: "A", Since: start.Add(-m)}
	toldLater := &Condition{Blocked: true, Reason: "A", Since: start.Add(m)} // by somebody else
	toldUnknown := &Condition{Blocked: true, Reason: diagnose.Unrecognised.Cause, Since: start.Add(-m)}
	for name, tc := range map[string]struct {
		condition *Condition
		looks     []look
	}{
		"nothing ever": {nil, []look{{0, nothing, Nothing, "", 0}, {m, nothing, Nothing, "", 0}}},
		"a cause, and gone": {nil, []look{{0, found("A"), Found, "A", 0}, {s, nothing, Held, "A", 0}, {15 * s, nothing, Held, "A", 0}, {16 * s,
			nothing, Withdrawn, "", 16 * s}, {17 * s, nothing, Nothing, "", 16 * s}}},
		"now and then": {nil, []look{{0, found("A"), Found, "A", 0}, {10 * s, nothing, Held, "A", 0}, {20 * s, found("A"), Found, "A", 0},
			{30 * s, nothing, Held, "A", 0}, {40 * s, found("A"), Found, "A", 0}}},
		"another cause": {nil, []look{{0, found("A"), Found, "A", 0}, {10 * s, found("B"), Found, "B", 10 * s}}},
		"Unknown waits": {nil, []look{{0, unknown, Nothing, "", 0}, {14 * s, unknown, Nothing, "", 0}, {15 * s, unknown, Found, "Unknown",
			15 * s}, {16 * s, unknown, Found, "Unknown", 15 * s}}},
		// It is told after a while for which nothing moves, which begins anew with the agent and
		// grows when the kubelet is started: that it is not told refutes it only in another phase.
		"Unknown stays": {nil, []look{{0, unknown, Nothing, "", 0}, {15 * s, unknown, Found, "Unknown", 15 * s}, {30 * s, waits, Held, "Unknown",
			15 * s}, {9 * m, waits, Held, "Unknown", 15 * s},
			{10 * m, nothing, Held, "Unknown", 15 * s}, {10*m + 15*s, nothing, Withdrawn, "", 10*m + 15*s}}},
		"Unknown stays in a restart": {toldUnknown, []look{{0, waits, Held, "Unknown", -m}, {m, waits, Held, "Unknown", -m}, {2 * m, found("A"), Found, "A", 2 * m}}},
		"A gives way":                {nil, []look{{0, found("A"), Found, "A", 0}, {s, unknown, Held, "A", 0}, {16 * s, unknown, Found, "Unknown", 16 * s}}},
		"not looked for": {nil, []look{{0, found("A"), Found, "A", 0}, {s, blind("A", nothing), Held, "A", 0}, {10 * m, blind("A",
			nothing), Held, "A", 0}, {11 * m, blind("A", unknown), Found, "Unknown", 11 * m}}},
		"looked for again": {nil, []look{{0, found("A"), Found, "A", 0}, {s, blind("A", nothing), Held, "A", 0}, {20 * s, nothing, Held, "A", 0},
			{22 * s, found("A"), Found, "A", 0},
			{m, blind("A", nothing), Held, "A", 0}, {2 * m, nothing, Held, "A", 0}, {2*m + 15*s, nothing, Withdrawn, "", 2*m + 15*s}}},
		"looked for now and then": {nil, []look{{0, found("A"), Found, "A", 0}, {2 * s, nothing, Held, "A", 0}, {8 * s, blind("A", nothing), Held, "A", 0},
			{12 * s, nothing, Held, "A", 0}, {16 * s, blind("A", nothing), Held, "A", 0}, {18 * s, nothing, Withdrawn, "", 18 * s}}},
		"after a restart":      {told, []look{{0, nothing, Held, "A", -m}, {3 * s, found("A"), Found, "A", -m}}},
		"gone in a restart":    {told, []look{{0, nothing, Held, "A", -m}, {15 * s, nothing, Withdrawn, "", 15 * s}}},
		"told in time to come": {toldLater, []look{{0, nothing, Held, "A", 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Case
			subject := web
			subject.Condition = tc.condition
			for _, l := range tc.looks {
				e := &evidence.Pod{Time: start.Add(l.at), Deadline: start}
				c.Judge(subject, e, l.d)
				got := c.Standing()
				if c.Outcome() != l.want || got.Cause != l.stands || l.stands != "" && !got.Since.Equal(start.Add(l.sinceAt)) {
					t.Errorf("after %s: outcome %d, %q stands since %s; want %d, %q since %s",
						l.at, c.Outcome(), got.Cause, got.Since.Sub(start), l.want, l.stands, l.sinceAt)
				}
			}
		})
	}
}

// A verdict ends once, also one of an earlier run of the agent, and says what was known of it. The condition of one that was
// withdrawn may stay, because writes fail.
func TestEnded(t *testing.T) {
	withWords := diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{{Cause: "A", Message: "words"}}}
	told := &Condition{Blocked: true, Reason: "A", Since: start.Add(-time.Minute)}
	a := Standing{Namespace: "shop", Name: "web-0", UID: "u1", Cause: "A", Phase: diagnose.Kill, Since: start, Deadline: start, Message: "words"}
	earlier := Standing{Namespace: "shop", Name: "web-0", UID: "u1", Cause: "A", Since: start.Add(-time.Minute), Deadline: start, Reported: true}
	held, heldBack, reported := earlier, a, a
	held.Phase, heldBack.HeldBack, reported.Reported = diagnose.Volumes, true, true
	for name, tc := range map[string]struct {
		condition *Condition
		looks     []diagnose.Diagnosis // ten seconds apart
		act       func(*Case)          // after the first
		want      Standing
		at        int // the look that it ended with
	}{
		"withdrawn":                       {nil, []diagnose.Diagnosis{withWords, nothing, nothing, nothing, nothing}, nil, a, 3},
		"replaced":                        {nil, []diagnose.Diagnosis{withWords, found("B"), found("B")}, nil, a, 1},
		"stands":                          {nil, []diagnose.Diagnosis{withWords, nothing, withWords}, nil, Standing{}, -1},
		"of an earlier run":               {told, []diagnose.Diagnosis{nothing, nothing, nothing, nothing, nothing}, nil, held, 2},
		"of an earlier run, replaced":     {told, []diagnose.Diagnosis{found("B"), found("B")}, nil, earlier, 0},
		"of an earlier run, still stands": {told, []diagnose.Diagnosis{withWords, withWords}, nil, Standing{}, -1},
		"held back": {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) {
			c.Last.Deadline = start.Add(time.Hour)
			c.Weigh(new(Budget))
			c.Last.Deadline = start
		}, a, 1},
		"over budget": {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) {
			b := new(Budget)
			b.Allow(web, &diagnose.Finding{Cause: "A"}, start)
			c.Last.Deadline = start.Add(time.Hour)
			c.Weigh(b)
			c.Last.Deadline = start
		}, heldBack, 1},
		"condition": {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) { c.ConditionWritten(Condition{Blocked: true, Reason: "A"}) }, reported, 1},
		"resolved":  {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) { c.ConditionWritten(Condition{Reason: "Resolved"}) }, a, 1},
		"Event":     {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) { c.EventWritten(&Event{Name: "e"}) }, reported, 1},
		"no Event":  {nil, []diagnose.Diagnosis{withWords, found("B")}, func(c *Case) { c.EventWritten(nil) }, a, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var c Case
			subject := web
			subject.Condition = tc.condition
			for i, d := range tc.looks {
				c.Judge(subject, &evidence.Pod{Time: start.Add(time.Duration(i) * 10 * time.Second), Deadline: start}, d)
				if i == 0 && tc.act != nil {
					tc.act(&c)
				}
				got, n := c.Ended()
				want, wantN := Standing{}, 0
				if tc.at >= 0 && i >= tc.at {
					wantN = 1
				}
				if i == tc.at {
					want = tc.want
				}
				if diff := cmp.Diff(want, got); diff != "" || n != wantN {
					t.Errorf("with look %d %d have ended, want %d (-want +got):\n%s", i, n, wantN, diff)
				}
			}
		})
	}
}

// Unknown that was found without the pod's files is told for two minutes when they can be read again, and only until
// the pod is seen to get on from the phase that it is seen in first.
func TestUnknownFoundWithoutFiles(t *testing.T) {
	const unread, s = diagnose.PhaseUnknown, time.Second
	type look struct {
		at    time.Duration
		phase diagnose.Phase
		want  Outcome
	}
	for name, looks := range map[string][]look{
		"it is seen again": {{20 * s, diagnose.Kill, Held}, {139 * s, diagnose.Kill, Held}, {140 * s, diagnose.Kill, Held}, {155 * s, diagnose.Kill, Withdrawn}},
		"it gets on":       {{20 * s, diagnose.Kill, Held}, {40 * s, diagnose.Runtime, Held}, {55 * s, diagnose.Runtime, Withdrawn}},
		"another reading hangs": {{20 * s, diagnose.Kill, Held}, {100 * s, unread, Held}, {110 * s, diagnose.Kill, Held}, {229 * s, diagnose.Kill,
			Held}, {230 * s, diagnose.Kill, Held}, {245 * s, diagnose.Kill, Withdrawn}},
	} {
		var c Case
		see := func(at time.Duration, d diagnose.Diagnosis) {
			e := &evidence.Pod{Time: start.Add(at), Deadline: start}
			if d.Phase == unread {
				e.HungSince = start
			}
			c.Judge(web, e, d)
		}
		told := found(diagnose.Unrecognised.Cause)
		told.Phase = unread
		see(0, told)
		see(15*s, told)
		for _, l := range looks {
			if see(l.at, diagnose.Diagnosis{Phase: l.phase}); c.Outcome() != l.want {
				t.Errorf("%s: after %s: outcome %d, want %d", name, l.at, c.Outcome(), l.want)
			}
		}
	}
}

// What stands keeps the phase in which it was found.
func TestStanding(t *testing.T) {
	var c Case
	deadline := start.Add(-time.Minute)
	c.Judge(web, &evidence.Pod{Time: start, Deadline: deadline}, found("A"))
	c.Judge(web, &evidence.Pod{Time: start.Add(time.Second), Deadline: deadline}, nothing)
	want := Standing{Namespace: "shop", Name: "web-0", UID: "u1", Cause: "A", Phase: diagnose.Kill, Since: start, Deadline: deadline}
	if diff := cmp.Diff(want, c.Standing()); diff != "" {
		t.Error(diff)
	}
}

func TestDue(t *testing.T) {
	var c Case
	due := func(want bool, after time.Duration) {
		t.Helper()
		if got := c.Due(start.Add(after)); got != want {
			t.Errorf("due after %s: %v", after, got)
		}
	}
	look := func(after time.Duration, d diagnose.Diagnosis) {
		c.Judge(web, &evidence.Pod{Time: start.Add(after)}, d)
	}
	due(true, 0)
	look(0, nothing)
	due(true, 0)
	look(0, found("A"))
	due(true, settled-time.Second)
	look(settled, found("A"))
	due(false, settled+slow-time.Second)
	due(true, settled+slow)
	look(settled+slow, nothing) // held: a second look soon
	due(true, settled+slow)
}

// An Event that is not proved waits for two looks in a row.
func TestEventDue(t *testing.T) {
	var c Case
	at := start
	look := func(d diagnose.Diagnosis) bool {
		at = at.Add(time.Second)
		c.Judge(web, &evidence.Pod{Time: at}, d)
		known, due := c.EventDue()
		if known != nil {
			t.Fatalf("known: %+v", known)
		}
		return c.Outcome() == Found && due
	}
	for i, l := range []struct {
		d    diagnose.Diagnosis
		want bool
	}{{found("A"), false}, {found("B"), false}, {found("A"), false}, {nothing, false}, {found("A"), true}} {
		if got := look(l.d); got != l.want {
			t.Errorf("look %d: due %v", i, got)
		}
	}
	c.EventWritten(&Event{Namespace: "shop", Count: 1, Observed: at})
	if _, due := c.EventDue(); due || !c.Told() {
		t.Errorf("written: due %v, told %v", due, c.Told())
	}
	at = at.Add(confirmAfter)
	c.Judge(web, &evidence.Pod{Time: at}, found("A"))
	if known, due := c.EventDue(); known == nil || !due {
		t.Errorf("after %s: %+v is due: %v", confirmAfter, known, due)
	}
}

// The Event waits for the look that knows who has refused the condition, once.
func TestEventNamesWhoRefuses(t *testing.T) {
	proved := found("A")
	for i := range proved.Findings {
		proved.Findings[i].Confidence = diagnose.Proved
	}
	var c Case
	for i, l := range []struct {
		by   *evidence.Refusal
		want bool
	}{{&evidence.Refusal{Webhook: "billing.test"}, false}, {&evidence.Refusal{Webhook: "billing.test"}, true}, {nil, true}} {
		c.Judge(web, &evidence.Pod{Time: start.Add(time.Duration(i) * time.Minute)}, proved)
		if _, due := c.ConditionDue(true, "A", "words"); !due {
			t.Fatalf("look %d: the condition is not due", i)
		}
		c.ConditionFailed(l.by, false)
		if _, due := c.EventDue(); due != l.want {
			t.Errorf("look %d: due %v", i, due)
		}
	}
	c = Case{}
	c.Judge(web, &evidence.Pod{Time: start}, proved)
	c.ConditionFailed(nil, false)
	if _, due := c.EventDue(); !due {
		t.Error("not due when nobody is known to refuse")
	}
}

// The condition gets the words of an Event that is created after it, and no new ones for
// a minute after that.
func TestConditionGetsTheEventsWords(t *testing.T) {
	var c Case
	for i, words := range []string{"one", "two", "three"} {
		c.Judge(web, &evidence.Pod{Time: start.Add(time.Duration(i) * time.Second)}, found("A"))
		if want, due := c.ConditionDue(true, "A", words); due != (i < 2) {
			t.Errorf("%s: due %v", words, due)
		} else if due {
			c.ConditionWritten(want)
		}
		if _, due := c.EventDue(); due {
			c.EventWritten(&Event{Namespace: "shop", Count: 1, Observed: c.Last.Time})
		}
	}
}

func TestBackoff(t *testing.T) {
	for name, tc := range map[string]struct {
		unreachable bool
		least, most int
	}{
		"3, 6, 12, … 192 s, and then every five minutes":     {false, 15, 19},
		"every 15 seconds while nobody is there who answers": {true, 240, 242},
	} {
		var b backoff
		at, tries := start, 0
		for ; at.Before(start.Add(time.Hour)); at = at.Add(time.Second) {
			if b.waits(at) {
				continue
			}
			if tries++; b.failed(at, tc.unreachable) != tries {
				t.Fatalf("not failure %d", tries)
			}
		}
		if tries < tc.least || tries > tc.most {
			t.Errorf("%s: %d attempts in an hour", name, tries)
		}
		if b.failed(at, false); tc.unreachable && b.notBefore.Sub(at) != 2*lastRetryUnreachable {
			t.Errorf("the first pause after an outage is %s", b.notBefore.Sub(at))
		}
	}
}

// There is one bound on the number of pods remembered. A namespace with few has its place beside one with many, and pods of which
// only the object is left make room.
func TestCasesAreBounded(t *testing.T) {
	var cases Cases
	var pods []Candidate
	add := func(namespace, uid string, objectOnly bool) {
		pods = append(pods, Candidate{UID: uid, Namespace: namespace, Deleted: start.Add(time.Duration(len(pods)) * time.Second), ObjectOnly: objectOnly})
		if cases.Share(pods)[uid] {
			cases.Open(uid)
		}
	}
	for i := range maxCases {
		add("evil", fmt.Sprint(i), false)
		cases.Get(fmt.Sprint(i)).Judge(web, &evidence.Pod{Time: start}, nothing)
	}
	add("evil", "one too many", false)
	if cases.Get("one too many") != nil || cases.Refused() != 1 {
		t.Errorf("no bound; %d refused", cases.Refused())
	}
	if again := cases.Get("7"); again == nil || again.Last == nil {
		t.Error("a pod that is known is refused, or forgotten")
	}
	add("good", "victim", false)
	if cases.Get("victim") == nil || len(cases.All()) != maxCases || cases.Get("0") == nil {
		t.Error("a namespace with one pod has no place beside one with a thousand")
	}
	here := make(map[string]bool)
	for i := range maxCases - 2 {
		here[fmt.Sprint(i)] = true
	}
	if closed := cases.CloseOthers(here); len(closed) != 2 || closed["victim"] == nil {
		t.Errorf("%d closed, want the victim's and the last one", len(closed))
	}
	pods = slices.DeleteFunc(pods, func(p Candidate) bool { return !here[p.UID] })
	add("evil", "one too many", false)
	c := cases.Get("one too many")
	if c == nil {
		t.Fatal("no room again")
	}
	if n := len(cases.Standing()); n != 0 {
		t.Errorf("%d verdicts stand", n)
	}
	c.Judge(web, &evidence.Pod{Time: start}, found("A"))
	if all := cases.Standing(); len(all) != 1 || all[0].Cause != "A" {
		t.Errorf("what stands: %+v", all)
	}
	for i := range pods {
		pods[i].ObjectOnly = true
	}
	for i := range maxCases {
		add("evil", fmt.Sprint("lives ", i), false)
	}
	if all := cases.All(); len(all) != maxCases || all["lives 999"] == nil {
		t.Error("pods of which only the object is left make no room")
	}
}

func TestInTurn(t *testing.T) {
	got := InTurn([]string{"a1", "a2", "a3", "b1", "c1", "b2"}, func(s *string) string { return (*s)[:1] })
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// still is a table with a cause that is found when the pod has been at the same stage for 40 seconds, and its symptom.
var still = func() diagnose.Table {
	symptom := &diagnose.Rule{Cause: "Symptom", By: lasting(0)}
	a := lasting(40 * time.Second)
	a.Partly, a.Facts[0].From = []evidence.Source{evidence.Limits}, []evidence.Source{evidence.Limits}
	return diagnose.Table{
		{
			Rule:     &diagnose.Rule{Cause: "A", Phases: []diagnose.Phase{diagnose.StopSignal, diagnose.PhaseUnknown}, By: a},
			Explains: []*diagnose.Rule{symptom},
		},
		{Rule: symptom},
	}
}()

// lasting finds a pod that runs and has been at the same stage for so long.
func lasting(long time.Duration) diagnose.By[diagnose.ThePod] {
	return diagnose.By[diagnose.ThePod]{
		Facts: []diagnose.Fact[diagnose.ThePod]{
			{Pod: diagnose.IfPod(func(p *fact.View) bool { return p.Phase == "Running" })},
			{Pod: func(p *fact.View) diagnose.Holding { return diagnose.Lasted(p, p.UnchangedSince, long, diagnose.Slow) }},
		},
		Tell: diagnose.OfPod(func(*fact.View) diagnose.Finding { return diagnose.Finding{Confidence: diagnose.Inferred} }),
	}
}

// A verdict that only time keeps from being found again stands until that time, and no longer: what has changed is not waited for twice.
func TestEarly(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		table  diagnose.Table
		change func(p *evidence.Pod, at time.Duration)
		stands map[time.Duration]string
	}{
		"nothing moves": {still[:1], nil, map[time.Duration]string{2 * s: "A", 38 * s: "A", 5 * time.Minute: "A"}},
		"it has ended": {still[:1], func(p *evidence.Pod, _ time.Duration) { p.Phase = "Succeeded" },
			map[time.Duration]string{2 * s: "A", 14 * s: "A", 16 * s: "", 5 * time.Minute: ""}},
		"it ends before its time": {still[:1], func(p *evidence.Pod, at time.Duration) {
			if at >= 20*s {
				p.Phase = "Succeeded"
			}
		}, map[time.Duration]string{18 * s: "A", 34 * s: "A", 36 * s: ""}},
		// 52 seconds are promised: 42, and what readings may differ by. When 40 are not left it is refuted.
		"it moves all the time": {still[:1], func(p *evidence.Pod, at time.Duration) { p.GracePeriodSeconds = int64(at / s) },
			map[time.Duration]string{26 * s: "A", 28 * s: ""}},
		"a source is away for a look, and its times begin anew": {still[:1], func(p *evidence.Pod, at time.Duration) {
			if at == 20*s {
				p.Lack(evidence.Limits, "no")
			}
			if at >= 20*s {
				p.GracePeriodSeconds = 1
			}
		}, map[time.Duration]string{18 * s: "A", 22 * s: "A", 40 * s: "A", 58 * s: "A", 5 * time.Minute: "A"}},
		"a source is away, and the symptom is seen": {still, func(p *evidence.Pod, at time.Duration) {
			if at < 20*s {
				p.Lack(evidence.Limits, "no")
			}
		}, map[time.Duration]string{0: "A", 18 * s: "A", 40 * s: "A"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, last := Case{Late: true}, (*evidence.Pod)(nil)
			subject := web
			subject.Condition = &Condition{Blocked: true, Reason: "A", Since: start.Add(-time.Hour)}
			for at := time.Duration(0); at <= 5*time.Minute; at += 2 * s {
				p := &evidence.Pod{UID: "u1", Phase: "Running", Time: start.Add(at), DeletionRequested: start.Add(-time.Hour), Deadline: start.Add(-time.Hour),
					Node: evidence.Node{Time: start.Add(at), Read: start.Add(at)}}
				if test.change != nil {
					test.change(p, at)
				}
				p.Since(last)
				last = p
				if c.Standing().Cause == "" && at > 0 {
					subject.Condition = &Condition{Reason: Resolved, Since: p.Time}
				}
				c.Judge(subject, p, diagnose.Run(p, test.table))
				if want, asked := test.stands[at]; asked && c.Standing().Cause != want {
					t.Errorf("after %s %q stands, want %q", at, c.Standing().Cause, want)
				}
			}
		})
	}
}
