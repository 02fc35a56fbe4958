package verdict

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// maxCases is how many terminating pods are remembered at a time, many times
// what a node can run.
const maxCases = 1000

// Cases holds one Case for each pod that is looked at. It is safe for use by
// several goroutines.
type Cases struct {
	mu      sync.Mutex
	byUID   map[string]*Case
	left    map[string]bool // those for which there was no room, and of which only the object is left
	refused atomic.Uint64
}

// A Candidate is a terminating pod that is to be looked at.
type Candidate struct {
	UID, Namespace string
	Deleted        time.Time
	// ObjectOnly reports whether nothing of it is left on its node.
	ObjectOnly bool
}

// Share returns those of the terminating pods for which there is room, by UID: in turn for each namespace, those first that were
// deleted first, and last those of which only the object is left. It counts the others, and forgets the Cases that they have.
func (c *Cases) Share(pods []Candidate) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := make(map[string]bool)
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i].ObjectOnly = pods[i].ObjectOnly || c.left[pods[i].UID] // it is not looked at any more
	}
	slices.SortFunc(pods, func(a, b Candidate) int {
		return cmp.Or(a.Deleted.Compare(b.Deleted), cmp.Compare(a.UID, b.UID))
	})
	pods = InTurn(pods, func(p *Candidate) string { return p.Namespace })
	slices.SortStableFunc(pods, func(a, b Candidate) int {
		switch {
		case a.ObjectOnly == b.ObjectOnly:
			return 0
		case b.ObjectOnly:
			return -1
		}
		return 1
	})
	room := min(len(pods), maxCases)
	for _, p := range pods[room:] {
		c.refused.Add(1)
		delete(c.byUID, p.UID)
		if p.ObjectOnly {
			left[p.UID] = true
		}
	}
	c.left = left
	out := make(map[string]bool, room)
	for _, p := range pods[:room] {
		out[p.UID] = true
	}
	return out
}

// Open returns the pod's Case, a new one for a pod that has none. It returns nil,
// and counts it, when there are too many already: Share makes room.
func (c *Cases) Open(uid string) *Case {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.byUID[uid]; ok {
		return one
	}
	if len(c.byUID) >= maxCases {
		c.refused.Add(1)
		return nil
	}
	if c.byUID == nil {
		c.byUID = make(map[string]*Case)
	}
	one := new(Case)
	c.byUID[uid] = one
	return one
}

// Get returns the pod's Case, nil when it has none.
func (c *Cases) Get(uid string) *Case {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byUID[uid]
}

// InTurn returns some things in turn from each namespace, and those of a namespace as they were: so that who has many takes
// nothing from who has few.
func InTurn[T any](all []T, namespace func(*T) string) []T {
	type placed struct{ turn, i int }
	turns, places := make(map[string]int), make([]placed, len(all))
	for i := range all {
		of := namespace(&all[i])
		places[i] = placed{turns[of], i}
		turns[of]++
	}
	slices.SortFunc(places, func(a, b placed) int { return cmp.Or(a.turn-b.turn, a.i-b.i) })
	out := make([]T, len(all))
	for i, p := range places {
		out[i] = all[p.i]
	}
	return out
}

// CloseOthers forgets the pods that are not in here and returns their Cases by
// UID.
func (c *Cases) CloseOthers(here map[string]bool) map[string]*Case {
	c.mu.Lock()
	defer c.mu.Unlock()
	closed := make(map[string]*Case)
	for uid, one := range c.byUID {
		if !here[uid] {
			closed[uid] = one
			delete(c.byUID, uid)
		}
	}
	return closed
}

// All returns the Cases by UID.
func (c *Cases) All() map[string]*Case {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byUID)
}

// Standing returns the verdicts that stand, in no order.
func (c *Cases) Standing() []Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Standing
	for _, one := range c.byUID {
		if s := one.Standing(); s.Cause != "" {
			out = append(out, s)
		}
	}
	return out
}

// Reading returns the last reading of a pod, nil when there was none.
func (c *Cases) Reading(uid string) *evidence.Pod {
	one := c.Get(uid)
	if one == nil {
		return nil
	}
	return one.Reading()
}

// Refused returns how often there was no room for a pod.
func (c *Cases) Refused() uint64 { return c.refused.Load() }
