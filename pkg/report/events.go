package report

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

const (
	controller   = "nodeagent.io/nodeagent"
	fieldManager = "nodeagent"
	// actionTerminating is the Event's action: what was being done to the pod.
	actionTerminating = "Terminating"
	// nodeNamespace is where Events about objects without a namespace live.
	nodeNamespace = metav1.NamespaceDefault

	maxEventName         = 253 // a DNS subdomain
	maxReportingInstance = 128 // pkg/apis/core/validation/events.go
	maxReason            = 128

	// confirmAfter is the time between two confirmations of an Event whose
	// cause stands. An Event lives for an hour after its last write by default.
	confirmAfter = 10 * time.Minute
)

// A told is what is known of the Event about a pod's present cause.
type told struct {
	cause string
	// looks counts the looks that found this cause in a row.
	looks     int
	namespace string // where the Event is; "" while it is not known to exist
	count     int32
	observed  time.Time
	retry     backoff
}

// reportEvent tells the cause once, and confirms it from time to time. An Event
// cannot be taken back, so one about a cause that is not proved waits for the
// second look to agree.
func (r *Reporter) reportEvent(ctx context.Context, pod *corev1.Pod, t time.Time, e *told, f *diagnose.Finding, text string) {
	if e.cause != f.Cause {
		*e = told{cause: f.Cause}
	}
	e.looks++
	if e.looks < 2 && f.Confidence != diagnose.Proved || e.retry.waits(t) {
		return
	}
	var err error
	if e.namespace == "" {
		err = r.tell(ctx, pod, t, e, text)
	} else if t.Sub(e.observed) >= confirmAfter {
		err = r.confirm(ctx, pod, t, e)
	} else {
		return
	}
	switch {
	case err == nil:
		e.retry.succeeded()
	case resultOf(err) == resultGone:
		e.retry.failed(t)
	default:
		e.retry.failed(t)
		r.logFailure("cannot write the Event", pod, e.retry.failures, err)
	}
}

// tell creates the Event, or finds the one that an agent before this one has
// created. A namespace that is being deleted takes no new Events: then it is
// told on the node.
func (r *Reporter) tell(ctx context.Context, pod *corev1.Pod, t time.Time, e *told, text string) error {
	ev := r.podEvent(pod, t, e.cause, text)
	kind := kindEvent
	err := r.create(ctx, ev, kind)
	if inTerminatingNamespace(err) {
		ev, kind = r.nodeEvent(pod, t, e.cause, text), kindNodeEvent
		err = r.create(ctx, ev, kind)
	}
	if apierrors.IsAlreadyExists(err) {
		return r.adopt(ctx, ev, e)
	}
	if err != nil {
		return fmt.Errorf("create Event %s/%s: %w", ev.Namespace, ev.Name, err)
	}
	r.metrics.told.WithLabelValues(e.cause).Inc()
	e.namespace, e.count, e.observed = ev.Namespace, 1, t
	return nil
}

func (r *Reporter) create(ctx context.Context, ev *eventsv1.Event, kind string) error {
	err := r.client.CreateEvent(ctx, ev, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		r.metrics.wrote(kind, resultDone)
	case inTerminatingNamespace(err):
		r.metrics.wrote(kind, resultGone)
	default:
		r.metrics.wrote(kind, resultOf(err))
	}
	return err
}

// adopt goes on with an Event that is already there.
func (r *Reporter) adopt(ctx context.Context, ev *eventsv1.Event, e *told) error {
	have, err := r.client.Event(ctx, ev.Namespace, ev.Name)
	if err != nil {
		return fmt.Errorf("get Event %s/%s: %w", ev.Namespace, ev.Name, err)
	}
	e.namespace, e.count, e.observed = ev.Namespace, 1, have.EventTime.Time
	if have.Series != nil {
		e.count, e.observed = have.Series.Count, have.Series.LastObservedTime.Time
	}
	return nil
}

// confirm writes that the cause still stands. An Event that is gone, expired or
// deleted with its namespace, is created anew at the next look.
func (r *Reporter) confirm(ctx context.Context, pod *corev1.Pod, t time.Time, e *told) error {
	name := eventName(pod, e.cause)
	body, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{
		Count:            max(e.count, 1) + 1,
		LastObservedTime: metav1.NewMicroTime(t),
	}})
	if err != nil {
		return fmt.Errorf("encode Event series: %w", err)
	}
	err = r.client.PatchEvent(ctx, e.namespace, name, body, metav1.PatchOptions{FieldManager: fieldManager})
	r.metrics.wrote(kindEventSeries, resultOf(err))
	if apierrors.IsNotFound(err) {
		e.namespace = ""
		return nil
	}
	if err != nil {
		return fmt.Errorf("confirm Event %s/%s: %w", e.namespace, name, err)
	}
	e.count, e.observed = max(e.count, 1)+1, t
	return nil
}

// podEvent is the Event on the pod. With apiVersion in its reference, `kubectl
// describe pod` and `kubectl events --for` find it. The pod need not exist any
// more.
func (r *Reporter) podEvent(pod *corev1.Pod, t time.Time, cause, text string) *eventsv1.Event {
	return r.event(pod, t, cause, text, pod.Namespace, corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  pod.Namespace,
		Name:       pod.Name,
		UID:        pod.UID,
	})
}

// nodeEvent is the Event on the node, for a pod whose namespace takes none.
func (r *Reporter) nodeEvent(pod *corev1.Pod, t time.Time, cause, text string) *eventsv1.Event {
	text = cut("Pod "+pod.Namespace+"/"+pod.Name+": "+text, maxNote)
	return r.event(pod, t, cause, text, nodeNamespace, corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       r.node,
		// The kubelet's own Events refer to the node by its name as UID, and
		// `kubectl describe node` looks for them so.
		UID: types.UID(r.node),
	})
}

func (r *Reporter) event(pod *corev1.Pod, t time.Time, cause, text, namespace string, about corev1.ObjectReference) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      eventName(pod, cause),
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodeagent"},
		},
		EventTime:           metav1.NewMicroTime(t),
		Type:                corev1.EventTypeWarning,
		Reason:              firstBytes(cause, maxReason),
		Action:              actionTerminating,
		Note:                text,
		Regarding:           about,
		ReportingController: controller,
		ReportingInstance:   firstBytes(cmp.Or(r.node, "unknown"), maxReportingInstance),
	}
}

// eventName follows from the pod and the cause alone, so that a second agent,
// or this one after a restart, creates no second Event.
func eventName(pod *corev1.Pod, cause string) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + "/" + cause))
	hash := "." + hex.EncodeToString(sum[:8])
	// A cut may leave a dot or a dash at the end, which must not stand before the dot.
	return strings.TrimRight(firstBytes(pod.Name, maxEventName-len(hash)), ".-") + hash
}

// firstBytes cuts an ASCII name.
func firstBytes(s string, n int) string { return s[:min(len(s), n)] }

// inTerminatingNamespace recognises the refusal of a new object in a namespace
// that is being deleted
// (k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go).
func inTerminatingNamespace(err error) bool {
	return apierrors.IsForbidden(err) &&
		(apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || strings.Contains(err.Error(), "because it is being terminated"))
}

// hasFieldCause reports whether the API server's answer blames a field.
func hasFieldCause(err error, field string) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) || s.Status().Details == nil {
		return false
	}
	for _, c := range s.Status().Details.Causes {
		if c.Field == field {
			return true
		}
	}
	return false
}
