package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// What two readings have proved needs no second look.
func TestProvedCauseIsToldAtOnce(t *testing.T) {
	g := newRig(t)
	d := blocked("ShimHung")
	d.Findings[0].Confidence = diagnose.Proved
	got := g.look(0, d)
	if len(got) != 2 {
		t.Fatalf("%d requests at the first look, want the condition and the Event: %+v", len(got), got)
	}
	conditionOf(t, got[0])
	eventOf(t, got[1], "shop")
	g.quiet("second look", g.look(3*seconds, d))
}

// What holds up the whole node is told on the Node too: once for all of its pods, and again when the API server has forgotten that.
func TestWholeNodeIsToldOnTheNode(t *testing.T) {
	g := newRig(t)
	d := blocked("KubeletDown")
	d.Findings[0].Confidence, d.Findings[0].WholeNode = diagnose.Proved, true
	got := g.look(0, d)
	if len(got) != 3 {
		t.Fatalf("%d requests at the first look, want the condition and two Events: %+v", len(got), got)
	}
	ev := eventOf(t, got[2], "default")
	if ev.Regarding.Kind != "Node" || ev.Regarding.Name != "node-a" || ev.Reason != "KubeletDown" || !strings.HasPrefix(ev.Note, "WHOLE NODE") ||
		!strings.Contains(ev.Note, "First seen with pod shop/web-0.") || len(ev.Note) > mostNote {
		t.Errorf("on the node: %+v", ev)
	}
	e := telling{cause: "KubeletDown", kind: corev1.EventTypeWarning, ofNode: ev.Note}
	for _, step := range []struct {
		after         time.Duration
		cause, family string
		want          int
	}{
		{time.Minute, "KubeletDown", "", 0}, {time.Minute, "ContainerdDown", "", 1}, {2 * time.Minute, "ContainerdDown", "", 0},
		{2 * time.Minute, "KubeletDown", "Restarts", 1}, {time.Hour, "KubeletDown", "", 1},
	} {
		e.cause, e.family = step.cause, step.family
		g.r.tellNode(t.Context(), g.now.Add(step.after), e)
		if got := g.api.took(); len(got) != step.want {
			t.Errorf("%s after %s: %+v", step.cause, step.after, got)
		}
	}
}

func TestEventIsToldOnce(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	got := eventOf(t, g.one("second look", g.look(3*seconds, blocked("ShimHung"))), "shop")
	want := eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      eventName(g.pod, "ShimHung"),
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodeagent"},
		},
		EventTime:           metav1.NewMicroTime(g.now),
		Type:                "Warning",
		Reason:              "ShimHung",
		Action:              "Terminating",
		Note:                textOnPod,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "u1"},
		ReportingController: "nodeagent.io/nodeagent",
		ReportingInstance:   "node-a",
	}
	got.TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Event differs (-want +got):\n%s", diff)
	}
	for range 5 {
		g.quiet("told", g.look(3*seconds, blocked("ShimHung")))
	}
}

// A cause that one look finds and the next does not gets no Event, which could
// not be taken back.
func TestEventWaitsForTheSecondLook(t *testing.T) {
	g := newRig(t)
	conditionOf(t, g.one("A", g.look(0, blocked("ShimHung"))))
	conditionOf(t, g.one("B", g.look(3*seconds, blocked("ContainerdHung"))))
	conditionOf(t, g.one("A again", g.look(3*seconds, blocked("ShimHung"))))
}

func TestEventIsConfirmed(t *testing.T) {
	g := newRig(t)
	_, c := conditionOf(t, g.one("first look", g.look(0, blocked("ShimHung"))))
	g.cached(c)
	ev := eventOf(t, g.one("second look", g.look(3*seconds, blocked("ShimHung"))), "shop")
	for n := 2; n < 5; n++ {
		g.quiet("confirmed lately", g.look(confirmAfter-seconds, blocked("ShimHung")))
		req := g.one("confirm", g.look(seconds, blocked("ShimHung")))
		want := request{
			http.MethodPatch, "/apis/events.k8s.io/v1/namespaces/shop/events/" + ev.Name, "application/strategic-merge-patch+json",
			fmt.Sprintf(`{"series":{"count":%d,"lastObservedTime":%q}}`, n, g.now.Format("2006-01-02T15:04:05.000000Z07:00")), "",
		}
		if diff := cmp.Diff(want, req); diff != "" {
			t.Errorf("confirmation differs (-want +got):\n%s", diff)
		}
	}
	g.api.answer = notFound
	g.one("expired", g.look(confirmAfter, blocked("ShimHung")))
	g.api.answer = nil
	eventOf(t, g.one("told anew", g.look(3*seconds, blocked("ShimHung"))), "shop")
}

