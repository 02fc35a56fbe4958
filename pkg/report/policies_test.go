package report

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// denied is how the API server refuses by a policy.
func denied(policy string) *metav1.Status {
	resource := "pods"
	if policy == ownEvents {
		resource = "events.events.k8s.io"
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: resource + ` "nodeagent-x" is forbidden: ValidatingAdmissionPolicy '` + policy + `' with binding '` + policy + `' denied request: no`,
	}
}

// A policy holds when it refuses by its name; another answer tells nothing of it.
func TestPoliciesAreTried(t *testing.T) {
	forbidden := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: `events.events.k8s.io is forbidden: User "x" cannot create resource`}
	for what, tc := range map[string]struct {
		// elsewhere is the answer about a pod of another node; nil is accepted.
		elsewhere, pods, events *metav1.Status
		want                    map[string]Held
	}{
		"both hold":         {denied(ownNode), denied(ownNode), denied(ownEvents), map[string]Held{ownNode: IsHeld, ownEvents: IsHeld}},
		"none is bound":     {nil, nil, nil, map[string]Held{ownNode: NotHeld, ownEvents: NotHeld}},
		"one is bound":      {denied(ownNode), denied(ownNode), nil, map[string]Held{ownNode: IsHeld, ownEvents: NotHeld}},
		"of all nodes":      {nil, denied(ownNode), denied(ownEvents), map[string]Held{ownNode: NotHeld, ownEvents: IsHeld}},
		"not the labels":    {denied(ownNode), nil, denied(ownEvents), map[string]Held{ownNode: NotHeld, ownEvents: IsHeld}},
		"half is not known": {forbidden, nil, denied(ownEvents), map[string]Held{ownNode: NotHeld, ownEvents: IsHeld}},
		"half is refused":   {denied("deny-all"), denied(ownNode), denied(ownEvents), map[string]Held{ownNode: NotKnown, ownEvents: IsHeld}},
		"the pod has gone": {status(apierrors.NewNotFound(pods, "nodeagent-y")), denied(ownNode), denied(ownEvents),
			map[string]Held{ownNode: IsHeld, ownEvents: IsHeld}},
		"somebody else's":     {denied(ownNode), denied("deny-all"), forbidden, map[string]Held{ownNode: NotKnown, ownEvents: NotKnown}},
		"the other's refusal": {denied(ownNode), denied(ownEvents), denied(ownNode), map[string]Held{ownNode: NotKnown, ownEvents: NotKnown}},
		"its words quoted": {denied(ownNode), &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
			Reason: metav1.StatusReasonForbidden, Message: `admission webhook "x" denied the request: ` + denied(ownNode).Message},
			denied(ownEvents), map[string]Held{ownNode: NotKnown, ownEvents: IsHeld}},
	} {
		g := newRig(t)
		g.api.objects["/api/v1/namespaces/agents/pods"] = &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "nodeagent-y"}}}}
		g.api.answer = func(r request) *metav1.Status {
			switch {
			case r.Method == http.MethodGet:
				return nil
			case strings.Contains(r.Path, "/pods/nodeagent-y/"):
				return tc.elsewhere
			case strings.Contains(r.Path, "/pods/"):
				return tc.pods
			}
			return tc.events
		}
		p := &Policies{Client: g.r.client, Namespace: "agents", Pod: "nodeagent-x", Node: "node-a", Log: slog.New(slog.DiscardHandler)}
		p.try(t.Context())
		if got := p.Held(); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
		made := g.api.took()
		if len(made) != 4 || made[1].Path != "/api/v1/namespaces/agents/pods/nodeagent-y/status" ||
			made[2].Path != "/api/v1/namespaces/agents/pods/nodeagent-x/status" || made[3].Path != "/apis/events.k8s.io/v1/namespaces/agents/events" {
			t.Errorf("%s: %+v", what, made)
		}
		for _, r := range made[1:] {
			if r.DryRun != "All" {
				t.Errorf("%s: %s is no dry run", what, r.Path)
			}
		}
		p.tried(t.Context(), ownNode, errors.New("nobody answers"))
		if got := p.Held(); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v after an answer of nobody", what, got)
		}
		for _, required := range []bool{false, true} {
			p.Required = required
			if got, want := p.mayWrite(), !required || tc.want[ownNode] == IsHeld && tc.want[ownEvents] == IsHeld; got != want {
				t.Errorf("%s, required %v: may write %v", what, required, got)
			}
		}
		m := NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), func() Counts { return Counts{Held: p.Held()} })
		if n := testutil.CollectAndCount(m, "nodeagent_token_held"); n != len(tc.want) {
			t.Errorf("%s: %d series", what, n)
		}
	}
	if !(*Policies)(nil).mayWrite() || (*Policies)(nil).Held() != nil {
		t.Error("without an own pod nothing is known, and it is written")
	}
}

// In a cluster of one node, the labels tell.
func TestPoliciesOfOneNode(t *testing.T) {
	g := newRig(t)
	g.api.objects["/api/v1/namespaces/agents/pods"] = new(metav1.PartialObjectMetadataList)
	g.api.answer = func(r request) *metav1.Status {
		if r.Method == http.MethodGet {
			return nil
		}
		return denied(ownNode)
	}
	p := &Policies{Client: g.r.client, Namespace: "agents", Pod: "nodeagent-x", Node: "node-a", Log: slog.New(slog.DiscardHandler)}
	p.try(t.Context())
	if got := p.Held()[ownNode]; got != IsHeld {
		t.Errorf("%v", got)
	}
}

// They are tried again after an hour, and after a minute while they are not known to hold.
func TestPoliciesAreTriedAgain(t *testing.T) {
	for rest, held := range map[time.Duration]map[string]Held{
		time.Hour: {ownNode: IsHeld, ownEvents: IsHeld}, time.Minute: {ownNode: IsHeld, ownEvents: NotHeld},
	} {
		if p := (&Policies{held: held}); p.rest() != rest {
			t.Errorf("%v: again after %s", held, p.rest())
		}
	}
	if got := new(Policies).rest(); got != time.Minute {
		t.Errorf("of which nothing is known: again after %s", got)
	}
}

// Nothing is written while the policies that are required do not hold, and what is due is written when they do.
func TestNothingIsWrittenUnheld(t *testing.T) {
	g := newRig(t)
	g.r.Policies = &Policies{Required: true, held: map[string]Held{ownNode: IsHeld, ownEvents: NotHeld}}
	g.quiet("a verdict", g.look(0, blocked("ShimHung")))
	g.r.ReportRemains(t.Context(), g.pod, g.now, "ShimHung", "left")
	g.r.ReportOrphan(t.Context(), g.pod, g.now, "left")
	g.r.ReportGone(t.Context(), g.judged(blocked("ShimHung")), g.now, blocked("ShimHung"))
	g.quiet("what is told of pods that are gone", g.api.took())
	g.r.Policies.held[ownEvents] = IsHeld
	if made := g.look(time.Second, blocked("ShimHung")); len(made) != 2 {
		t.Errorf("%d writes when they hold", len(made))
	}
}
