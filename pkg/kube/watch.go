package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// maxGone is how many pods that are gone are kept until somebody asks for them.
const maxGone = 512

// readAgain is how often pods for which there was no room are read again, and readAtOnce how many of them at a time: a Watch hears of one
// only when its object changes, which that of a stuck pod does not.
const (
	readAgain  = time.Minute
	readAtOnce = 64
)

// A Watch knows the pods that are bound to a node. It is one watch of the API
// server.
type Watch struct {
	informer cache.Controller
	room     *room
	// read reads one pod as the API server has it now, and trims it.
	read func(ctx context.Context, namespace, name string) (*corev1.Pod, error)

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	gone []*corev1.Pod
}

// WatchPods makes the Watch of a node's pods; it begins with Run. trim takes from
// a pod what is not to be kept.
func (c *Client) WatchPods(node string, trim cache.TransformFunc) *Watch {
	r := newRoom()
	trim = r.keep(trim)
	w := newWatch(r, c.podsOfNode(node, trim), trim)
	w.read = func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
		p, err := c.Pod(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		obj, err := trim(p)
		p, _ = obj.(*corev1.Pod)
		return p, err
	}
	return w
}

func newWatch(r *room, source cache.ListerWatcher, trim cache.TransformFunc) *Watch {
	w := &Watch{room: r, pods: make(map[types.UID]*corev1.Pod)}
	_, w.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { w.changed(nil, obj) },
			UpdateFunc: w.changed,
			DeleteFunc: func(obj any) {
				if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = last.Obj
				}
				w.changed(obj, nil)
			},
		},
		Transform: once(trim),
	})
	return w
}

// changed takes note of a pod that was before and of one that is now. They are
// two pods when the watch was broken while one of the same name took the other's
// place.
func (w *Watch) changed(before, now any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, _ := before.(*corev1.Pod)
	p, _ := now.(*corev1.Pod)
	if old != nil && isOutside(old) && w.pods[old.UID] != nil {
		old = w.pods[old.UID] // which may have been read again
	}
	if old != nil && (p == nil || p.UID != old.UID) {
		delete(w.pods, old.UID)
		w.room.forget(old)
		if old.DeletionTimestamp != nil && !isOutside(old) && len(w.gone) < maxGone {
			w.gone = append(w.gone, old)
		}
	}
	if p != nil {
		w.pods[p.UID] = p
	}
}

// Run keeps the Watch up to date until the context ends.
func (w *Watch) Run(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(readAgain):
				w.readOutside(ctx)
			}
		}
	}()
	w.informer.RunWithContext(ctx)
}

// readOutside reads some of the pods again for which there was no room. What the watch has told meanwhile counts.
func (w *Watch) readOutside(ctx context.Context) {
	w.mu.Lock()
	var outside []*corev1.Pod
	for _, p := range w.pods {
		if isOutside(p) && len(outside) < readAtOnce {
			outside = append(outside, p)
		}
	}
	w.mu.Unlock()
	for _, before := range outside {
		p, err := w.read(ctx, before.Namespace, before.Name)
		if err != nil || p.UID != before.UID {
			continue // it has gone, or is asked for again
		}
		w.mu.Lock()
		if w.pods[p.UID] == before {
			w.pods[p.UID] = p
		}
		w.mu.Unlock()
	}
}

// Synced reports whether the pods of the node are known.
func (w *Watch) Synced() bool { return w.informer.HasSynced() }

// All returns the pods of the node; none before they are known.
func (w *Watch) All() []*corev1.Pod {
	if !w.Synced() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(w.pods))
	for _, p := range w.pods {
		all = append(all, p)
	}
	return all
}

// Outside returns how many terminating pods there are for which there is no room: of these Round tells nothing.
func (w *Watch) Outside() int {
	w.room.mu.Lock()
	defer w.room.mu.Unlock()
	return len(w.room.outside)
}

// Round returns the pods that terminate, as far as there is room for them, and the last states of those that did
// and that have gone since the call before: how a pod's containers ended tells
// whether its grace period was enough.
func (w *Watch) Round() (terminating, gone []*corev1.Pod) {
	if !w.Synced() {
		return nil, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.only(w.pods)
	for _, p := range w.pods {
		if p.DeletionTimestamp != nil && !isOutside(p) {
			terminating = append(terminating, p)
		}
	}
	gone, w.gone = w.gone, nil
	return terminating, gone
}