// The admission policies refuse a write of any other field manager.
func TestWritesHaveTheFieldManager(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.look(3*seconds, blocked("ShimHung"))
	g.look(confirmAfter, blocked("ShimHung"))
	if diff := cmp.Diff([]string{"nodeagent", "nodeagent", "nodeagent", "nodeagent"}, g.api.managers); diff != "" {
		t.Errorf("field managers of the writes differ (-want +got):\n%s", diff)
	}
}

// An Event of an agent before this one is gone on with where that one stopped.
func TestEventIsAdopted(t *testing.T) {
	g := newRig(t)
	name := eventName(g.pod, "ShimHung")
	g.api.answer = eventExists
	g.api.objects["/apis/events.k8s.io/v1/namespaces/shop/events/"+name] = eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Reason:     "ShimHung", Note: "the words of an earlier version", Regarding: reference(g.pod),
		ReportingController: "nodeagent.io/nodeagent", ReportingInstance: "node-a",
		EventTime: metav1.NewMicroTime(start.Add(-time.Hour)),
		Series:    &eventsv1.EventSeries{Count: 6, LastObservedTime: metav1.NewMicroTime(start.Add(-confirmAfter))},
	}
	_, c := conditionOf(t, g.one("first look", g.look(0, blocked("ShimHung"))))
	g.cached(c)
	g.look(3*seconds, blocked("ShimHung"))
	req := g.one("confirm", g.look(3*seconds, blocked("ShimHung")))
	if req.Method != http.MethodPatch || !strings.Contains(req.Body, `"count":7`) {
		t.Errorf("confirmation: %+v", req)
	}
}

// takenBy puts somebody else's Event under a name that the agent's would have.
func (g *rig) takenBy(name string, e eventsv1.Event) {
	e.Namespace, e.Name, e.EventTime = "shop", name, metav1.NewMicroTime(g.now)
	g.api.objects["/apis/events.k8s.io/v1/namespaces/shop/events/"+name] = e
	g.api.answer = func(r request) *metav1.Status {
		var e eventsv1.Event
		if r.Method != http.MethodPost || json.Unmarshal([]byte(r.Body), &e) != nil {
			return nil
		}
		if _, taken := g.api.objects[r.Path+"/"+e.Name]; taken {
			return status(apierrors.NewAlreadyExists(events, e.Name))
		}
		return nil
	}
}

