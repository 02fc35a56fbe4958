package report

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A request is one that the API server got.
type request struct {
	Method, Path, ContentType, Body, DryRun string
}

// An api records requests and answers them. answer may be nil, or return nil
// to accept a request.
type api struct {
	mu       sync.Mutex
	requests []request
	managers []string // the field manager of each write
	answer   func(request) *metav1.Status
	objects  map[string]any // what a GET of a path finds
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	req := request{r.Method, r.URL.Path, r.Header.Get("Content-Type"), string(body), r.URL.Query().Get("dryRun")}
	a.mu.Lock()
	a.requests = append(a.requests, req)
	if r.Method != http.MethodGet {
		a.managers = append(a.managers, r.URL.Query().Get("fieldManager"))
	}
	answer := a.answer
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if answer != nil {
		if s := answer(req); s != nil {
			s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			w.WriteHeader(int(s.Code))
			_ = json.NewEncoder(w).Encode(s)
			return
		}
	}
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(a.objects[r.URL.Path])
		return
	}
	_, _ = w.Write([]byte("{}"))
}

// took gives the requests since the last call.
func (a *api) took() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.requests
	a.requests = nil
	return out
}

func status(err *apierrors.StatusError) *metav1.Status {
	s := err.Status()
	return &s
}

var (
	pods   = schema.GroupResource{Resource: "pods"}
	events = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

func notFound(request) *metav1.Status { return status(apierrors.NewNotFound(pods, "web-0")) }
func broken(request) *metav1.Status {
	return status(apierrors.NewInternalError(io.ErrUnexpectedEOF))
}
func wrongUID(request) *metav1.Status {
	return status(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-0", field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "u1", "field is immutable"),
	}))
}
func conflict(request) *metav1.Status {
	return status(apierrors.NewConflict(pods, "web-0", io.ErrUnexpectedEOF))
}
func eventExists(r request) *metav1.Status {
	if r.Method == http.MethodPost {
		return status(apierrors.NewAlreadyExists(events, "x"))
	}
	return nil
}

// The times of package verdict.
const (
	withdrawAfter = 15 * time.Second
	cacheLag      = 30 * time.Second
	confirmAfter  = 10 * time.Minute
	firstRetry    = 3 * time.Second
	lastRetry     = 5 * time.Minute
)

// A rig is a Reporter with an API server, and a pod with its Case in front of it.
type rig struct {
	t       *testing.T
	api     *api
	metrics *Metrics
	cases   *verdict.Cases
	r       *Reporter
	pod     verdict.Subject
	now     time.Time
}

var start = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func newRig(t *testing.T) *rig {
	g := &rig{t: t, api: &api{objects: map[string]any{}}, now: start, cases: new(verdict.Cases)}
	g.metrics = NewMetrics("v1", cause.Who(), func() time.Time { return g.now }, g.cases, nil)
	srv := httptest.NewServer(g.api)
	t.Cleanup(srv.Close)
	g.r = New(client(t, srv.URL), "node-a", g.metrics, slog.New(slog.DiscardHandler))
	g.pod = verdict.Subject{Kind: verdict.Pod, Namespace: "shop", Name: "web-0", UID: "u1", Generation: 4}
	return g
}

func client(t *testing.T, url string) *kube.Client {
	t.Helper()
	c, err := kube.New(&rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json",
		AcceptContentTypes: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// restart puts a new agent in the old one's place.
func (g *rig) restart() {
	g.cases = new(verdict.Cases)
	g.metrics = NewMetrics("v1", cause.Who(), func() time.Time { return g.now }, g.cases, nil)
	g.r = New(g.r.client, "node-a", g.metrics, slog.New(slog.DiscardHandler))
}

// look reports a diagnosis after some time has gone by, and gives the requests
// that came of it.
func (g *rig) look(after time.Duration, d diagnose.Diagnosis) []request {
	g.t.Helper()
	g.now = g.now.Add(after)
	g.r.Report(context.Background(), g.judged(d))
	return g.api.took()
}

// judged returns the pod's Case after a look at it.
func (g *rig) judged(d diagnose.Diagnosis) *verdict.Case {
	c := g.cases.Open(g.pod.UID)
	c.Judge(g.pod, &evidence.Pod{Time: g.now, UID: g.pod.UID, Deadline: start.Add(-time.Minute)}, d)
	return c
}

// forget closes the Case of a pod that is gone.
func (g *rig) forget() { g.cases.CloseOthers(nil) }

// cached puts a written condition onto the pod, as the cache does after a while.
func (g *rig) cached(c corev1.PodCondition) {
	g.pod.Condition = &verdict.Condition{
		Blocked: c.Status == corev1.ConditionTrue, Reason: c.Reason, Message: c.Message,
		Generation: c.ObservedGeneration, Since: c.LastTransitionTime.Time,
	}
}

func blocked(cause string) diagnose.Diagnosis {
	return diagnose.Diagnosis{Phase: diagnose.Kill, Findings: []diagnose.Finding{{
		Cause: cause, Confidence: diagnose.Inferred,
		Message: "thread 812 (dd) is stuck", Remedy: "Repair it.", Danger: "Do not force-delete.", First: "look at it", Avoid: "force delete",
	}}}
}

var nothing = diagnose.Diagnosis{Phase: diagnose.Kill}

func conditionOf(t *testing.T, r request) (types.UID, corev1.PodCondition) {
	t.Helper()
	if r.Method != http.MethodPatch || r.Path != "/api/v1/namespaces/shop/pods/web-0/status" || r.ContentType != "application/strategic-merge-patch+json" {
		t.Fatalf("not a strategic merge patch of the pod's status: %+v", r)
	}
	var p corev1.Pod
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Status.Conditions) != 1 {
		t.Fatalf("patch has %d conditions: %s", len(p.Status.Conditions), r.Body)
	}
	return p.UID, p.Status.Conditions[0]
}

func eventOf(t *testing.T, r request, namespace string) eventsv1.Event {
	t.Helper()
	if r.Method != http.MethodPost || r.Path != "/apis/events.k8s.io/v1/namespaces/"+namespace+"/events" {
		t.Fatalf("not a new Event in %s: %+v", namespace, r)
	}
	var e eventsv1.Event
	if err := json.Unmarshal([]byte(r.Body), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func (g *rig) quiet(what string, got []request) {
	g.t.Helper()
	if len(got) != 0 {
		g.t.Fatalf("%s: wrote %+v", what, got)
	}
}

func (g *rig) one(what string, got []request) request {
	g.t.Helper()
	if len(got) != 1 {
		g.t.Fatalf("%s: %d requests, not 1: %+v", what, len(got), got)
	}
	return got[0]
}
