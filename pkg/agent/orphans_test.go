package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/orphan"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

const lostUID = "0b4ddc3e-1111-4222-8333-444455556666"

// A pod is an orphan when the kubelet has a directory of it and neither the watch nor a
// fresh list has known it for long. What cannot be asked accuses nobody.
func TestOrphans(t *testing.T) {
	runs := &corev1.Pod{}
	runs.Namespace, runs.Name, runs.UID = "ns", "lost", lostUID
	process := func(p *evidence.Pod) {
		p.Tasks = []evidence.Task{{PID: 7, TID: 7, Comm: "app", State: evidence.Sleeping}}
	}
	for name, tc := range map[string]struct {
		pods     []*corev1.Pod
		listed   []*corev1.Pod
		unlisted error // of the API
		unread   error // of the directories
		remains  func(p *evidence.Pod)
		told     []string
		kind     orphan.Kind
	}{
		"an orphan":   {remains: process, told: []string{"process app is still running"}, kind: orphan.Process},
		"a directory": {remains: func(*evidence.Pod) {}, kind: orphan.Directory},
		"files that the kubelet deletes": {remains: func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "cache", Plugin: "kubernetes.io~empty-dir"}}
		}, kind: orphan.Directory},
		"another volume besides": {remains: func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "cache", Plugin: "kubernetes.io~empty-dir"}, {Name: "data", Plugin: "kubernetes.io~csi"}}
		}, told: []string{"the kubelet has not torn down volume \"cache\""}, kind: orphan.Volume},
		"a volume in memory": {remains: func(p *evidence.Pod) {
			p.Volumes = []evidence.Volume{{Name: "cache", Plugin: "kubernetes.io~empty-dir"}}
			p.Mounts = []evidence.Mount{{ID: 7, Type: "tmpfs", Volume: "cache", Plugin: "kubernetes.io~empty-dir"}}
		}, told: []string{"the kubelet has not torn down volume \"cache\""}, kind: orphan.Volume},
		"what could not be read": {remains: func(p *evidence.Pod) { p.Lack(evidence.Mounts, "too long") }},
		"a pod of the API":       {pods: []*corev1.Pod{runs}, remains: process},
		"a watch that is behind": {listed: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: lostUID}}}, remains: process},
		"a tenant that claims it": {listed: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u9",
			Annotations: map[string]string{verdict.MirrorAnnotation: "", verdict.HashAnnotation: lostUID}}}},
			remains: process, told: []string{"process app is still running"}, kind: orphan.Process},
		"no answer of the API": {unlisted: errors.New("away"), remains: process},
		"no directories":       {unread: errors.New("denied"), remains: process},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench()
				b.directories, b.unlisted = []string{lostUID}, tc.unread
				if b.pods = tc.pods; b.pods == nil {
					b.pods = []*corev1.Pod{}
				}
				began := time.Now()
				b.gather = func(_ context.Context, p *evidence.Pod) {
					if since := time.Since(began); since < 5*time.Minute {
						t.Errorf("read after %s", since)
					}
					if !p.Gone || p.RuntimeUID != lostUID || p.Overdue() <= 0 {
						t.Errorf("read %+v", p)
					}
					tc.remains(p)
				}
				var told []string
				b.Orphans = &Orphans{
					Tracker: &orphan.Tracker{After: 5 * time.Minute},
					Each: func(_ context.Context, each func(*corev1.Pod)) error {
						for _, p := range tc.listed {
							each(p)
						}
						return tc.unlisted
					},
					Report: func(_ context.Context, s verdict.Subject, _ time.Time, left string) {
						if s.UID != lostUID {
							t.Errorf("told of %+v", s)
						}
						told = append(told, left)
					},
				}
				ctx, cancel := context.WithCancel(t.Context())
				go b.Run(ctx)
				time.Sleep(20 * time.Minute)
				cancel()
				synctest.Wait()
				if !slices.Equal(told, tc.told) {
					t.Errorf("told %q, want %q", told, tc.told)
				}
				for kind, n := range b.Orphans.Count() {
					if want := kind == tc.kind; n == 1 != want {
						t.Errorf("%d of kind %s", n, kind)
					}
				}
			})
		})
	}
}

// An API server that does not answer holds up neither the loop nor a second search.
func TestOrphansDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.pods, b.directories = []*corev1.Pod{}, []string{lostUID}
		asked := 0
		b.Orphans = &Orphans{
			Tracker: &orphan.Tracker{After: 5 * time.Minute},
			Each: func(ctx context.Context, _ func(*corev1.Pod)) error {
				asked++
				<-ctx.Done()
				return ctx.Err()
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		go b.Run(ctx)
		time.Sleep(5*time.Minute + 30*time.Second)
		rounds := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.periods)
		}
		before := rounds()
		time.Sleep(10 * time.Second)
		if n := rounds() - before; n < 4 {
			t.Errorf("%d rounds in ten seconds", n)
		}
		cancel()
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// The node knows a static pod by the hash of its manifest, and nobody can make another UID
// known with an annotation.
func TestKnownUIDs(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef"
	pod := func(uid string, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Annotations: annotations}}
	}
	o := &Orphans{Each: func(_ context.Context, each func(*corev1.Pod)) error {
		each(pod("a", nil))
		each(pod("static", map[string]string{verdict.MirrorAnnotation: "x", verdict.HashAnnotation: hash}))
		each(pod("tenant", map[string]string{verdict.HashAnnotation: lostUID}))
		each(pod("tenant2", map[string]string{verdict.MirrorAnnotation: "", verdict.HashAnnotation: lostUID}))
		return nil
	}}
	got, err := o.known(t.Context())
	if err != nil || len(got) != 5 || !got["a"] || !got["static"] || !got[hash] || got[lostUID] {
		t.Errorf("%v, %v", got, err)
	}
}

// A bug that shows in what is read beside the loop costs its result, and not the agent.
func TestPanicsBesideTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		b.pods, b.directories = []*corev1.Pod{running("a")}, []string{lostUID}
		asked := 0
		b.Orphans = &Orphans{Tracker: &orphan.Tracker{After: 5 * time.Minute}, Each: func(context.Context, func(*corev1.Pod)) error {
			asked++
			panic("a bug")
		}}
		reader := &panickingReader{Source: b.Reader}
		b.Reader = reader
		ctx, cancel := context.WithCancel(t.Context())
		go b.Run(ctx)
		time.Sleep(12 * time.Minute)
		cancel()
		synctest.Wait()
		if asked < 3 || reader.read < 3 {
			t.Errorf("after a panic it was asked %d times, and read %d times", asked, reader.read)
		}
	})
}

// A panickingReader panics at the running pods.
type panickingReader struct {
	node.Source
	read int
}

func (r *panickingReader) Baseline(context.Context, string) *evidence.Baseline {
	r.read++
	panic("a bug")
}
