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

	corev1 "k8s.io/api/core/v1"
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
	held map[string]Held // by policy, of those that were tried
}

// Held is what the last answer to a try says of a policy.
type Held int

// The answers. NotKnown is that something else refused the try: RBAC, or a policy or a webhook of
// somebody else's.
const (
	NotKnown Held = iota - 1
	NotHeld
	IsHeld
)

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

// Held returns whether each policy holds, of those that were tried; of nil none was.
func (p *Policies) Held() map[string]Held {
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
	return held[ownNode] == IsHeld && held[ownEvents] == IsHeld
}

// mayWrite reports whether the agent may write, as far as that depends on its policies.
func (p *Policies) mayWrite() bool { return p == nil || !p.Required || p.hold() }

func (p *Policies) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	p.tried(ctx, ownNode, append(p.tryElsewhere(ctx), p.tryLabel(ctx))...)
	p.tried(ctx, ownEvents, p.tryEvent(ctx))
}

// tryElsewhere gives a pod of another node a condition that the agent may give those of its own. It returns no answer when the
// agent's namespace has no such pod, as in a cluster of one node.
func (p *Policies) tryElsewhere(ctx context.Context) []error {
	name, err := p.Client.PodElsewhere(ctx, p.Namespace, p.Node)
	if err != nil || name == "" {
		return nil // what nobody tells is no answer
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{
		{Type: verdict.ConditionType, Status: corev1.ConditionFalse, Reason: "NotHeld", Message: resolvedMessage},
	}}})
	if err != nil {
		return []error{err}
	}
	err = p.Client.PatchPodStatus(ctx, p.Namespace, name, body, metav1.PatchOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return []error{err}
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
	ev := r.event(verdict.Subject{Kind: verdict.Pod, Namespace: p.Namespace, Name: p.Pod}, time.Now(), corev1.EventTypeWarning, "NotHeld", "Stuck: a test.")
	ev.Name, ev.ReportingController = eventName(verdict.Subject{Name: p.Pod}, "held"), "kubelet"
	return p.Client.CreateEvent(ctx, ev, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
}

// deniedByOwn is the begin of the answer when a policy of the agent's refuses.
var deniedByOwn = regexp.MustCompile(`^[a-z0-9.]+ "[a-z0-9.-]+" is forbidden: ` +
	`ValidatingAdmissionPolicy '(` + ownPolicies + `[a-z]+)' with binding '[a-zA-Z0-9.-]+' denied request`)

// refusedBy returns which policy of the agent's has refused a request; "" for none.
func refusedBy(answer error) string {
	var status apierrors.APIStatus
	if !errors.As(answer, &status) {
		return ""
	}
	if m := deniedByOwn.FindStringSubmatch(status.Status().Message); m != nil {
		return m[1]
	}
	return ""
}

// tried takes note of the answers to a policy's tries, of which the worst counts. That nobody answers one tells nothing new.
func (p *Policies) tried(ctx context.Context, policy string, answers ...error) {
	now, unknown := IsHeld, error(nil)
	for _, answer := range answers {
		var status apierrors.APIStatus
		switch {
		case answer == nil:
			now = NotHeld
		case !errors.As(answer, &status):
			p.Log.DebugContext(ctx, "cannot test whether an admission policy restricts the agent's token", "policy", policy, "error", answer)
			return
		case refusedBy(answer) != policy && now == IsHeld:
			now, unknown = NotKnown, answer
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.held[policy]
	if p.held == nil {
		p.held = make(map[string]Held)
	}
	p.held[policy] = now
	if known && was == now {
		return
	}
	consequence := "whoever has the token can use all of its RBAC permissions"
	if p.Required {
		consequence = "nodeagent writes nothing until it does"
	}
	switch {
	case now == NotHeld:
		p.Log.ErrorContext(ctx, fmt.Sprintf("admission policy does not restrict the agent's token: %s; "+
			"apply the ValidatingAdmissionPolicies and bindings of deploy/daemonset.yaml or of the chart, for this namespace and service account "+
			"(Kubernetes 1.30 or newer)", consequence), "policy", policy)
	case now == NotKnown:
		p.Log.WarnContext(ctx, "cannot tell whether an admission policy restricts the agent's token, "+
			"because something else rejects the test request", "policy", policy, "error", unknown)
	case known:
		p.Log.InfoContext(ctx, "admission policy restricts the agent's token", "policy", policy)
	}
}
