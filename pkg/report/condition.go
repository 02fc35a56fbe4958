package report

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionType is the type of the condition that says why a pod does not go.
const ConditionType corev1.PodConditionType = "nodeagent.io/TerminationBlocked"

// The reason and message of a condition whose cause is gone.
const (
	resolvedReason  = "Resolved"
	resolvedMessage = "The cause reported earlier is gone, and no other was found."
)

const (
	// cacheLag is how long after a write the pod from the cache may still be
	// the old one. Later the cache is believed again, so that a condition which
	// somebody removed comes back.
	cacheLag = 30 * time.Second
	// rewordAfter is the least time between two writes that change nothing but
	// words. Each write goes to everybody who watches the pod.
	rewordAfter = time.Minute
)

// A standing is the condition as it stands on a pod, as far as is known.
type standing struct {
	written *corev1.PodCondition // what was written last; nil for nothing
	at      time.Time            // when
	retry   backoff
}

// now gives the condition that stands on the pod, nil for none.
func (s *standing) now(pod *corev1.Pod, t time.Time) *corev1.PodCondition {
	if s.written != nil && t.Sub(s.at) < cacheLag {
		return s.written
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == ConditionType {
			return c
		}
	}
	return nil
}

// cause gives the cause that stands on the pod, "" for none.
func (s *standing) cause(pod *corev1.Pod, t time.Time) string {
	if c := s.now(pod, t); c != nil && c.Status == corev1.ConditionTrue {
		return c.Reason
	}
	return ""
}

// next gives the condition to write, or false when the one that stands will do.
// The transition time moves only with the status.
func (s *standing) next(pod *corev1.Pod, t time.Time, status corev1.ConditionStatus, reason, message string) (corev1.PodCondition, bool) {
	want := corev1.PodCondition{
		Type:               ConditionType,
		Status:             status,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: pod.Generation,
		LastTransitionTime: metav1.NewTime(t),
	}
	have := s.now(pod, t)
	if have == nil {
		return want, true
	}
	if have.Status == want.Status && !have.LastTransitionTime.IsZero() {
		want.LastTransitionTime = have.LastTransitionTime
	}
	if have.Status != want.Status || have.Reason != want.Reason {
		return want, true
	}
	return want, have.Message != want.Message && (s.at.IsZero() || t.Sub(s.at) >= rewordAfter)
}

// conditionPatch is a strategic merge patch: conditions are merged by type, so
// those of others stay. The UID makes sure that it is this pod and not a new
// one of the same name.
func conditionPatch(uid types.UID, c corev1.PodCondition) ([]byte, error) {
	type patch struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
		Status struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}
	var p patch
	p.Metadata.UID = uid
	// A map, because PodCondition always has lastProbeTime, which is not ours.
	p.Status.Conditions = []map[string]any{{
		"type":               c.Type,
		"status":             c.Status,
		"reason":             c.Reason,
		"message":            c.Message,
		"lastTransitionTime": c.LastTransitionTime,
		"observedGeneration": c.ObservedGeneration,
	}}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode condition: %w", err)
	}
	return b, nil
}

func (r *Reporter) reportCondition(ctx context.Context, pod *corev1.Pod, t time.Time, s *standing, status corev1.ConditionStatus, reason, message string) {
	c, due := s.next(pod, t, status, reason, message)
	if !due || s.retry.waits(t) {
		return
	}
	err := r.patchCondition(ctx, pod, c)
	res := resultOf(err)
	r.metrics.wrote(kindCondition, res)
	switch res {
	case resultDone:
		s.written, s.at = &c, t
		s.retry.succeeded()
	case resultGone:
		// The pod is gone, or a newer writer won. If it is still there after
		// the pause, the condition is written again.
		s.retry.failed(t)
	default:
		s.retry.failed(t)
		r.logFailure("cannot write the condition", pod, s.retry.failures, err)
	}
}

func (r *Reporter) patchCondition(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	body, err := conditionPatch(pod.UID, c)
	if err != nil {
		return err
	}
	return r.client.PatchPodStatus(ctx, pod.Namespace, pod.Name, body, metav1.PatchOptions{FieldManager: fieldManager})
}

// The results of a write, a label of nodeagent_writes_total.
const (
	resultDone    = "done"
	resultGone    = "gone"    // the object is gone or another one: nothing is left to do
	resultRefused = "refused" // forbidden, by RBAC or by an admission policy
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
