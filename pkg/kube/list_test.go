package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// serve answers lists of pods with what write writes.
func serve(t *testing.T, write func(w io.Writer, r *http.Request)) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path != "/api/v1/pods" || q.Get("fieldSelector") != "spec.nodeName=n" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		write(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encoded is a list as the API server sends it.
func encoded(t *testing.T, list *corev1.PodList) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list.APIVersion, list.Kind = "v1", "PodList"
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func withUID(uid string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Finalizers: []string{"x/y"}}}
	p.Spec.NodeName, p.Status.StartTime = "n", &metav1.Time{Time: time.Unix(1000, 0)}
	return p
}

// A list is whole, or an error: what is not in the part that came may be in the rest.
func TestEachPod(t *testing.T) {
	list := func(pods ...corev1.Pod) []byte {
		return encoded(t, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: pods})
	}
	one := withUID("a")
	large := withUID("b")
	large.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Value: strings.Repeat("x", maxObject)}}}}
	// In JSON each of these characters has six, and such a time cannot be read.
	odd := withUID("c")
	odd.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Value: strings.Repeat("<", 1<<20)}}}}
	odd.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC)}}}
	type answers struct {
		answer []byte
		status int
		want   string
		fails  string
	}
	all := map[string]answers{
		"none":    {answer: list()},
		"one":     {answer: list(one), want: "a"},
		"several": {answer: list(one, one, odd, one), want: "aaca"},
		"a part": {answer: encoded(t, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{one}}),
			want: "a", fails: "only a part"},
		"a large one":           {answer: list(one, large, one), want: "a", fails: "no more than 4194304"},
		"JSON":                  {answer: []byte(`{"kind":"PodList","items":[]}`), fails: "another encoding"},
		"a size that cannot be": {answer: []byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), fails: "bytes in a list"},
		"refused":               {answer: []byte(`{"kind":"Status","status":"Failure","message":"no","reason":"Forbidden","code":403}`), status: http.StatusForbidden, fails: "no"},
	}
	two := list(one, withUID("b"))
	for n := range len(two) - 4 { // behind the list are two fields of the wrapper, which are empty
		all[fmt.Sprintf("cut off after %d bytes", n)] = answers{answer: two[:n], want: "any", fails: "cut off"}
	}
	for what, tc := range all {
		c := serve(t, func(w io.Writer, r *http.Request) {
			if q := r.URL.Query(); q.Has("resourceVersion") || q.Has("limit") { // a cache may be behind
				t.Errorf("asked for %s", r.URL)
			}
			if tc.status != 0 {
				w.(http.ResponseWriter).Header().Set("Content-Type", "application/json")
				w.(http.ResponseWriter).WriteHeader(tc.status)
			}
			_, _ = w.Write(tc.answer)
		})
		got := ""
		err := c.EachPod(t.Context(), "n", func(p *corev1.Pod) { got += string(p.UID) })
		if got != tc.want && tc.want != "any" || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
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
			w.(http.ResponseWriter).Header().Set("Content-Type", "application/json")
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
			list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}
			for i := range pods {
				p := withUID(fmt.Sprint("u", i))
				p.Name, p.Spec.Containers = fmt.Sprint("p", i), []corev1.Container{{Env: []corev1.EnvVar{{Name: "L", Value: large}}}}
				list.Items = append(list.Items, p)
			}
			_, _ = w.Write(encoded(t, &list))
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