// Whoever may create Events in the pod's namespace can take the name of the
// agent's first. The agent tells its own words under another name, confirms that
// Event, and finds it again after a restart.
func TestForeignEventIsNotAdopted(t *testing.T) {
	ours := eventsv1.Event{
		Reason: "ShimHung", Note: "Delete the node.", Regarding: corev1.ObjectReference{UID: "u1"},
		ReportingController: "nodeagent.io/nodeagent", ReportingInstance: "node-a",
	}
	for name, change := range map[string]func(*eventsv1.Event){
		"of another controller":   func(e *eventsv1.Event) { e.ReportingController = "example.com/x" },
		"of another node's agent": func(e *eventsv1.Event) { e.ReportingInstance = "node-b" },
		"about another pod":       func(e *eventsv1.Event) { e.Regarding.UID = "u2" },
		"about another cause":     func(e *eventsv1.Event) { e.Reason = "Evicted" },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			foreign := ours
			change(&foreign)
			names := eventNames(g.pod, "ShimHung", "node-a")
			g.takenBy(names[0], foreign)
			_, c := conditionOf(t, g.one("first look", g.look(0, blocked("ShimHung"))))
			g.cached(c)

			got := g.look(3*seconds, blocked("ShimHung"))
			if len(got) != 3 {
				t.Fatalf("%d requests, want the name that is taken, who has it, and the next name: %+v", len(got), got)
			}
			own := eventOf(t, got[2], "shop")
			if own.Name != names[1] || own.Note != textOnPod || own.Reason != "ShimHung" {
				t.Errorf("Event %s: %s: %s", own.Name, own.Reason, own.Note)
			}
			confirmed := "/apis/events.k8s.io/v1/namespaces/shop/events/" + names[1]
			if req := g.one("confirm", g.look(confirmAfter, blocked("ShimHung"))); req.Method != http.MethodPatch || req.Path != confirmed {
				t.Errorf("confirmation: %+v", req)
			}

			own.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(g.now)}
			g.api.objects[confirmed] = own
			g.restart()
			g.look(3*seconds, blocked("ShimHung"))
			for _, req := range g.look(3*seconds, blocked("ShimHung")) {
				if req.Method == http.MethodPost && strings.Contains(req.Body, names[2]) {
					t.Errorf("told again: %+v", req)
				}
			}
			req := g.one("confirm after a restart", g.look(confirmAfter, blocked("ShimHung")))
			if req.Method != http.MethodPatch || req.Path != confirmed || !strings.Contains(req.Body, `"count":3`) {
				t.Errorf("confirmation after a restart: %+v", req)
			}
		})
	}
}

// Where all names are taken, the agent counts that it could not tell, and backs off.
func TestAllEventNamesTaken(t *testing.T) {
	g := newRig(t)
	names := eventNames(g.pod, "ShimHung", "node-a")
	for _, name := range names {
		g.takenBy(name, eventsv1.Event{Reason: "ShimHung"})
	}
	g.look(0, blocked("ShimHung"))
	if got := g.look(3*seconds, blocked("ShimHung")); len(got) != 2*len(names) {
		t.Errorf("%d requests for %d names: %+v", len(got), len(names), got)
	}
	if n := testutil.ToFloat64(g.metrics.writes.WithLabelValues(kindEvent, resultRefused)); n != 1 {
		t.Errorf("%v refused Events counted, want 1", n)
	}
	g.quiet("backs off", g.look(seconds, blocked("ShimHung")))
}

func TestEventInATerminatingNamespace(t *testing.T) {
	refused := apierrors.NewForbidden(events, "x", fmt.Errorf("unable to create new content in namespace shop because it is being terminated"))
	bare := refused.ErrStatus.DeepCopy()
	caused := refused.ErrStatus.DeepCopy()
	caused.Message = "forbidden"
	caused.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, s := range map[string]*metav1.Status{"by its words": bare, "by its cause": caused} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.api.answer = func(r request) *metav1.Status {
				if r.Method == http.MethodPost && strings.Contains(r.Path, "/shop/") {
					return s
				}
				return nil
			}
			_, c := conditionOf(t, g.one("first look", g.look(0, blocked("ShimHung"))))
			g.cached(c)
			got := g.look(3*seconds, blocked("ShimHung"))
			if len(got) != 2 {
				t.Fatalf("second look: %+v", got)
			}
			ev := eventOf(t, got[1], "default")
			if as := reference(verdict.Subject{Kind: verdict.Pod, Name: "etcd", UID: "u1", EventUID: "hash"}); as.UID != "hash" {
				t.Errorf("the Event of a mirror pod is about UID %q", as.UID)
			}
			if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-a"}); ev.Regarding != want {
				t.Errorf("regarding %+v", ev.Regarding)
			}
			if ev.Note != textOnNode {
				t.Errorf("note %q", ev.Note)
			}
			g.quiet("told", g.look(3*seconds, blocked("ShimHung")))
			req := g.one("confirm", g.look(confirmAfter, blocked("ShimHung")))
			if req.Path != "/apis/events.k8s.io/v1/namespaces/default/events/"+ev.Name {
				t.Errorf("confirmed %s", req.Path)
			}
		})
	}
}

