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

	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// FieldManager is the field manager of each write, which the admission policies
// insist on.
const FieldManager = "nodeagent"

const (
	controller = "nodeagent.io/nodeagent"
	// actionTerminating is the Event's action: what was being done to the pod.
	actionTerminating = "Terminating"
	// nodeNamespace is where Events about objects without a namespace live.
	nodeNamespace = metav1.NamespaceDefault

	maxEventName         = 253 // a DNS subdomain
	maxReportingInstance = 128 // pkg/apis/core/validation/events.go
	maxReason            = 128
)

// reportEvent writes an Event about the cause once, and confirms it from time to
// time.
func (r *Reporter) reportEvent(ctx context.Context, c *verdict.Case, cause, text string) {
	known, due := c.EventDue()
	if !due {
		return
	}
	var err error
	if known == nil {
		known, err = r.tell(ctx, c.Subject, c.Last.Time, cause, text)
	} else {
		known, err = r.confirm(ctx, c.Subject, c.Last.Time, cause, *known)
	}
	if err == nil {
		c.EventWritten(known)
		return
	}
	if failures := c.EventFailed(); resultOf(err) != resultGone {
		r.logFailure("write Event", c.Subject, failures, err)
	}
}

// tell creates the Event, or finds the one that an agent before this one has
// created. A namespace that is being deleted takes no new Events: then it is
// told on the node.
func (r *Reporter) tell(ctx context.Context, s verdict.Subject, t time.Time, cause, text string) (*verdict.Event, error) {
	ev, kind := r.event(s, s, t, cause, text), kindEvent
	err := r.create(ctx, ev, kind)
	if inTerminatingNamespace(err) {
		ev, kind = r.nodeEvent(s, t, cause, text), kindNodeEvent
		err = r.create(ctx, ev, kind)
	}
	if apierrors.IsAlreadyExists(err) {
		return r.adopt(ctx, ev)
	}
	if err != nil {
		return nil, fmt.Errorf("create Event %s/%s: %w", ev.Namespace, ev.Name, err)
	}
	r.metrics.told.WithLabelValues(cause).Inc()
	return &verdict.Event{Namespace: ev.Namespace, Count: 1, Observed: t}, nil
}

func (r *Reporter) create(ctx context.Context, ev *eventsv1.Event, kind string) error {
	err := r.client.CreateEvent(ctx, ev, metav1.CreateOptions{FieldManager: FieldManager})
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

// adopt returns the state of an Event that is there already, to go on with it.
func (r *Reporter) adopt(ctx context.Context, ev *eventsv1.Event) (*verdict.Event, error) {
	have, err := r.client.Event(ctx, ev.Namespace, ev.Name)
	if err != nil {
		return nil, fmt.Errorf("get Event %s/%s: %w", ev.Namespace, ev.Name, err)
	}
	known := &verdict.Event{Namespace: ev.Namespace, Count: 1, Observed: have.EventTime.Time}
	if have.Series != nil {
		known.Count, known.Observed = have.Series.Count, have.Series.LastObservedTime.Time
	}
	return known, nil
}

// confirm writes that the cause still stands. It returns nil for an Event that
// is gone, expired or deleted with its namespace: it is created anew at the next
// look.
func (r *Reporter) confirm(ctx context.Context, s verdict.Subject, t time.Time, cause string, known verdict.Event) (*verdict.Event, error) {
	name := eventName(s, cause)
	known.Count, known.Observed = max(known.Count, 1)+1, t
	body, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{
		Count:            known.Count,
		LastObservedTime: metav1.NewMicroTime(t),
	}})
	if err != nil {
		return nil, fmt.Errorf("encode Event series: %w", err)
	}
	err = r.client.PatchEvent(ctx, known.Namespace, name, body, metav1.PatchOptions{FieldManager: FieldManager})
	r.metrics.wrote(kindEventSeries, resultOf(err))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("confirm Event %s/%s: %w", known.Namespace, name, err)
	}
	return &known, nil
}

// nodeEvent returns the Event on the node, for a pod whose namespace takes none.
func (r *Reporter) nodeEvent(s verdict.Subject, t time.Time, cause, text string) *eventsv1.Event {
	text = cut("Pod "+s.Namespace+"/"+s.Name+": "+text, maxNote)
	return r.event(s, verdict.Subject{Kind: verdict.Node, Name: r.node}, t, cause, text)
}

// event returns an Event about s that is told on the object on.
func (r *Reporter) event(s, on verdict.Subject, t time.Time, cause, text string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(on.Namespace, nodeNamespace),
			Name:      eventName(s, cause),
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodeagent"},
		},
		EventTime:           metav1.NewMicroTime(t),
		Type:                corev1.EventTypeWarning,
		Reason:              firstBytes(cause, maxReason),
		Action:              actionTerminating,
		Note:                text,
		Regarding:           reference(on),
		ReportingController: controller,
		ReportingInstance:   firstBytes(cmp.Or(r.node, "unknown"), maxReportingInstance),
	}
}

// reference returns how an Event refers to its object. With apiVersion in it,
// `kubectl describe` and `kubectl events --for` find the Event. The kubelet's own
// Events refer to a node by its name as UID, and `kubectl describe node` looks
// for them so.
func reference(s verdict.Subject) corev1.ObjectReference {
	uid := s.UID
	if s.Kind == verdict.Node {
		uid = s.Name
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: string(s.Kind), Namespace: s.Namespace, Name: s.Name, UID: types.UID(uid)}
}

// eventName follows from the UID and the cause alone, so that a second agent,
// or this one after a restart, creates no second Event.
func eventName(s verdict.Subject, cause string) string {
	sum := sha256.Sum256([]byte(s.UID + "/" + cause))
	hash := "." + hex.EncodeToString(sum[:8])
	// A cut may leave a dot or a dash at the end, which must not stand before the dot.
	return strings.TrimRight(firstBytes(s.Name, maxEventName-len(hash)), ".-") + hash
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
