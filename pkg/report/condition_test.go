package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const (
	seconds = time.Second
	// What blocked says in the condition, in the Event on the pod, and in the one on the node.
	text      = `Cause: Probably stuck in phase Kill: thread 812 (dd) is stuck.\nFix: Repair it.\nAvoid: Do not force-delete.`
	textOnPod = "Probably stuck: thread 812 (dd) is stuck. First: look at it. Avoid: force delete. " +
		"Fix and more: kubectl get pod -n shop web-0 -o jsonpath='{.status.conditions[*].message}'"
	textOnNode = "Pod shop/web-0: Probably stuck: thread 812 (dd) is stuck. Fix: Repair it. Avoid: Do not force-delete. " +
		"More: https://github.com/nodeagent-io/nodeagent/blob/main/docs/reasons/ShimHung.md"
)

func TestConditionIsWritten(t *testing.T) {
	g := newRig(t)
	g.quiet("no verdict", g.look(0, nothing))
	req := g.one("verdict", g.look(seconds, blocked("UninterruptibleSleep")))
	want := `{"metadata":{"uid":"u1"},"status":{"conditions":[{` +
		`"lastTransitionTime":"2026-03-01T03:00:01Z",` +
		`"message":"` + text + `\nMore: https://github.com/nodeagent-io/nodeagent/blob/main/docs/reasons/UninterruptibleSleep.md, ` +
		`or with the plugin: kubectl why-terminating web-0 -n shop",` +
		`"observedGeneration":4,"reason":"UninterruptibleSleep","status":"True","type":"nodeagent.io/TerminationBlocked"}]}}`
	if diff := cmp.Diff(want, req.Body); diff != "" {
		t.Errorf("patch differs (-want +got):\n%s", diff)
	}
	conditionOf(t, req)
}

func TestConditionIsWrittenOnChangeOnly(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("verdict", g.look(0, blocked("ShimHung"))))
	eventOf(t, g.one("second look", g.look(3*seconds, blocked("ShimHung"))), "shop")
	g.quiet("unchanged, old pod in the cache", g.look(3*seconds, blocked("ShimHung")))
	g.cached(c)
	g.quiet("unchanged, new pod in the cache", g.look(time.Minute, blocked("ShimHung")))

	g.pod.Generation = 5
	_, changed := conditionOf(t, g.one("cause changed", g.look(seconds, blocked("ContainerdHung"))))
	if changed.Reason != "ContainerdHung" || !changed.LastTransitionTime.Equal(&c.LastTransitionTime) || changed.ObservedGeneration != 5 {
		t.Errorf("changed cause: %+v", changed)
	}
}

// New words for the same cause are no news: they wait until a minute has gone by.
func TestConditionIsRewordedSlowly(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.look(3*seconds, blocked("ShimHung"))
	reworded := blocked("ShimHung")
	reworded.Findings[0].Message = "thread 813 is stuck"
	g.quiet("too early", g.look(3*seconds, reworded))
	_, c := conditionOf(t, g.one("after a minute", g.look(time.Minute, reworded)))
	if !strings.Contains(c.Message, "813") {
		t.Errorf("message %q", c.Message)
	}
}