// Forbidden for another reason is no reason to tell the node.
func TestEventForbidden(t *testing.T) {
	g := newRig(t)
	g.look(0, blocked("ShimHung"))
	g.api.answer = func(request) *metav1.Status {
		return status(apierrors.NewForbidden(events, "x", fmt.Errorf("no RBAC policy matched")))
	}
	eventOf(t, g.one("refused", g.look(3*seconds, blocked("ShimHung"))), "shop")
	g.quiet("backs off", g.look(seconds, blocked("ShimHung")))
}

func TestEventNames(t *testing.T) {
	long := strings.Repeat("a", 236) + "." + strings.Repeat("b", 16)
	seen := map[string]bool{}
	for _, p := range []verdict.Subject{
		{Name: "web-0", UID: "u1"},
		{Name: "web-0", UID: "u2"},
		{Name: long, UID: "u3"},
		{Name: strings.Repeat("a", 235) + "-" + strings.Repeat("b", 16), UID: "u4"},
	} {
		for _, cause := range []string{"ShimHung", "Unknown"} {
			names := eventNames(p, cause, "node-a")
			for _, n := range names {
				if seen[n] {
					t.Errorf("%s is not unique", n)
				}
				seen[n] = true
				if errs := validation.IsDNS1123Subdomain(n); len(errs) > 0 {
					t.Errorf("%s: %v", n, errs)
				}
			}
			if diff := cmp.Diff(names, eventNames(p, cause, "node-a")); diff != "" {
				t.Errorf("the names change:\n%s", diff)
			}
		}
	}
}

func TestLimitsOfTheNewEventsAPI(t *testing.T) {
	g := newRig(t)
	g.r.node = strings.Repeat("n", 200)
	f := diagnose.Finding{Message: strings.Repeat("é", 600)}
	ev := g.r.event(g.r.self(), g.now, corev1.EventTypeWarning, strings.Repeat("C", 200), about{subject: g.pod,
		conditioned: true}.compose(&diagnose.Diagnosis{}, &f).onNode)
	if len(ev.ReportingInstance) > 128 || len(ev.Reason) > 128 || len(ev.Note) > mostNote {
		t.Errorf("%d %d %d", len(ev.ReportingInstance), len(ev.Reason), len(ev.Note))
	}
	if b, _ := json.Marshal(ev); strings.Contains(string(b), `\ufffd`) {
		t.Error("the note is cut inside a rune")
	}
}

// Where the condition is refused, the Event has what stands in it, also where one of before says that the pod is not stuck.
func TestEventWithoutACondition(t *testing.T) {
	for name, before := range map[string]*verdict.Condition{"none": nil, "an earlier one": {Reason: verdict.Resolved, Message: resolvedMessage}} {
		g := newRig(t)
		g.pod.Condition = before
		g.api.answer = func(r request) *metav1.Status {
			if r.Method == http.MethodPatch {
				return status(apierrors.NewForbidden(pods, "web-0", errors.New("no")))
			}
			return nil
		}
		g.look(0, blocked("ShimHung"))
		got := g.look(3*seconds, blocked("ShimHung"))
		if len(got) == 0 {
			t.Fatalf("%s: no Event", name)
		}
		ev := eventOf(t, got[len(got)-1], "shop")
		if !strings.Contains(ev.Note, " Fix: Repair it. Avoid: Do not force-delete.") || !strings.HasSuffix(ev.Note, "More: "+pageOf("ShimHung")) {
			t.Errorf("%s: %s", name, ev.Note)
		}
	}
}

