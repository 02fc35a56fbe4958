package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// The admission policies that hold the agent's token to what the agent is for (deploy/daemonset.yaml).
// ownPolicies is what their names begin with: they are about nobody else.
const (
	ownPolicies = "nodeagent-own-"
	ownNode     = ownPolicies + "node"
	ownEvents   = ownPolicies + "events"
)

// How often it is tried whether the policies hold: seldom when they do, soon again when they do not or
// nobody answers. One try may take tryWithin.
const (
	triedEvery = time.Hour
	triedAgain = time.Minute
	tryWithin  = 20 * time.Second
)

// Policies tells whether the API server refuses what the agent must not do. A policy that is missing,
// not bound, or about an account of another name refuses nothing, and nothing else shows that.
type Policies struct {
	// Client has the agent's token; Namespace and Pod are the agent's own, and Node its node.
	Client               *kube.Client
	Namespace, Pod, Node string
	// Required reports whether nothing is to be written before all of them hold.
	Required bool
	Log      *slog.Logger

	mu   sync.Mutex
	held map[string]bool // by policy, of those of which it is known
}

// Run tries them at once, and then from time to time, until the context ends. Nothing is changed: each
// try is a dry run.
func (p *Policies) Run(ctx context.Context) {
	for {
		p.try(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.rest()):
		}
	}
}

// rest is the time until they are tried again.
func (p *Policies) rest() time.Duration {
	if p.hold() {
		return triedEvery
	}
	return triedAgain
}

// Held returns whether each policy holds, of those of which it is known; of nil nothing is.
func (p *Policies) Held() map[string]bool {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.held)
}

// hold reports whether all are known to hold.
func (p *Policies) hold() bool {
	held := p.Held()
	return held[ownNode] && held[ownEvents]
}

// mayWrite reports whether the agent may write, as far as that depends on its policies.
func (p *Policies) mayWrite() bool { return p == nil || !p.Required || p.hold() }

func (p *Policies) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	p.tried(ctx, ownNode, p.tryLabel(ctx))
	p.tried(ctx, ownEvents, p.tryEvent(ctx))
}

// tryLabel gives the agent's own pod a label.
func (p *Policies) tryLabel(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"nodeagent.io/not-held": "true"}}})
	if err != nil {
		return err
	}
	return p.Client.PatchPodStatus(ctx, p.Namespace, p.Pod, body, metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
}

// tryEvent tells of the agent's own pod in the kubelet's name.
func (p *Policies) tryEvent(ctx context.Context) error {
	r := Reporter{node: p.Node}
	ev := r.event(verdict.Subject{Kind: verdict.Pod, Namespace: p.Namespace, Name: p.Pod}, time.Now(), "NotHeld", "Blocked in no phase: a try.")
	ev.Name, ev.ReportingController = eventName(verdict.Subject{Name: p.Pod}, "held"), "kubelet"
	return p.Client.CreateEvent(ctx, ev, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
}

// deniedByOwn is the begin of the answer when a policy of the agent's refuses.
var deniedByOwn = regexp.MustCompile(`is forbidden: ValidatingAdmissionPolicy '(` + ownPolicies + `[a-z]+)' with binding '[^']+' denied request`)

// tried takes note of the answer to a try: that nothing was refused, or that the policy has. Another answer, as of RBAC
// or of nobody, tells nothing of the policy.
func (p *Policies) tried(ctx context.Context, policy string, answer error) {
	var status apierrors.APIStatus
	m := []string(nil)
	if errors.As(answer, &status) {
		m = deniedByOwn.FindStringSubmatch(status.Status().Message)
	}
	held := m != nil && m[1] == policy
	if answer != nil && !held {
		p.Log.DebugContext(ctx, "it is not known whether an admission policy holds", "policy", policy, "error", answer)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.held[policy]
	if p.held == nil {
		p.held = make(map[string]bool)
	}
	p.held[policy] = held
	switch {
	case !held && (was || !known):
		consequence := "who has the token may use it"
		if p.Required {
			consequence = "nothing is written until it does"
		}
		p.Log.ErrorContext(ctx, fmt.Sprintf("an admission policy does not hold the agent's token: %s; apply the ValidatingAdmissionPolicies and bindings of deploy/daemonset.yaml (Kubernetes 1.30 or newer)", consequence), "policy", policy)
	case held && known && !was:
		p.Log.InfoContext(ctx, "an admission policy holds the agent's token again", "policy", policy)
	}
}
