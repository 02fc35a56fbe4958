package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
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
		now.found = finalizerSetters(m.ManagedFields, e.Finalizers)
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

// The names under which the API server keeps what it does not know the client of any
// more (capmanagers.go and skipnonapplied.go of apimachinery, pkg/util/managedfields/internal).
var noManagers = []string{"ancient-changes", "before-first-apply"}

// finalizerSetters returns which manager owns each of the finalizers: the one that was
// there first, where several do. What no manager owns is left out, and what one has applied
// and another one has updated: the former stand first, whenever that was.
func finalizerSetters(managed []metav1.ManagedFieldsEntry, finalizers []string) []evidence.FinalizerSetter {
	var out []evidence.FinalizerSetter
	how := make(map[string]metav1.ManagedFieldsOperationType)
	unsure := make(map[string]bool)
	for i := range managed {
		m := &managed[i]
		if m.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Metadata.Finalizers {
			var name string
			value, isValue := strings.CutPrefix(key, "v:") // a set's member (structured-merge-diff)
			if !isValue || json.Unmarshal([]byte(value), &name) != nil || !slices.Contains(finalizers, name) {
				continue
			}
			first, known := how[name]
			unsure[name] = unsure[name] || known && first != m.Operation || slices.Contains(noManagers, m.Manager)
			if known {
				continue
			}
			how[name] = m.Operation
			f := evidence.FinalizerSetter{Finalizer: name, Manager: strings.Clone(m.Manager)}
			if m.Time != nil {
				f.Changed = m.Time.UTC()
			}
			out = append(out, f)
		}
	}
	out = slices.DeleteFunc(out, func(s evidence.FinalizerSetter) bool { return unsure[s.Finalizer] })
	slices.SortFunc(out, func(a, b evidence.FinalizerSetter) int { return strings.Compare(a.Finalizer, b.Finalizer) })
	return out
}
