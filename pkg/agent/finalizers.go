package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/finalizer"
)

// AskMetadata asks for the metadata of a pod, managedFields included, which the watch does
// not keep; (*kube.Client).PodMetadata is one.
type AskMetadata func(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error)

// When it is asked who set a finalizer: when nothing else has been left for so long, and
// again after that time where there was no answer.
const (
	settersAfter = 10 * time.Second
	settersAgain = time.Minute
	settersTime  = 3 * time.Second // for one answer
)

// Setters knows who has put the finalizers on pods that wait for nothing else.
type Setters struct {
	Ask AskMetadata

	mu    sync.Mutex
	known map[types.UID]setters
}

type setters struct {
	asked      time.Time
	finalizers []string
	found      []evidence.FinalizerSetter
}

// Of returns who has put the finalizers on a pod, none before a reading shows that
// only they are left.
func (s *Setters) Of(ctx context.Context, p *corev1.Pod, e *evidence.Pod) []evidence.FinalizerSetter {
	if len(e.Finalizers) == 0 || e.GracePeriodSeconds != 0 || !e.NothingLeft() || e.UnchangedSince.IsZero() || e.Time.Sub(e.UnchangedSince) < settersAfter {
		return nil
	}
	s.mu.Lock()
	last, ok := s.known[p.UID]
	s.mu.Unlock()
	if ok && slices.Equal(last.finalizers, e.Finalizers) && (len(last.found) > 0 || time.Since(last.asked) < settersAgain) {
		return last.found
	}
	ctx, cancel := context.WithTimeout(ctx, settersTime)
	defer cancel()
	now := setters{asked: time.Now(), finalizers: e.Finalizers}
	if m, err := s.Ask(ctx, p.Namespace, p.Name); err == nil && m.UID == p.UID {
		now.found = finalizer.Setters(m.ManagedFields, e.Finalizers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[types.UID]setters)
	}
	s.known[p.UID] = now
	return now.found
}

// forget forgets the pods that are not here any more.
func (s *Setters) forget(here map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.known {
		if !here[string(uid)] {
			delete(s.known, uid)
		}
	}
}
