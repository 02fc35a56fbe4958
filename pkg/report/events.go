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
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// FieldManager is the field manager of each write, which the admission policies
// insist on.
const FieldManager = verdict.FieldManager

const (
	controller = "nodeagent.io/nodeagent"
	// actionTerminating is the Event's action: what was being done to the pod.
	actionTerminating = "Terminating"
	// nodeNamespace is where Events about objects without a namespace live.
	nodeNamespace = metav1.NamespaceDefault

	maxEventName         = 253 // a DNS subdomain
	maxReportingInstance = 128 // pkg/apis/core/validation/events.go
	maxReason            = 128

	mostEventNames = 4 // of an Event, all but one for when others have taken the ones before
)

// reportEvent writes an Event about the cause once, and confirms it from time to
// time.
func (r *Reporter) reportEvent(ctx context.Context, c *verdict.Case, e telling) {
	known, due := c.EventDue()
	if !due {
		return
	}
	var err error
	if known == nil {
		known, err = r.tell(ctx, c.Subject, c.Last.Time, e)
	} else {
		known, err = r.confirm(ctx, c.Last.Time, *known)
	}
	if err == nil {
		c.EventWritten(known)
		r.tellNode(ctx, c.Last.Time, e)
		return
	}
	if failures := c.EventFailed(unreachable(err)); resultOf(err) != resultGone {
		r.logFailure("cannot write the Event", c.Subject, failures, err)
	}
}

// A telling is what an Event about a finding says: on the pod, and on the node for a pod whose namespace takes no Event. ofNode is
// what is said on the node beside that, of what holds up all of its pods; "" for all else.
type telling struct {
	cause, family, kind   string
	onPod, onNode, ofNode string
}

// nodeAgain is after how long the same is told on the node again: the API server keeps an Event for an hour.
const nodeAgain = time.Hour

// tellNode writes an Event on the node, once for all of its pods, of what holds them all up. Nobody waits for another pod's report to write it;
// what could not be written is written with the next report.
func (r *Reporter) tellNode(ctx context.Context, t time.Time, e telling) {
	key := e.cause + "/" + e.family
	r.mu.Lock()
	before := r.told[key]
	due := e.ofNode != "" && (before.IsZero() || t.Sub(before) >= nodeAgain)
	if due {
		r.told[key] = t
	}
	r.mu.Unlock()
	if !due {
		return
	}
	self := r.self()
	if _, err := r.createOrAdopt(ctx, r.event(self, t, e.kind, e.cause, e.ofNode), eventNames(self, key, r.node), kindNodeEvent); err != nil {
		r.logFailure("cannot write the Event on the node", self, 1, err)
		r.mu.Lock()
		r.told[key] = before
		r.mu.Unlock()
	}
}

// tellingOf composes it.
func tellingOf(d *diagnose.Diagnosis, f *diagnose.Finding, c *verdict.Case) telling {
	a := about{subject: c.Subject, timeline: c.Timeline(), conditioned: c.HasCondition()}
	if at := c.Since(); !at.IsZero() {
		a.since = at.UTC().Format("15:04:05 UTC")
		if at.UTC().Format(time.DateOnly) != c.Last.Time.UTC().Format(time.DateOnly) {
			a.since = at.UTC().Format("2006-01-02 15:04:05 UTC")
		}
	}
	return a.compose(d, f)
}

// An about is what a telling says of the pod beside the finding.
type about struct {
	subject verdict.Subject
	// since is when the grace period was over, "" inside of it.
	since, timeline string
	// conditioned says that the pod has the condition, which has the rest.
	conditioned bool
}

func (a about) compose(d *diagnose.Diagnosis, f *diagnose.Finding) telling {
	t := telling{
		cause: f.Cause, family: f.Family, kind: corev1.EventTypeWarning,
		onPod: note(d, f, a.since, a.subject), onNode: alone(d, f, a.timeline, "Pod "+podName(a.subject)+": "),
	}
	if f.WholeNode {
		t.ofNode = within(mostNote, lead(d, f, "")+clean(f.Message), labelled("Who", f.Acts()), labelled("First", f.First), labelled("Avoid", f.Avoid),
			"First seen with pod "+podName(a.subject), more+pageOf(f.Cause))
	}
	if f.Quiet {
		t.kind = corev1.EventTypeNormal
	}
	if d.Gone || !a.conditioned {
		t.onPod = alone(d, f, a.timeline, "")
	}
	return t
}

// podName is the namespace and the name of a pod as text.
func podName(s verdict.Subject) string { return diagnose.Foreign(s.Namespace+"/"+s.Name, 320) }

// tell creates the Event, or finds the one that an agent before this one has created. A namespace that is being deleted takes no new
// Events: then it is told on the node.
func (r *Reporter) tell(ctx context.Context, s verdict.Subject, t time.Time, e telling) (*verdict.Event, error) {
	names := eventNames(s, e.cause, r.node)
	known, err := r.createOrAdopt(ctx, r.event(s, t, e.kind, e.cause, e.onPod), names, kindEvent)
	if inTerminatingNamespace(err) {
		known, err = r.createOrAdopt(ctx, r.event(r.self(), t, e.kind, e.cause, e.onNode), names, kindNodeEvent)
	}
	return known, err
}

