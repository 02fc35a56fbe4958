package kube

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Bounds of what a Watch keeps of terminating pods: how many, and how many bytes of memory. A kubelet runs 110, and
// any number of others may name its node.
const (
	mostPods  = 2000
	mostBytes = 16 << 20
	// Each namespace has room for so many pods that are not large, however many there are of others.
	fewPods  = 4
	fewBytes = 32 << 10
)

// What a pod takes of memory besides its strings, in bytes, its last reading too (evidence.Pod): the objects are many times larger than
// their encoding.
const (
	podTakes       = 4096
	containerTakes = 1536
	statusTakes    = 512
	otherTakes     = 256
)

// takes returns about how much memory a pod takes.
func takes(p *corev1.Pod) int {
	containers := len(p.Spec.InitContainers) + len(p.Spec.Containers) + len(p.Spec.EphemeralContainers)
	statuses := len(p.Status.InitContainerStatuses) + len(p.Status.ContainerStatuses) + len(p.Status.EphemeralContainerStatuses)
	others := len(p.Finalizers) + len(p.Spec.Volumes) + len(p.Spec.ResourceClaims)
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			others += len(all[i].VolumeMounts) + len(all[i].VolumeDevices)
		}
	}
	return p.Size() + podTakes + containers*containerTakes + statuses*statusTakes + others*otherTakes
}

// A share is what is kept of the pods of a namespace, or of all.
type share struct{ pods, bytes int }

func (s *share) add(size int)    { s.pods, s.bytes = s.pods+1, s.bytes+size }
func (s *share) remove(size int) { s.pods, s.bytes = s.pods-1, s.bytes-size }

// A keptPod is one for which there is room.
type keptPod struct {
	namespace string
	size      int
}

// A room is where terminating pods are kept. A namespace has at most as much of it as is left over, so that another one always
// finds some. It is safe for use by several goroutines.
type room struct {
	mu          sync.Mutex
	all         share
	ofNamespace map[string]*share
	kept        map[types.UID]keptPod
	// outside are the pods for which there was no room.
	outside map[types.UID]bool
}

func newRoom() *room {
	return &room{ofNamespace: make(map[string]*share), kept: make(map[types.UID]keptPod), outside: make(map[types.UID]bool)}
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
		left.Annotations = map[string]string{notKept: ""}
		return left, nil
	}
}

// notKept marks what is left of a pod for which there is no room. Of the annotations of others, none of this name is kept.
const notKept = "nodeagent.io/not-kept"

func isOutside(p *corev1.Pod) bool {
	_, out := p.Annotations[notKept]
	return out
}

// only forgets the pods that are not among those that there are: of a list that broke off, nobody says that they have gone.
func (r *room) only(here map[types.UID]*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.outside {
		if here[uid] == nil {
			delete(r.outside, uid)
		}
	}
	for uid, kept := range r.kept {
		if here[uid] == nil {
			r.remove(kept.namespace, uid)
		}
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
	size := takes(p)
	few := of.pods < fewPods && size <= fewBytes
	if !few && (of.pods+1 > mostPods-r.all.pods || of.bytes+size > mostBytes-r.all.bytes) {
		r.outside[p.UID] = true
		return false
	}
	of.add(size)
	r.all.add(size)
	r.ofNamespace[p.Namespace], r.kept[p.UID] = of, keptPod{p.Namespace, size}
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
	one, ok := r.kept[uid]
	if !ok {
		return
	}
	delete(r.kept, uid)
	r.all.remove(one.size)
	of := r.ofNamespace[namespace]
	if of.remove(one.size); of.pods == 0 {
		delete(r.ofNamespace, namespace)
	}
}