// A pod that was killed at its deadline is told of in an Event although it has
// gone, unless it was told of before.
func TestGonePodIsToldOf(t *testing.T) {
	g := newRig(t)
	d := blocked("SlowShutdown")
	d.Gone = true
	g.judged(nothing)
	var reported bool
	gone := func() []request {
		reported = g.r.ReportGone(t.Context(), g.cases.Open("u1"), g.now, d)
		return g.api.took()
	}
	ev := eventOf(t, g.one("gone", gone()), "shop")
	if ev.Reason != "SlowShutdown" || !strings.HasPrefix(ev.Note, "Was probably stuck: thread 812 (dd) is stuck. Fix: Repair it. Avoid: Do not force-delete.") {
		t.Errorf("Event %s: %s", ev.Reason, ev.Note)
	}
	if !reported {
		t.Error("the Event counts as not written")
	}
	if g.r.ReportGone(t.Context(), g.cases.Open("u1"), g.now, nothing) {
		t.Error("an Event about nothing counts as written")
	}
	g.quiet("nothing found", g.api.took())

	g.look(0, blocked("SlowShutdown"))
	g.look(3*seconds, blocked("SlowShutdown"))
	if g.quiet("told while it was there", gone()); reported {
		t.Error("an Event about another cause counts as written")
	}
	g.forget()
	g.judged(nothing)
	g.api.answer = broken
	if gone(); reported {
		t.Error("an Event that was refused counts as written")
	}
	g.api.answer = nil
	g.one("forgotten", gone())
	if n := testutil.ToFloat64(g.metrics.told.WithLabelValues("SlowShutdown")); n != 3 {
		t.Errorf("%v Events counted, want 3", n)
	}
}

// A verdict counts as reported when the condition or an Event was written.
func TestReported(t *testing.T) {
	refuses := func(method string) func(request) *metav1.Status {
		return func(r request) *metav1.Status {
			if r.Method == method {
				return broken(r)
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		answer func(request) *metav1.Status
		want   bool
	}{
		"both are written":    {nil, true},
		"the Event is":        {refuses(http.MethodPatch), true},
		"the condition is":    {refuses(http.MethodPost), true},
		"neither is, refused": {broken, false},
	} {
		g := newRig(t)
		g.api.answer = tc.answer
		g.look(0, blocked("ShimHung"))
		g.look(3*seconds, blocked("ShimHung"))
		if s := g.cases.Open("u1").Standing(); s.Reported != tc.want || s.Cause != "ShimHung" {
			t.Errorf("%s: %+v, want reported %t", name, s, tc.want)
		}
	}
}

// What a deleted pod has left is told on the node, once, in words that no pod has
// written.
func TestRemainsAreToldOnTheNode(t *testing.T) {
	g := newRig(t)
	s := verdict.Subject{Kind: verdict.Pod, Namespace: "shop", Name: "web-0", UID: "u1"}
	const left = "a process still runs: \"x\\n\" of container main"
	for name, tc := range map[string]struct {
		tell      func()
		reason    string
		saying    string
		eventName string
	}{
		"deleted": {func() { g.r.ReportRemains(t.Context(), s, g.now, "ShimHung", left) }, "DeletedPodRemains", "Pod shop/web-0 (UID u1) " +
			"is deleted but not gone from this node: " + left + ". The verdict was ShimHung. First: ", "web-0."},
		"orphan": {func() { g.r.ReportOrphan(t.Context(), s, g.now, left) }, "OrphanedPod", "Pod shop/web-0 (UID u1) is on this node " +
			"but not in the API: " + left + ". First: ", "web-0."},
		"unknown": {func() { g.r.ReportOrphan(t.Context(), verdict.Subject{UID: "u2"}, g.now, left) }, "OrphanedPod", "The pod with UID " +
			"u2 is on this node", "orphan."},
		"long": {func() { g.r.ReportOrphan(t.Context(), s, g.now, strings.Repeat("é", 1000)) }, "OrphanedPod", "Pod shop/web-0", "web-0."},
	} {
		g.api.took()
		tc.tell()
		ev := eventOf(t, g.one(name, g.api.took()), "default")
		if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "node-a"}); ev.Regarding != want {
			t.Errorf("%s: regarding %+v", name, ev.Regarding)
		}
		if ev.Reason != tc.reason || !strings.HasPrefix(ev.Note, tc.saying) || len(ev.Note) > mostNote || !strings.HasPrefix(ev.Name, tc.eventName) {
			t.Errorf("%s: Event %s, %s: %s", name, ev.Name, ev.Reason, ev.Note)
		}
	}
}
