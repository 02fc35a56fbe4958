package kube

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Only an API server that does not know the node ends the program.
func TestCheckNode(t *testing.T) {
	var answer, asked atomic.Int32
	var again func() // called when the node is asked for the second time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 2 {
			again()
		}
		if r.URL.Path != "/api/v1/nodes/n" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(answer.Load()))
		if answer.Load() == http.StatusOK {
			_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`))
			return
		}
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	check := func(status int) error {
		answer.Store(int32(status))
		asked.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		again = cancel
		return c.CheckNode(ctx, "n", slog.New(slog.DiscardHandler))
	}
	if err := check(http.StatusOK); err != nil || asked.Load() != 1 {
		t.Errorf("a node that is there: %v, asked %d times", err, asked.Load())
	}
	if err := check(http.StatusNotFound); err == nil || !strings.Contains(err.Error(), `"n"`) {
		t.Errorf("a node that is not there: %v", err)
	}
	begin := time.Now()
	if err := check(http.StatusForbidden); err != nil || asked.Load() != 2 || time.Since(begin) < time.Second {
		t.Errorf("a request that is refused: %v, asked %d times in %s, want again after a second", err, asked.Load(), time.Since(begin))
	}
}

func TestNodeReady(t *testing.T) {
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/n" || r.URL.RawQuery != "" { // a cache may be behind
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	answer = `{"kind":"Node","status":{"conditions":[{"type":"DiskPressure","status":"True"},
		{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":"2026-03-01T12:00:00Z"}],"images":[{"names":["x"]}]}}`
	got, err := c.NodeReady(t.Context(), "n")
	if err != nil || got == nil || got.Status != "Unknown" || got.Reason != "NodeStatusUnknown" || got.LastTransitionTime.Unix() != 1772366400 {
		t.Errorf("%+v, %v", got, err)
	}
	answer = `{"kind":"Node"}`
	if got, err := c.NodeReady(t.Context(), "n"); got != nil || err != nil {
		t.Errorf("without conditions: %+v, %v", got, err)
	}
	answer = `{"kind":"Node","metadata":{"annotations":{"a":"` + strings.Repeat("x", maxNode) + `"}}}`
	if got, err := c.NodeReady(t.Context(), "n"); got != nil || err == nil {
		t.Errorf("a large one: %+v, %v", got, err)
	}
}

// Only the kubelet's Events about one pod are asked for, and not many.
func TestKillFailures(t *testing.T) {
	annotation := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/apis/events.k8s.io/v1/namespaces/ns/events" || q.Get("limit") == "" || q.Has("watch") ||
			q.Get("fieldSelector") != "reason=FailedKillPod,regarding.uid=u,reportingController=kubelet" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"EventList","apiVersion":"events.k8s.io/v1","metadata":{},"items":[{"metadata":{"annotations":{"a":"` + annotation + `"}},"note":"error killing pod","deprecatedCount":2}]}`))
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.KillFailures(t.Context(), "ns", "u")
	if err != nil || len(events) != 1 || events[0].Note != "error killing pod" || events[0].DeprecatedCount != 2 {
		t.Errorf("%+v, %v", events, err)
	}
	// Somebody else's Event that would cost the agent its memory is not read.
	annotation = strings.Repeat("x", maxFailuresBytes)
	if events, err := c.KillFailures(t.Context(), "ns", "u"); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("%d Events, %v", len(events), err)
	}
	server.Config.Handler = http.NotFoundHandler()
	if events, err := c.KillFailures(t.Context(), "ns", "u"); err == nil {
		t.Errorf("%d Events", len(events))
	}
}

// All Events of a pod are known, or it is an error: the one that is missing may be the end of what
// another one begins.
func TestKubeletEvents(t *testing.T) {
	next := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/apis/events.k8s.io/v1/namespaces/ns/events" || q.Get("limit") == "" || q.Has("watch") ||
			q.Get("fieldSelector") != "regarding.uid=u,reportingController=kubelet" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"EventList","apiVersion":"events.k8s.io/v1","metadata":{"continue":"` + next + `"},"items":[{"metadata":{},"reason":"Pulling"}]}`))
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if events, err := c.KubeletEvents(t.Context(), "ns", "u"); err != nil || len(events) != 1 || events[0].Reason != "Pulling" {
		t.Errorf("%+v, %v", events, err)
	}
	next = "more"
	if events, err := c.KubeletEvents(t.Context(), "ns", "u"); err == nil {
		t.Errorf("%d Events of more", len(events))
	}
}

// One pod of another node is asked for, and of it the metadata.
func TestPodElsewhere(t *testing.T) {
	items := `{"metadata":{"name":"p"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/namespaces/ns/pods" || q.Get("limit") != "1" || q.Get("fieldSelector") != "spec.nodeName!=,spec.nodeName!=n" ||
			!strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			t.Errorf("asked for %s as %s", r.URL, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[` + items + `]}`))
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if name, err := c.PodElsewhere(t.Context(), "ns", "n"); name != "p" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	items = `{"metadata":{"name":"p","annotations":{"a":"` + strings.Repeat("x", maxMetadata) + `"}}}`
	if name, err := c.PodElsewhere(t.Context(), "ns", "n"); name != "" || err == nil {
		t.Errorf("a large one: %q, %v", name, err)
	}
	items = ""
	if name, err := c.PodElsewhere(t.Context(), "ns", "n"); name != "" || err != nil {
		t.Errorf("none: %q, %v", name, err)
	}
}

// Of a pod the metadata is asked for, and not much of that.
func TestPodMetadata(t *testing.T) {
	manager := "kueue"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/ns/pods/p" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("asked for %s as %s", r.URL, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"uid":"u","managedFields":[{"manager":"` + manager + `"}]}}`))
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.PodMetadata(t.Context(), "ns", "p"); err != nil || m.UID != "u" || len(m.ManagedFields) != 1 || m.ManagedFields[0].Manager != "kueue" {
		t.Errorf("%+v, %v", m, err)
	}
	manager = strings.Repeat("x", maxMetadata)
	if _, err := c.PodMetadata(t.Context(), "ns", "p"); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a large one: %v", err)
	}
	server.Config.Handler = http.NotFoundHandler()
	if _, err := c.PodMetadata(t.Context(), "ns", "p"); err == nil {
		t.Error("no error where there is no pod")
	}
}