// Policies of an older version take 1,024 bytes. It is tried once what they take.
func TestConditionIsShortenedForOlderPolicies(t *testing.T) {
	g := newRig(t)
	const denied = `pods "web-0" is forbidden: ValidatingAdmissionPolicy 'nodeagent-own-node' with binding 'nodeagent-own-node' denied request: `
	refuse := func(most int) {
		g.api.answer = func(r request) *metav1.Status {
			var p corev1.Pod
			if err := json.Unmarshal([]byte(r.Body), &p); err != nil || len(p.Status.Conditions) == 0 || len(p.Status.Conditions[0].Message) <= most {
				return nil
			}
			return &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: denied + "too large"}
		}
	}
	long := blocked("ShimHung")
	long.Findings[0].Seen = []string{strings.Repeat("The record says running. ", 60)}
	short := func(reqs []request) string {
		t.Helper()
		_, c := conditionOf(t, reqs[len(reqs)-1])
		m, ok := condition.Parse(c.Message)
		if !ok || len(c.Message) > 1024 || m.Seen != "" || m.Cause == "" || m.Fix == "" || m.Avoid == "" {
			t.Errorf("%d bytes: %q", len(c.Message), c.Message)
		}
		return c.Message
	}

	refuse(10) // whatever it is
	if got := g.look(0, long); len(got) != 2 || testutil.ToFloat64(g.metrics.shortened) != 0 {
		t.Errorf("refused whatever its size: %d requests", len(got))
	}
	refuse(1024)
	g.forget()
	got := g.look(3*seconds, long)
	if len(got) != 2 || testutil.ToFloat64(g.metrics.shortened) != 1 {
		t.Fatalf("%d requests, %v shortened: %+v", len(got), testutil.ToFloat64(g.metrics.shortened), got)
	}
	_, c := conditionOf(t, got[1])
	short(got)
	g.cached(c)
	g.look(3*seconds, long)
	g.quiet("it stands", g.look(time.Minute, long))
	long.Findings[0].Cause = "ContainerdHung"
	if got := g.one("another cause", g.look(seconds, long)); short([]request{got}) == "" || testutil.ToFloat64(g.metrics.shortened) != 1 {
		t.Errorf("tried again: %+v", got)
	}
}

func TestConditionComesBackWhenRemoved(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.look(3*seconds, blocked("ShimHung"))
	conditionOf(t, g.one("removed by somebody", g.look(cacheLag, blocked("ShimHung"))))
}

func TestConditionIsResolved(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("verdict", g.look(0, blocked("ShimHung"))))
	g.cached(c)
	g.quiet("just gone", g.look(seconds, nothing))
	g.quiet("not gone for long", g.look(withdrawAfter-seconds, nothing))
	_, c = conditionOf(t, g.one("gone", g.look(seconds, nothing)))
	if c.Status != corev1.ConditionFalse || c.Reason != "Resolved" || !c.LastTransitionTime.Time.Equal(g.now) {
		t.Errorf("resolved condition: %+v", c)
	}
	g.quiet("resolved, old pod in the cache", g.look(seconds, nothing))
	g.cached(c)
	g.quiet("resolved, new pod in the cache", g.look(time.Hour, nothing))

	_, c = conditionOf(t, g.one("stuck again", g.look(seconds, blocked("ShimHung"))))
	if c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Time.Equal(g.now) {
		t.Errorf("condition of a pod that is stuck again: %+v", c)
	}
}

func TestNothingToResolve(t *testing.T) {
	g := newRig(t)
	for range 10 {
		g.quiet("healthy", g.look(10*seconds, nothing))
	}
}

func TestResolvedIsTriedAgain(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("verdict", g.look(0, blocked("ShimHung"))))
	g.cached(c)
	g.look(seconds, nothing)
	g.api.answer = broken
	conditionOf(t, g.one("API down", g.look(time.Minute, nothing)))
	g.quiet("backs off", g.look(seconds, nothing))
	g.api.answer = nil
	_, c = conditionOf(t, g.one("API back", g.look(firstRetry, nothing)))
	if c.Reason != "Resolved" {
		t.Errorf("condition %+v", c)
	}
}

// A source that is missing hides the cause; it does not make it go away.
func TestUnseenIsNotResolved(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("verdict", g.look(0, blocked("ShimHung"))))
	g.cached(c)
	blind := nothing
	blind.Unknown = []diagnose.Unknown{{Source: evidence.Containers, Causes: []string{"ShimHung"}}}
	for range 60 {
		g.quiet("blind", g.look(10*seconds, blind))
	}
	if got := len(g.cases.Standing()); got != 1 {
		t.Errorf("%d verdicts stand", got)
	}
	unknown := blind
	unknown.Findings = []diagnose.Finding{{Cause: diagnose.Unrecognised.Cause, Confidence: diagnose.Inferred, Message: "stuck"}}
	_, c = conditionOf(t, g.one("Unknown after being blind for long", g.look(10*seconds, unknown)))
	if c.Reason != "Unknown" {
		t.Errorf("condition %+v", c)
	}
}

