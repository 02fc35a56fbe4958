package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// resolvedMessage is the message of a condition whose cause is gone.
const resolvedMessage = "The cause reported earlier is gone, and no other was found."

// conditionPatch is a strategic merge patch: conditions are merged by type, so
// those of others stay. The UID makes sure that it is this pod and not a new
// one of the same name.
func conditionPatch(uid string, c verdict.Condition) ([]byte, error) {
	type patch struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}
	status := corev1.ConditionFalse
	if c.Blocked {
		status = corev1.ConditionTrue
	}
	var p patch
	p.Metadata.UID = uid
	// A map, because PodCondition always has lastProbeTime, which is not ours.
	p.Status.Conditions = []map[string]any{{
		"type":               verdict.ConditionType,
		"status":             status,
		"reason":             c.Reason,
		"message":            c.Message,
		"lastTransitionTime": metav1.NewTime(c.Since),
		"observedGeneration": c.Generation,
	}}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode condition: %w", err)
	}
	return b, nil
}

func (r *Reporter) reportCondition(ctx context.Context, c *verdict.Case, blocked bool, reason, message string) {
	want, due := c.ConditionDue(blocked, reason, message)
	if !due {
		return
	}
	err := r.patchCondition(ctx, c.Subject, want)
	res := resultOf(err)
	r.metrics.wrote(kindCondition, res)
	if res == resultDone {
		c.ConditionWritten(want)
		return
	}
	failures := c.ConditionFailed(refusalOf(err), unreachable(err))
	// Where the pod is gone, or a newer writer won, there is nothing to tell. If it
	// is still there after the pause, the condition is written again.
	if res != resultGone {
		r.logFailure("cannot write the condition", c.Subject, failures, err)
	}
}

func (r *Reporter) patchCondition(ctx context.Context, s verdict.Subject, c verdict.Condition) error {
	write := func(c verdict.Condition) error {
		body, err := conditionPatch(s.UID, c)
		if err != nil {
			return err
		}
		return r.client.PatchPodStatus(ctx, s.Namespace, s.Name, body, metav1.PatchOptions{FieldManager: FieldManager})
	}
	err := write(c)
	if m, ok := condition.Parse(c.Message); ok && len(c.Message) > beforeSize && refusedBy(err) == ownNode {
		// The policies may be of a version that takes less.
		c.Message = m.Within(beforeSize)
		if err = write(c); err == nil {
			r.size.short.Store(true)
			r.metrics.shortened.Inc()
		}
	}
	return err
}

// beforeSize is the size of a message that older admission policies of the agent take.
const beforeSize = 1024

// A size is how long a condition's message may be.
type size struct{ short atomic.Bool }

func (s *size) fit(m condition.Message) string {
	if s.short.Load() {
		return m.Within(beforeSize)
	}
	return m.String()
}

// Who refuses a write is named at the begin of the API server's answer (ToStatusErr and
// ErrCallingWebhook, k8s.io/apiserver/pkg/admission/plugin/webhook/errors and request; Dispatch,
// admission/plugin/policy/validating). What stands behind may be of anybody. Names are those of
// objects of the API, or of a webhook, which is a domain.
var (
	webhookDenied   = regexp.MustCompile(`^admission webhook "([a-zA-Z0-9.-]{1,253})" denied the request(?:: | without explanation|$)`)
	webhookUncalled = regexp.MustCompile(`^Internal error occurred: failed calling webhook "([a-zA-Z0-9.-]{1,253})": `)
	policyDenied    = regexp.MustCompile(`^pods "[a-z0-9.-]+" is forbidden: ValidatingAdmissionPolicy '([a-zA-Z0-9.-]{1,253})' with binding '([a-zA-Z0-9.-]{1,253})' denied request`)
)

// refusalOf returns which webhook or policy has refused a write of a pod's status, nil when the
// answer does not say.
func refusalOf(err error) *evidence.Refusal {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return nil
	}
	text, code := s.Status().Message, strconv.Itoa(int(s.Status().Code))
	if m := webhookDenied.FindStringSubmatch(text); m != nil {
		return &evidence.Refusal{Webhook: m[1], Code: code}
	}
	if m := webhookUncalled.FindStringSubmatch(text); m != nil {
		return &evidence.Refusal{Webhook: m[1], Uncalled: true, Code: code}
	}
	if m := policyDenied.FindStringSubmatch(text); m != nil && !strings.HasPrefix(m[1], ownPolicies) {
		return &evidence.Refusal{Policy: m[1], Binding: m[2], Code: code}
	}
	return nil
}

// unreachable reports whether a write has failed because no API server was there to answer it. One that only
// takes its time may be held up by what it asks about this pod.
func unreachable(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return false // whatever its words are
	}
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// The results of a write, a label of nodeagent_writes_total.
const (
	resultDone    = "done"
	resultGone    = "gone"    // the object is gone or another one: nothing is left to do
	resultRefused = "refused" // forbidden, by RBAC or by an admission policy, or its names are taken
	resultFailed  = "failed"
)

// resultOf sorts the answer to a write. A patch with another pod's UID is
// answered as invalid, because a UID cannot change
// (k8s.io/apiserver/pkg/registry/rest/update.go, BeforeUpdate).
func resultOf(err error) string {
	switch {
	case err == nil:
		return resultDone
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsGone(err):
		return resultGone
	case apierrors.IsInvalid(err) && hasFieldCause(err, "metadata.uid"):
		return resultGone
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err):
		return resultRefused
	}
	return resultFailed
}
