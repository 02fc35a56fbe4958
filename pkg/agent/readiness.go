package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// When the API server is asked for the Node: not before a pod has been terminating for
// askNodeAfter, which most are not, and once in askNodeEach for all pods.
const (
	askNodeAfter = 3 * time.Second
	askNodeEach  = 10 * time.Second
	nodeTime     = 3 * time.Second // for one answer
)

// Readiness knows what the API server has heard from the node's kubelet lately.
//
// The condition is Unknown when nothing was heard for 50 seconds, and the kubelet corrects it within ten seconds when
// it reaches the API server. The kubelet's Lease would show it sooner, and would need one more right.
type Readiness struct {
	// Ask asks for the condition Ready of the node; (*kube.Client).NodeReady does.
	Ask func(ctx context.Context) (*corev1.NodeCondition, error)

	mu    sync.Mutex
	last  *evidence.NodeReady // the last answer
	now   *evidence.NodeReady // the same; nil when there was none to the last question
	err   error
	asked time.Time

	unlisted atomic.Bool // what Unlisted returns; nobody waits for an answer to know it
}

// Of returns what is known for a pod; nil when nobody has asked for it. It asks the API server at
// most once in ten seconds. Of several callers one asks, and the others wait for it.
func (r *Readiness) Of(ctx context.Context, p *evidence.Pod) (*evidence.NodeReady, error) {
	if time.Since(p.DeletionRequested) < askNodeAfter {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) >= askNodeEach {
		r.ask(ctx)
	}
	return r.now, r.err
}

// Unlisted reports whether the kubelet has said, in the last answer of the API server, that it has
// had no list of the node's containers for long.
func (r *Readiness) Unlisted() bool { return r.unlisted.Load() }

// Now asks the API server.
func (r *Readiness) Now(ctx context.Context) (*evidence.NodeReady, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ask(ctx)
	return r.now, r.err
}

var errNoReady = errors.New("the Node has no such condition")

func (r *Readiness) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	r.asked = time.Now()
	c, err := r.Ask(ctx)
	if err == nil && c == nil {
		err = errNoReady
	}
	if r.now, r.err = nil, err; err != nil {
		return
	}
	r.now = &evidence.NodeReady{Status: string(c.Status), Reason: c.Reason, Transition: c.LastTransitionTime.Time, Asked: r.asked}
	r.now.Hear(c.Message, c.LastHeartbeatTime.Time)
	r.now.Follow(r.last, time.Now())
	r.unlisted.Store(r.now.PLEG != nil)
	r.last = r.now
}
