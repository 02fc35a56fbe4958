package bed

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// stall is for how long nothing may move before a wait is in vain, on a node
// that is not slow; on one that is, up to stallSlow. Between two attempts at the same thing
// the kubelet pauses for up to two minutes, and so long the agent waits, on a node short of
// processors, before it says that it knows no cause; containerd pauses for up to five. There the agent takes up to seven
// to say that a shim does not answer, of which it asks seldom.
// A pod that never starts makes its node look slow, so that there is a bound.
const (
	stall     = 8 * time.Minute
	stallSlow = 10 * time.Minute
)

// poll is how often a state is asked for.
const poll = 500 * time.Millisecond

// Until asks again and again until it is told true. The error of a context that
// ends first says what was waited for and what was seen last.
func Until(ctx context.Context, what string, check func() (done bool, seen string)) error {
	return until(ctx, what, check, func(string) error { return nil })
}

func until(ctx context.Context, what string, check func() (done bool, seen string), patient func(seen string) error) error {
	for {
		done, seen := check()
		if done {
			return nil
		}
		if err := patient(seen); err != nil {
			return fmt.Errorf("waited in vain for %s; last seen: %s; %w", what, seen, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s; last seen: %s; %w", what, seen, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// Await is Until for something that happens on the node. It gives time as long
// as something moves: what is waited for, or any other pod of the node. When
// nothing has for a while, longer on a slow node, the error says what state the
// node is in.
func (n *Node) Await(ctx context.Context, what string, check func() (done bool, seen string)) error {
	last, begin := "", time.Now()
	changed := begin
	return until(ctx, what, check, func(seen string) error {
		if seen != last {
			last, changed = seen, time.Now()
		}
		moved := n.moved()
		if moved.Before(changed) {
			moved = changed
		}
		patience := min(stallSlow, time.Duration(float64(stall)*max(1, n.Slowness())))
		if still := time.Since(moved); still > patience {
			return fmt.Errorf("nothing has moved for %s, of %s waited; %s",
				still.Round(time.Second), time.Since(begin).Round(time.Second), n.Health(ctx))
		}
		return nil
	})
}

// move notes that a pod of the node has changed.
func (p *pace) move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = time.Now()
}

func (n *Node) moved() time.Time {
	n.pace.mu.Lock()
	defer n.pace.mu.Unlock()
	return n.pace.moved
}

// ProcessesGone is a step that waits until no process of the pod is left.
func ProcessesGone(ctx context.Context, n *Node, p *corev1.Pod) error {
	return n.Await(ctx, "the processes of "+p.Name+" to end", func() (bool, string) {
		left, err := n.Exec(ctx, n.Script("tasks", p))
		return err == nil && strings.TrimSpace(left) == "", fmt.Sprint(left, err)
	})
}
