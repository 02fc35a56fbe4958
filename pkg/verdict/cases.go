package verdict

import (
	"maps"
	"sync"
	"sync/atomic"

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
	refused atomic.Uint64
}

// Open returns the pod's Case, a new one for a pod that has none. It returns nil,
// and counts it, when there are too many already.
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
	c.mu.Lock()
	one := c.byUID[uid]
	c.mu.Unlock()
	if one == nil {
		return nil
	}
	return one.Reading()
}

// Refused returns how often Open has found no room.
func (c *Cases) Refused() uint64 { return c.refused.Load() }