// Unknown is said only when the rules, which need two readings, have had them.
func TestUnknownWaits(t *testing.T) {
	unknown := diagnose.Diagnosis{Phase: diagnose.Volumes, Findings: []diagnose.Finding{{Cause: diagnose.Unrecognised.Cause, Message: "stuck"}}}
	g := newRig(t)
	g.quiet("first look at a pod that is overdue", g.look(0, unknown))
	g.quiet("3 s later", g.look(3*seconds, unknown))
	conditionOf(t, g.one("later", g.look(withdrawAfter, unknown)))
}

// A restarted agent finds its condition on the pod, and its Event in the API.
func TestRestartWritesNothing(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("verdict", g.look(0, blocked("ShimHung"))))
	ev := eventOf(t, g.one("second look", g.look(3*seconds, blocked("ShimHung"))), "shop")
	g.cached(c)
	g.api.objects["/apis/events.k8s.io/v1/namespaces/shop/events/"+ev.Name] = ev
	g.api.answer = eventExists

	g.restart()
	g.quiet("first look, one reading shows nothing yet", g.look(seconds, nothing))
	if len(g.cases.Standing()) != 1 {
		t.Error("the series of a standing condition is not back")
	}
	g.quiet("second look", g.look(3*seconds, blocked("ShimHung")))
	got := g.look(3*seconds, blocked("ShimHung"))
	if len(got) != 2 || got[0].Method != "POST" || got[1].Method != "GET" {
		t.Fatalf("third look: %+v", got)
	}
	g.quiet("fourth look", g.look(3*seconds, blocked("ShimHung")))
	_, c2 := conditionOf(t, g.look(seconds, blocked("ContainerdHung"))[0])
	if !c2.LastTransitionTime.Equal(&c.LastTransitionTime) {
		t.Errorf("the transition time moved from %s to %s", c.LastTransitionTime, c2.LastTransitionTime)
	}
}

func TestConditionOfAPodThatIsGone(t *testing.T) {
	for name, answer := range map[string]func(request) *metav1.Status{"404": notFound, "409": conflict, "422 UID": wrongUID} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.api.answer = answer
			g.one("gone", g.look(0, blocked("ShimHung")))
			if r := resultOf(g.r.patchCondition(context.Background(), g.pod, verdict.Condition{})); r != resultGone {
				t.Errorf("counted as %s", r)
			}
			g.forget()
			g.stuckIs("")
		})
	}
}

func TestAPIDownThenBack(t *testing.T) {
	g := newRig(t)
	g.api.answer = broken
	g.one("down", g.look(0, blocked("ShimHung")))
	g.look(seconds, blocked("ShimHung")) // the Event
	g.quiet("backs off", g.look(seconds, blocked("ShimHung")))
	tries := 0
	for range 60 {
		tries += len(g.look(10*seconds, blocked("ShimHung")))
	}
	if tries < 6 || tries > 16 {
		t.Errorf("%d attempts in ten minutes", tries)
	}
	g.api.answer = nil
	got := g.look(lastRetry, blocked("ShimHung"))
	if len(got) != 2 {
		t.Fatalf("back: %+v", got)
	}
	conditionOf(t, got[0])
	eventOf(t, got[1], "shop")
}

// An API server that takes the connection and says nothing holds up one look
// for no longer than its deadline; the end of the agent ends the wait.
func TestWritesHaveADeadline(t *testing.T) {
	g := newRig(t)
	ended, end := context.WithCancel(context.Background())
	silent := make(chan struct{})
	defer close(silent)
	g.api.answer = func(request) *metav1.Status { end(); <-silent; return nil }
	begin := time.Now()
	g.r.Report(ended, g.judged(blocked("ShimHung")))
	if d := time.Since(begin); d >= writeTimeout {
		t.Errorf("the end of the agent was waited for %s", d)
	}
}