// self is the node as what an Event is about.
func (r *Reporter) self() verdict.Subject { return verdict.Subject{Kind: verdict.Node, Name: r.node} }

// createOrAdopt creates the Event under the first of the names that is free, or
// returns the state of the agent's own that is there under a name before it. An
// Event of somebody else's is left alone: whoever may create Events in the
// namespace can work out the names.
func (r *Reporter) createOrAdopt(ctx context.Context, ev *eventsv1.Event, names []string, kind string) (*verdict.Event, error) {
	for _, ev.Name = range names {
		err := r.client.CreateEvent(ctx, ev, metav1.CreateOptions{FieldManager: FieldManager})
		switch {
		case err == nil:
			r.metrics.wrote(kind, resultDone)
			r.metrics.told.WithLabelValues(ev.Reason).Inc()
			return stateOf(ev), nil
		case inTerminatingNamespace(err):
			r.metrics.wrote(kind, resultGone)
			return nil, err
		case !apierrors.IsAlreadyExists(err):
			r.metrics.wrote(kind, resultOf(err))
			return nil, fmt.Errorf("create Event %s/%s: %w", ev.Namespace, ev.Name, err)
		}
		have, err := r.client.Event(ctx, ev.Namespace, ev.Name)
		if err != nil {
			r.metrics.wrote(kind, resultOf(err))
			return nil, fmt.Errorf("get Event %s/%s: %w", ev.Namespace, ev.Name, err)
		}
		if isSame(have, ev) {
			r.metrics.wrote(kind, resultDone)
			return stateOf(have), nil
		}
	}
	r.metrics.wrote(kind, resultRefused)
	return nil, fmt.Errorf("create Event %s/%s: Events of other controllers have this name and the %d before it", ev.Namespace, ev.Name, len(names)-1)
}

// isSame reports whether an Event is from this node's agent and about the same
// object and cause as another one. Its note may have other words: an earlier
// version of the agent wrote it.
func isSame(have, as *eventsv1.Event) bool {
	return have.ReportingController == as.ReportingController && have.ReportingInstance == as.ReportingInstance &&
		have.Regarding.UID == as.Regarding.UID && have.Reason == as.Reason
}

// stateOf returns what is to be known of an Event to confirm it.
func stateOf(e *eventsv1.Event) *verdict.Event {
	known := &verdict.Event{Namespace: e.Namespace, Name: e.Name, Count: 1, Observed: e.EventTime.Time}
	if e.Series != nil {
		known.Count, known.Observed = e.Series.Count, e.Series.LastObservedTime.Time
	}
	return known
}

// confirm writes that the cause still stands. It returns nil for an Event that
// is gone, expired or deleted with its namespace: it is created anew at the next
// look.
func (r *Reporter) confirm(ctx context.Context, t time.Time, known verdict.Event) (*verdict.Event, error) {
	known.Count, known.Observed = max(known.Count, 1)+1, t
	body, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{
		Count:            known.Count,
		LastObservedTime: metav1.NewMicroTime(t),
	}})
	if err != nil {
		return nil, fmt.Errorf("encode Event series: %w", err)
	}
	err = r.client.PatchEvent(ctx, known.Namespace, known.Name, body, metav1.PatchOptions{FieldManager: FieldManager})
	r.metrics.wrote(kindEventSeries, resultOf(err))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("confirm Event %s/%s: %w", known.Namespace, known.Name, err)
	}
	return &known, nil
}

// event returns an Event that is told on an object. It has no name yet.
func (r *Reporter) event(on verdict.Subject, t time.Time, kind, cause, text string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(on.Namespace, nodeNamespace),
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "nodeagent"},
		},
		EventTime:           metav1.NewMicroTime(t),
		Type:                kind,
		Reason:              firstBytes(cause, maxReason),
		Action:              actionTerminating,
		Note:                text,
		Regarding:           reference(on),
		ReportingController: controller,
		ReportingInstance:   firstBytes(cmp.Or(r.node, "unknown"), maxReportingInstance),
	}
}

// reference returns how an Event refers to its object. With apiVersion in it,
// `kubectl describe` and `kubectl events --for` find the Event; that of a mirror pod by the
// UID of its static pod (k8s.io/kubectl/pkg/describe). The kubelet's own
// Events refer to a node by its name as UID, and `kubectl describe node` looks
// for them so.
func reference(s verdict.Subject) corev1.ObjectReference {
	uid := cmp.Or(s.EventUID, s.UID)
	if s.Kind == verdict.Node {
		uid = s.Name
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: string(s.Kind), Namespace: s.Namespace, Name: s.Name, UID: types.UID(uid)}
}

// eventNames returns the names that an Event about the cause may have, in the
// order in which they are tried. They follow from the pod, the cause and the node
// alone, so that an agent after a restart finds its Event and creates no second one.
func eventNames(s verdict.Subject, cause, node string) []string {
	names := []string{eventName(s, cause)}
	for n := 1; n < mostEventNames; n++ {
		names = append(names, eventName(s, fmt.Sprintf("%s/%s/%d", cause, node, n)))
	}
	return names
}

// eventName returns a name that begins with the pod's, and that tells keys apart.
func eventName(s verdict.Subject, key string) string {
	sum := sha256.Sum256([]byte(s.UID + "/" + key))
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
