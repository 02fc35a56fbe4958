package kube

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Bounds of what a Watch keeps of terminating pods: how many, and how many bytes in the API's encoding. A kubelet runs 110, and
// any number of others may name its node.
const (
	mostPods  = 2000
	mostBytes = 8 << 20
)

// A share is what is kept of the pods of a namespace, or of all.
type share struct{ pods, bytes int }

func (s *share) add(size int)    { s.pods, s.bytes = s.pods+1, s.bytes+size }
func (s *share) remove(size int) { s.pods, s.bytes = s.pods-1, s.bytes-size }

// A room is where terminating pods are kept. A namespace has at most as much of it as is left over, so that another one always
// finds some. It is safe for use by several goroutines.
type room struct {
	mu          sync.Mutex
	all         share
	ofNamespace map[string]*share
	sizes       map[types.UID]int
	// outside are the pods for which there was no room.
	outside map[types.UID]bool
}

func newRoom() *room {
	return &room{ofNamespace: make(map[string]*share), sizes: make(map[types.UID]int), outside: make(map[types.UID]bool)}
}

// keep returns a function that does as trim, and leaves of a pod for which there is no room only what tells that it is there.
func (r *room) keep(trim cache.TransformFunc) cache.TransformFunc {
	return func(obj any) (any, error) {
		out, err := trim(obj)
		p, ok := out.(*corev1.Pod)
		if err != nil || !ok || r.admits(p) {
			return out, err
		}
		left := new(corev1.Pod)
		left.Namespace, left.Name, left.UID, left.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
		left.DeletionTimestamp, left.Status.Phase = p.DeletionTimestamp, p.Status.Phase
		return left, nil
	}
}

// admits reports whether there is room for a pod, and takes note of it.
func (r *room) admits(p *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p.Namespace, p.UID)
	if p.DeletionTimestamp == nil {
		return true
	}
	of := r.ofNamespace[p.Namespace]
	if of == nil {
		of = new(share)
	}
	size := p.Size()
	if of.pods+1 > mostPods-r.all.pods || of.bytes+size > mostBytes-r.all.bytes {
		r.outside[p.UID] = true
		return false
	}
	of.add(size)
	r.all.add(size)
	r.ofNamespace[p.Namespace], r.sizes[p.UID] = of, size
	return true
}

// forget makes the room of a pod that has gone free.
func (r *room) forget(p *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(p.Namespace, p.UID)
}

// remove is forget, while mu is held.
func (r *room) remove(namespace string, uid types.UID) {
	delete(r.outside, uid)
	size, ok := r.sizes[uid]
	if !ok {
		return
	}
	delete(r.sizes, uid)
	r.all.remove(size)
	of := r.ofNamespace[namespace]
	if of.remove(size); of.pods == 0 {
		delete(r.ofNamespace, namespace)
	}
}

// isOutside reports whether there was no room for a pod.
func (r *room) isOutside(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outside[uid]
}