// The deadline of the writes is the only one that they have.
func TestSilentAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the writes may")
	}
	g := newRig(t)
	silent := make(chan struct{})
	defer close(silent)
	g.api.answer = func(request) *metav1.Status { <-silent; return nil }
	begin := time.Now()
	g.r.Report(t.Context(), g.judged(blocked("ShimHung")))
	// With a deadline for each of the two writes it would be twice as long.
	if d := time.Since(begin); d < writeTimeout || d >= 2*writeTimeout {
		t.Errorf("an API server that is silent held up the look for %s", d)
	}
}

func TestUnreachableAPI(t *testing.T) {
	g := newRig(t)
	dead := httptest.NewServer(nil)
	dead.Close()
	g.r.client = client(t, dead.URL)
	g.look(0, blocked("ShimHung"))
	if _, due := g.cases.Open("u1").ConditionDue(true, "ShimHung", "other words"); due {
		t.Error("no back-off")
	}
}

// Nothing is written about a verdict that is held back, nor about its end.
func TestHeldBackIsNotWritten(t *testing.T) {
	g := newRig(t)
	var b verdict.Budget
	d := blocked("ShellPID1NoTrap")
	b.Allow(g.pod, &d.Findings[0], g.now)
	c := g.cases.Open("u1")
	look := func(after time.Duration, d diagnose.Diagnosis) {
		g.now = g.now.Add(after)
		c.Judge(g.pod, &evidence.Pod{Time: g.now, UID: "u1", Deadline: start.Add(time.Hour)}, d)
		c.Weigh(&b)
		g.r.Report(t.Context(), c)
	}
	for range 5 {
		look(2*time.Second, d)
	}
	look(2*time.Second, nothing)
	look(withdrawAfter, nothing)
	if c.Outcome() != verdict.Withdrawn {
		t.Errorf("outcome %d, want that it is withdrawn", c.Outcome())
	}
	look(2*time.Second, nothing)
	if took := g.api.took(); len(took) != 0 {
		t.Errorf("requests about a verdict that is held back: %+v", took)
	}
}

// Who refuses is taken from the begin of what the API server says, and not from what others have
// it say there. The answers are those of Kubernetes 1.36.
func TestRefusalOf(t *testing.T) {
	const dead = `Internal error occurred: failed calling webhook "status.scenario.test": failed to call webhook: Post "https://10.0.2.15:9444/?timeout=5s": dial tcp 10.0.2.15:9444: connect: connection refused`
	for text, want := range map[string]*evidence.Refusal{
		`admission webhook "validate.kyverno.svc-fail" denied the request: pods with billing records are kept`: {Webhook: "validate.kyverno.svc-fail", Code: "403"},
		`admission webhook "a.b.c" denied the request without explanation`:                                     {Webhook: "a.b.c", Code: "403"},
		`admission webhook "a.b.c" denied the request`:                                                         {Webhook: "a.b.c", Code: "403"},
		dead: {Webhook: "status.scenario.test", Uncalled: true, Code: "403"},
		`pods "web-0" is forbidden: ValidatingAdmissionPolicy 'billing' with binding 'all' denied request: pods with billing records are kept`: {Policy: "billing", Binding: "all", Code: "403"},
		`pods "web-0" is forbidden: ValidatingAdmissionPolicy 'nodeagent-own-node' with binding 'nodeagent-own-node' denied request: no`:       nil,
		`pods "web-0" is forbidden: User "x" cannot patch resource "pods/status"`:                                                              nil,
		`admission webhook "a\nb" denied the request`:                                                                                          nil,
		`not so: admission webhook "a.b.c" denied the request: no`:                                                                             nil,
		`admission webhook "a.b.c" denied the requests of others`:                                                                              nil,
		"": nil,
	} {
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Message: text}}
		if diff := cmp.Diff(want, refusalOf(fmt.Errorf("patch: %w", err))); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
	if got := refusalOf(errors.New(dead)); got != nil {
		t.Errorf("an error that is none of the API server: %+v", got)
	}
}

