package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
)

// When a running pod's Baseline is read: as soon as it is seen to run, and again
// when it has run for half as long again, because programs set their handlers up when
// they start; and from rarely on no more often than that. A pod that is pending is read in the
// same way from when it is first seen: one with an init container that runs is, and so is one in which
// a single container cannot be created.
const (
	soon   = 4 * time.Second
	rarely = 10 * time.Minute
)

// Baselines keeps what the first processes of the node's running pods do with
// signals, for when the pods are deleted: two readings for each pod, in memory only.
// The zero value is ready, and may be used by several goroutines.
type Baselines struct {
	mu      sync.Mutex
	pods    map[string]*baselines // by UID of the control groups
	reading bool
}

// baselines are the last two readings of one pod.
type baselines struct {
	seen         time.Time // when the pod was first seen, and anew when it was first seen to run
	runs         bool
	due          time.Time
	last, before *evidence.Baseline
}

// Refresh has those pods read that are due, beside everything else, and forgets
// those that have gone. While a reading is under way there is no other one.
func (b *Baselines) Refresh(ctx context.Context, from node.Source, pods []*corev1.Pod, now time.Time) {
	due := b.due(pods, now)
	if len(due) == 0 {
		return
	}
	go func() {
		read := from.Baselines(ctx, due)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reading = false
		for uid, r := range read {
			// A pod that was deleted meanwhile keeps what it had.
			if p := b.pods[uid]; p != nil {
				r.Since(p.last)
				p.last, p.before = r, p.last
			}
		}
	}()
}

// due returns the UIDs of the pods to be read, none while a reading is under way.
func (b *Baselines) due(pods []*corev1.Pod, now time.Time) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	here := make(map[string]bool, len(pods))
	var due []string
	for _, p := range pods {
		uid, _ := runtimeUID(p)
		here[uid] = true
		runs := p.Status.Phase == corev1.PodRunning
		if p.DeletionTimestamp != nil || !runs && p.Status.Phase != corev1.PodPending {
			continue
		}
		known := b.pods[uid]
		if known == nil {
			if b.pods == nil {
				b.pods = make(map[string]*baselines)
			}
			known = new(baselines)
			b.pods[uid] = known
		}
		if known.seen.IsZero() || runs && !known.runs {
			known.seen, known.due, known.runs = now, now, runs
		}
		if !b.reading && !now.Before(known.due) {
			known.due = now.Add(min(max(soon, now.Sub(known.seen)/2), rarely))
			due = append(due, uid)
		}
	}
	for uid := range b.pods {
		if !here[uid] {
			delete(b.pods, uid)
		}
	}
	b.reading = b.reading || len(due) > 0
	return due
}

// Of returns the last reading of a pod from before the deletion that was requested
// at that time, nil when there is none.
func (b *Baselines) Of(uid string, requested time.Time) *evidence.Baseline {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[uid]
	if p == nil {
		return nil
	}
	readings := []*evidence.Baseline{p.last, p.before}
	i := slices.IndexFunc(readings, func(r *evidence.Baseline) bool { return r.Precedes(requested) })
	if i < 0 {
		return nil
	}
	return readings[i]
}

// afterStep has what was read told by the node's clock as it is now, which was set forward by step.
func (b *Baselines) afterStep(now time.Time, step time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		p.last, p.before = p.last.AfterStep(now, step), p.before.AfterStep(now, step)
	}
}
