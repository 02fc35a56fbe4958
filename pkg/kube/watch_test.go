package kube

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/nodeagent-io/nodeagent/pkg/agent"
)

func pod(name, uid string, terminating bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	if terminating {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	}
	return p
}

func uids(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return out
}

// trim marks what went through it.
func trim(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.Labels = map[string]string{"trimmed": ""}
	}
	return obj, nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func TestWatch(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	source.Add(pod("runs", "u1", false))
	source.Add(pod("ends", "u2", true))
	w := newWatch(newRoom(), source, trim)
	if all := w.All(); len(all) != 0 || w.Synced() {
		t.Errorf("%d pods are known before there is a watch", len(all))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	eventually(t, "synced", w.Synced)

	if diff := cmp.Diff([]string{"u1", "u2"}, uids(w.All())); diff != "" {
		t.Error(diff)
	}
	terminating, gone := w.Round()
	if diff := cmp.Diff([]string{"u2"}, uids(terminating)); diff != "" || len(gone) != 0 {
		t.Errorf("%d gone; terminating:\n%s", len(gone), diff)
	}
	if _, trimmed := terminating[0].Labels["trimmed"]; !trimmed {
		t.Error("a pod is kept whole")
	}

	// A pod that has gone is told of once, in its last state.
	source.Modify(pod("runs", "u1", true))
	last := pod("ends", "u2", true)
	last.Status.Phase = corev1.PodFailed
	source.Delete(last)
	eventually(t, "the pod that ends is gone", func() bool { return slices.Equal(uids(w.All()), []string{"u1"}) })
	terminating, gone = w.Round()
	if !slices.Equal(uids(terminating), []string{"u1"}) || !slices.Equal(uids(gone), []string{"u2"}) || gone[0].Status.Phase != corev1.PodFailed {
		t.Errorf("terminating %v, gone %v in phase %v", uids(terminating), uids(gone), gone)
	}
	if _, gone = w.Round(); len(gone) != 0 {
		t.Errorf("gone again: %v", uids(gone))
	}
	cancel()
	<-done
}

// While the watch is broken a pod may go unseen, and another one of its name
// come.
func TestWatchMissesADeletion(t *testing.T) {
	w := newWatch(newRoom(), fcache.NewFakeControllerSource(), trim)
	w.changed(nil, pod("web", "u1", true))
	w.changed(pod("web", "u1", true), pod("web", "u2", false))
	if len(w.pods) != 1 || w.pods["u2"] == nil || !slices.Equal(uids(w.gone), []string{"u1"}) {
		t.Errorf("known %v, gone %v", w.pods, uids(w.gone))
	}
	// The pod that comes next does not terminate, so nobody asks how it ended.
	w.changed(pod("web", "u2", false), nil)
	if len(w.pods) != 0 || len(w.gone) != 1 {
		t.Errorf("known %v, gone %v", w.pods, uids(w.gone))
	}
}

// Nobody need ever ask for what is gone.
func TestGoneIsBounded(t *testing.T) {
	w := newWatch(newRoom(), fcache.NewFakeControllerSource(), trim)
	for i := range 2 * maxGone {
		p := pod("web", fmt.Sprint(i), true)
		w.changed(nil, p)
		w.changed(p, nil)
	}
	if len(w.gone) != maxGone || len(w.pods) != 0 {
		t.Errorf("%d gone and %d known are kept", len(w.gone), len(w.pods))
	}
}

// One namespace has at most as much of the room as is left, by number and by size, and a pod that has gone leaves its own.
func TestRoomIsShared(t *testing.T) {
	large := strings.Repeat("x", 64<<10)
	for name, finalizer := range map[string]string{"many": "a.b/c", "large": large} {
		r := newRoom()
		w := newWatch(r, fcache.NewFakeControllerSource(), r.keep(trim))
		add := func(namespace string, i int) *corev1.Pod {
			p := pod(fmt.Sprint(i), fmt.Sprint(namespace, i), true)
			p.Namespace, p.Finalizers = namespace, []string{finalizer}
			obj, err := r.keep(trim)(p)
			if err != nil {
				t.Fatal(err)
			}
			w.changed(nil, obj)
			return obj.(*corev1.Pod)
		}
		for i := range 2 * mostPods {
			add("evil", i)
		}
		victim := add("good", 0)
		kept := 0
		for _, p := range w.pods {
			if !isOutside(p) {
				kept++
			} else if len(p.Finalizers) > 0 {
				t.Fatalf("%s: a pod for which there is no room is kept", name)
			}
		}
		if len(victim.Finalizers) == 0 || kept > mostPods/2+1 || r.all.bytes > mostBytes {
			t.Errorf("%s: %d pods of %d bytes are kept, the victim's finalizers %d", name, kept, r.all.bytes, len(victim.Finalizers))
		}
		if got := w.Outside(); got != 2*mostPods+1-kept {
			t.Errorf("%s: %d are outside, %d kept", name, got, kept)
		}
		for _, p := range w.pods {
			w.changed(p, nil)
		}
		if r.all != (share{}) || len(r.ofNamespace)+len(r.kept)+len(r.outside) > 0 || len(w.gone) > maxGone {
			t.Errorf("%s: when all are gone %+v is left", name, r.all)
		}
		if again := add("evil", 1); len(again.Finalizers) == 0 {
			t.Errorf("%s: there is no room when all are gone", name)
		}
	}
}

// A pod for which there was no room is told of when there is some again, though its object does not change.
func TestOutsideIsReadAgain(t *testing.T) {
	r := newRoom()
	w := newWatch(r, fcache.NewFakeControllerSource(), r.keep(trim))
	w.informer = synced{}
	w.read = func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		p := pod(name, namespace+name, true)
		p.Namespace, p.Finalizers = namespace, []string{"a.b/c"}
		obj, err := r.keep(trim)(p)
		return obj.(*corev1.Pod), err
	}
	for i := range 2 * mostPods {
		p, err := w.read(t.Context(), "evil", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		w.changed(nil, p)
	}
	terminating, _ := w.Round()
	kept := len(terminating)
	w.readOutside(t.Context())
	if terminating, _ = w.Round(); len(terminating) != kept || w.Outside() != 2*mostPods-kept {
		t.Fatalf("%d are told of while there is no room, %d were, %d are outside", len(terminating), kept, w.Outside())
	}
	for _, p := range terminating {
		w.changed(p, nil)
	}
	w.readOutside(t.Context())
	terminating, _ = w.Round()
	if len(terminating) != readAtOnce || w.Outside() != 2*mostPods-kept-readAtOnce {
		t.Fatalf("%d are told of, %d are outside", len(terminating), w.Outside())
	}
	// The watch has only what was left of it.
	stub := pod(terminating[0].Name, string(terminating[0].UID), true)
	stub.Annotations = map[string]string{notKept: ""}
	w.changed(stub, nil)
	if _, gone := w.Round(); len(gone) == 0 || gone[len(gone)-1] != terminating[0] {
		t.Error("of one that has gone it is not told how it ended")
	}
	// What the watch tells while one is read counts.
	for _, p := range w.pods {
		w.changed(p, nil)
	}
	other, now := pod("p", "ap", true), pod("p", "ap", true)
	other.Annotations = stub.Annotations
	w.changed(nil, other)
	w.read = func(context.Context, string, string) (*corev1.Pod, error) {
		w.changed(other, now)
		return pod("p", "ap", true), nil
	}
	w.readOutside(t.Context())
	if w.pods["ap"] != now {
		t.Error("what was read before counts")
	}
}

// synced is an informer that knows all pods.
type synced struct{ cache.Controller }

func (synced) HasSynced() bool { return true }

// What is kept of pods, and of a reading of each, takes no more memory than the room has, whatever a pod has many of.
func TestRoomIsOfMemory(t *testing.T) {
	for name, fill := range map[string]func(p *corev1.Pod, i int){
		"containers": func(p *corev1.Pod, i int) {
			c := corev1.Container{Name: fmt.Sprintf("c-%d", i)}
			p.Spec.Containers, p.Spec.InitContainers = append(p.Spec.Containers, c), append(p.Spec.InitContainers, c)
		},
		"statuses": func(p *corev1.Pod, i int) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c-%d", i)})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprintf("c-%d", i),
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}})
		},
		"finalizers": func(p *corev1.Pod, i int) { p.Finalizers = append(p.Finalizers, fmt.Sprintf("a.b/%d", i)) },
		"claims": func(p *corev1.Pod, i int) {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("claim-%d", i)})
		},
		"volumes": func(p *corev1.Pod, i int) {
			volume := fmt.Sprintf("v-%d", i)
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}})
			if i == 0 {
				p.Spec.Containers = make([]corev1.Container, 1)
			}
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/" + volume})
		},
		"nothing": func(*corev1.Pod, int) {},
	} {
		r := newRoom()
		keep := r.keep(agent.Trim)
		var kept []any
		before := heap()
		for n := 0; r.all.pods < mostPods/2 && len(r.outside) == 0; n++ {
			p := pod(fmt.Sprint(n), fmt.Sprint(n), true)
			for i := range 128 {
				fill(p, i)
			}
			obj, err := keep(p)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, obj, agent.Seed(obj.(*corev1.Pod)))
		}
		taken := int(heap() - before)
		t.Logf("%s: %d pods are kept and take %d bytes, %d counted", name, r.all.pods, taken, r.all.bytes)
		if taken > mostBytes || taken > r.all.bytes {
			t.Errorf("%s: %d pods are kept and take %d bytes, %d counted", name, r.all.pods, taken, r.all.bytes)
		}
		runtime.KeepAlive(kept)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // the first may leave what finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
