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

// When a running pod's Baseline is read: as soon as it is seen to run, every soon while it is
// young, and then when it has run for half as long again, because programs set their handlers up when
// they start; and from rarely on no more often than that. What is deleted while it is young is told by its last reading, which
// must not be far behind. A pod that is pending is read in the
// same way from when it is first seen: one with an init container that runs is, and so is one in which
// a single container cannot be created.
const (
	soon   = 4 * time.Second
	young  = 30 * time.Second
	rarely = 10 * time.Minute
)

// When a reading that does not return is given up, and of how many pods at most, which are not read again until it returns:
// of each a goroutine is left behind. When one more hangs, no pod is read any more.
const (
	baselineGivenUp  = 30 * time.Second
	maxHungBaselines = 4
)

// Baselines keeps what the first processes of the node's running pods do with
// signals, for when the pods are deleted: two readings for each pod, in memory only.
// The zero value is ready, and may be used by several goroutines.
type Baselines struct {
	mu    sync.Mutex
	pods  map[string]*baselines // by UID of the control groups
	under *survey               // what is under way
	hung  map[string]bool       // the pods of which a reading was given up, and has not returned
}

// baselines are the last two readings of one pod.
type baselines struct {
	seen         time.Time // when the pod was first seen, and anew when it was first seen to run
	runs         bool
	due          time.Time
	last, before *evidence.Baseline
}

// A carefulBaselines reads nothing where the reading of a running pod panics.
type carefulBaselines struct {
	node.Source
	a *Agent
}

func (c carefulBaselines) Baseline(ctx context.Context, uid string) (b *evidence.Baseline) {
	c.a.careful("the reading of a running pod", func() { b = c.Source.Baseline(ctx, uid) })()
	return b
}

// A survey reads pods one after the other.
type survey struct {
	uids  []string  // those that it has yet to read
	at    string    // the one that it reads
	since time.Time // since when it does
}

// Refresh has those pods read that are due, beside everything else, and forgets
// those that have gone. While a survey is under way, and does not hang, there is no other one.
func (b *Baselines) Refresh(ctx context.Context, from node.Source, pods []*corev1.Pod, now time.Time) {
	s := b.begin(pods, now)
	if s == nil {
		return
	}
	go func() {
		for b.next(s) {
			b.keep(s, from.Baseline(ctx, s.at))
		}
	}()
}

// begin returns a survey of the pods that are due, nil when there are none, or there is one that goes on.
func (b *Baselines) begin(pods []*corev1.Pod, now time.Time) *survey {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.under; s != nil && now.Sub(s.since) >= baselineGivenUp && len(b.hung) < maxHungBaselines {
		if b.hung == nil {
			b.hung = make(map[string]bool)
		}
		b.hung[s.at] = true
		for _, uid := range s.uids {
			if p := b.pods[uid]; p != nil {
				p.due = now
			}
		}
		b.under = nil
	}
	due := b.due(pods, now)
	if len(due) == 0 {
		return nil
	}
	b.under = &survey{uids: due, since: now}
	return b.under
}

// due returns the UIDs of the pods to be read, none while a survey is under way.
func (b *Baselines) due(pods []*corev1.Pod, now time.Time) []string {
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
		if b.under == nil && !b.hung[uid] && !now.Before(known.due) {
			known.due = now.Add(soon)
			if age := now.Sub(known.seen); age >= young {
				known.due = now.Add(min(age/2, rarely))
			}
			due = append(due, uid)
		}
	}
	for uid := range b.pods {
		if !here[uid] {
			delete(b.pods, uid)
		}
	}
	return due
}

// next has a survey turn to its next pod, and reports whether there is one, and the survey was not given up.
func (b *Baselines) next(s *survey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under != s {
		return false
	}
	if len(s.uids) == 0 {
		b.under = nil
		return false
	}
	s.at, s.uids, s.since = s.uids[0], s.uids[1:], time.Now()
	return true
}

// keep keeps what a survey has read of the pod that it is at; nothing if r is nil.
func (b *Baselines) keep(s *survey, r *evidence.Baseline) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under != s {
		delete(b.hung, s.at)
	}
	// A pod that was deleted meanwhile keeps what it had.
	if p := b.pods[s.at]; p != nil && r != nil {
		r.Since(p.last)
		p.last, p.before = r, p.last
	}
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