// No server is there, one closes the connection, one takes its time, and one answers.
func TestUnreachable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	closes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer closes.Close()
	over := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hangs.Close()
	defer close(over)
	ask := func(url string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = http.DefaultClient.Do(r)
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens": {ask(gone.URL), true},
		"it closes":      {ask(closes.URL), true},
		"it hangs":       {ask(hangs.URL), false},
		"a webhook's connection is reset": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError,
			Message: `failed calling webhook "a.b.c": read tcp 10.0.2.15:9444: connection reset by peer`}}, false},
		"there is none": {nil, false},
	} {
		if got := unreachable(fmt.Errorf("patch: %w", tc.err)); got != tc.want {
			t.Errorf("%s (%v): %v", name, tc.err, got)
		}
	}
}

// The refusal of the last write is known until one succeeds.
func TestRefusalIsKept(t *testing.T) {
	g := newRig(t)
	g.api.answer = func(q request) *metav1.Status {
		if q.Method != http.MethodPatch {
			return nil
		}
		return &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: `admission webhook "a.b.c" denied the request: no`}
	}
	g.look(0, blocked("ShimHung"))
	c := g.cases.Open(g.pod.UID)
	if got := c.Refusal(); got == nil || got.Webhook != "a.b.c" || !got.At.Equal(g.now) {
		t.Errorf("%+v", got)
	}
	eventOf(t, g.one("the Event gets through", g.look(seconds, blocked("ShimHung"))), "shop")
	if c.Refusal() == nil {
		t.Error("forgotten while nothing was written")
	}
	g.api.answer = nil
	g.one("the condition", g.look(time.Minute, blocked("ShimHung")))
	if got := c.Refusal(); got != nil {
		t.Errorf("written, and %+v", got)
	}
}

// Of a pod inside its grace period the condition says once, as False, what runs. There is no Event and no series.
func TestInGracePeriodIsWrittenOnce(t *testing.T) {
	g := newRig(t)
	budget := &verdict.Budget{PerMinute: 20}
	look := func(since time.Duration) []request {
		g.now = start.Add(since)
		c := g.cases.Open(g.pod.UID)
		c.Judge(g.pod, draining(g.now), nothing)
		c.Wait(budget, time.Minute)
		g.r.Report(t.Context(), c)
		return g.api.took()
	}
	g.quiet("before a minute", look(50*seconds))
	_, c := conditionOf(t, g.one("after a minute", look(62*seconds)))
	if c.Status != corev1.ConditionFalse || c.Reason != diagnose.InGracePeriod ||
		!strings.HasPrefix(c.Message, "Not stuck: container main is inside its grace period of 1h0m0s. ") {
		t.Errorf("condition %+v", c)
	}
	g.cached(c)
	g.quiet("later", look(10*time.Minute))
	g.restart()
	g.quiet("after a restart", look(20*time.Minute))
	if got := len(g.cases.Standing()); got != 0 {
		t.Errorf("%d verdicts stand", got)
	}
}

// draining is the pod inside a grace period of an hour, as read at the time now.
func draining(now time.Time) *evidence.Pod {
	return &evidence.Pod{
		Time: now, UID: "u1", DeletionRequested: start, Deadline: start.Add(time.Hour), GracePeriodSeconds: 3600, StopBegun: true,
		Containers: []evidence.Container{{
			Name: "main", Kind: evidence.App, ID: "c", State: evidence.StateRunning, StopSignal: evidence.SIGTERM, Task: evidence.ShimTask{PID: 100},
		}},
		Tasks: []evidence.Task{{PID: 100, TID: 100, NSpid: []int{100, 1}, Comm: "app", State: evidence.Sleeping, Container: "c"}},
	}
}
