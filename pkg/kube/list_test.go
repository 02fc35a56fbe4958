package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// serve answers lists of pods with what write writes.
func serve(t *testing.T, write func(w io.Writer, r *http.Request)) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/pods" || q.Get("fieldSelector") != "spec.nodeName=n" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		write(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A list is whole, or an error: what is not in the part that came may be in the rest.
func TestEachPod(t *testing.T) {
	const begin, one = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`, `{"metadata":{"uid":"a","finalizers":["x/y"]},"spec":{"nodeName":"n"},"status":{"startTime":"2026-03-01T12:00:00Z"}}`
	large := `{"metadata":{"uid":"b"},"spec":{"x":"` + strings.Repeat("x", maxObject) + `"}}`
	for what, tc := range map[string]struct {
		answer string
		status int
		want   string
		fails  string
	}{
		"none":                   {answer: begin + "]}"},
		"no items":               {answer: `{"items":null,"metadata":{}}`, fails: "belongs"},
		"one":                    {answer: begin + one + "]}", want: "a"},
		"several":                {answer: begin + one + "," + one + "\n]}\n", want: "aa"},
		"what is not known":      {answer: `{"extra":{"items":[1]},` + begin[1:] + one + `],"more":7}`, want: "a"},
		"broken off in a pod":    {answer: begin + one + "," + one[:20], want: "a", fails: "unexpected EOF"},
		"broken off behind one":  {answer: begin + one, want: "a", fails: "unexpected end"},
		"broken off at the end":  {answer: begin + one + "]", want: "a", fails: "unexpected end"},
		"broken off immediately": {fails: "EOF"},
		"a part":                 {answer: `{"metadata":{"continue":"more"},"items":[` + one + "]}", fails: "only a part"},
		"no list":                {answer: `[]`, fails: "belongs"},
		"a large one":            {answer: begin + one + "," + large + "," + one + "]}", want: "a", fails: "more than 4194304 bytes"},
		"no JSON":                {answer: "<html>", fails: "invalid character"},
		"refused":                {answer: `{"kind":"Status","message":"no","reason":"Forbidden","code":403}`, status: http.StatusForbidden, fails: "no"},
	} {
		c := serve(t, func(w io.Writer, r *http.Request) {
			if q := r.URL.Query(); q.Has("resourceVersion") || q.Has("limit") { // a cache may be behind
				t.Errorf("asked for %s", r.URL)
			}
			if tc.status != 0 {
				w.(http.ResponseWriter).WriteHeader(tc.status)
			}
			_, _ = io.WriteString(w, tc.answer)
		})
		got := ""
		err := c.EachPod(t.Context(), "n", func(p *corev1.Pod) { got += string(p.UID) })
		if got != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// Where the API server streams no first list, it comes in one piece, is read pod by pod, and
// what trim leaves is what is kept; then it is watched.
func TestWatchWithoutStreamingLists(t *testing.T) {
	const pods = 40
	large := strings.Repeat("x", 100<<10)
	var streamed, watched atomic.Int32
	c := serve(t, func(w io.Writer, r *http.Request) {
		q := r.URL.Query()
		switch {
		case q.Get("sendInitialEvents") != "":
			streamed.Add(1)
			w.(http.ResponseWriter).WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid","code":422}`)
		case q.Get("watch") != "":
			if q.Get("resourceVersion") != "5" {
				t.Errorf("watched: %s", r.URL)
			}
			watched.Add(1)
			<-r.Context().Done()
		default:
			if q.Get("resourceVersion") != "0" {
				t.Errorf("listed past the API server's cache: %s", r.URL)
			}
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
			for i := range pods {
				if i > 0 {
					_, _ = io.WriteString(w, ",")
				}
				_, _ = fmt.Fprintf(w, `{"metadata":{"name":"p%d","uid":"u%d","resourceVersion":"5"},"spec":{"containers":[{"env":[{"name":"L","value":"%s"}]}]}}`, i, i, large)
			}
			_, _ = io.WriteString(w, "]}")
		}
	})
	// Each is trimmed once.
	var whole, trimmed atomic.Int32
	w := c.WatchPods("n", func(obj any) (any, error) {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		if len(p.Spec.Containers) > 0 {
			whole.Add(1)
		} else {
			trimmed.Add(1)
		}
		return &corev1.Pod{ObjectMeta: p.ObjectMeta}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.Run(ctx)
	eventually(t, "the watch", func() bool { return w.Synced() && watched.Load() > 0 })
	for _, p := range w.All() {
		if p.Kind != "" {
			t.Errorf("the kind of a pod is %q", p.Kind)
		}
	}
	if n := len(w.All()); n != pods || whole.Load() != pods || trimmed.Load() != 0 || streamed.Load() == 0 {
		t.Errorf("%d pods are known; %d came whole and %d trimmed; a stream was asked for %d times", n, whole.Load(), trimmed.Load(), streamed.Load())
	}
}
