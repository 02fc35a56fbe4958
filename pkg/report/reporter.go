package report

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
)

const (
	// maxPods is how many terminating pods are remembered at a time, many times
	// what a node can run. What is beyond is counted and not reported.
	maxPods = 1000
	// writeTimeout bounds the writes that one look at a pod leads to.
	writeTimeout = 5 * time.Second
)

// A Reporter publishes the diagnoses of one node's pods.
type Reporter struct {
	client  *kube.Client
	node    string
	metrics *Metrics
	log     *slog.Logger

	mu   sync.Mutex
	pods map[string]*memory
}

// A memory is what is known of one pod from one look to the next. It saves
// requests only: all of it can be found again.
type memory struct {
	absence   absence
	condition standing
	event     told
	// told says that there has been an Event about the pod.
	told bool
	// cause is what is told of the pod at present, "" for nothing, and phase
	// the phase it was last found in.
	cause string
	phase diagnose.Phase
}

// New makes a Reporter for the pods of a node.
func New(client *kube.Client, node string, m *Metrics, log *slog.Logger) *Reporter {
	return &Reporter{client: client, node: node, metrics: m, log: log, pods: make(map[string]*memory)}
}

// Report publishes the verdict of one look at a terminating pod, also that
// there is none, or none any more. pod is the API object, from a cache that may
// lag; e gives the time of the look and the pod's deadline. What cannot be
// written is tried again at a later call. Different pods may be reported side
// by side, one pod only once at a time.
func (r *Reporter) Report(ctx context.Context, pod *corev1.Pod, e *evidence.Pod, d diagnose.Diagnosis) {
	r.metrics.looked(e)
	uid := string(pod.UID)
	m := r.remember(uid)
	if m == nil {
		r.metrics.overflowed()
		return
	}
	ctx, cancel := writeContext(ctx)
	defer cancel()

	t := e.Time
	// What an agent before this one has said stands on the pod; so does what
	// this one could not take back yet.
	cause := cmp.Or(m.cause, m.condition.cause(pod, t))
	act, f := m.absence.judge(t, cause, &d)
	switch act {
	case tell:
		m.cause, m.phase = f.Cause, d.Phase
		text := note(&d, &f)
		r.metrics.stuck(series{pod.Namespace, pod.Name, uid, f.Cause, d.Phase}, e.Deadline)
		r.reportCondition(ctx, pod, t, &m.condition, corev1.ConditionTrue, f.Cause, text)
		r.reportEvent(ctx, pod, t, &m.event, &f, text)
		m.told = m.told || m.event.namespace != ""
	case hold:
		m.cause, m.phase = cause, cmp.Or(m.phase, d.Phase)
		r.metrics.stuck(series{pod.Namespace, pod.Name, uid, cause, m.phase}, e.Deadline)
	case withdraw:
		m.cause, m.phase, m.event = "", "", told{}
		r.metrics.ended(uid)
		r.reportCondition(ctx, pod, t, &m.condition, corev1.ConditionFalse, resolvedReason, resolvedMessage)
	case silence:
		m.event = told{}
		r.metrics.ended(uid)
	}
}

// ReportGone tells in an Event what kept a pod until it was killed, when the pod
// has gone already: its condition has gone with it. e and d are the last look at
// it. Where a cause was told while the pod was there, that was why it stayed.
func (r *Reporter) ReportGone(ctx context.Context, pod *corev1.Pod, e *evidence.Pod, d diagnose.Diagnosis) {
	f, ok := d.Verdict()
	if !ok {
		return
	}
	r.mu.Lock()
	m := r.pods[string(pod.UID)]
	r.mu.Unlock()
	if m != nil && m.told {
		return
	}
	ctx, cancel := writeContext(ctx)
	defer cancel()
	if err := r.tell(ctx, pod, e.Time, &told{cause: f.Cause}, note(&d, &f)); err != nil {
		r.logFailure("cannot write the Event about a pod that is gone", pod, 1, err)
	}
}

// Forget drops what is known of a pod that is gone.
func (r *Reporter) Forget(uid string) {
	r.mu.Lock()
	delete(r.pods, uid)
	r.mu.Unlock()
	r.metrics.ended(uid)
}

func (r *Reporter) remember(uid string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.pods[uid]
	if !ok {
		if len(r.pods) >= maxPods {
			return nil
		}
		m = new(memory)
		r.pods[uid] = m
	}
	return m
}

// writeContext gives the writes a deadline of their own: the gathering, which
// is slow on a sick node, may have used up the pod's. Only the end of the agent
// ends them early.
func writeContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), writeTimeout)
	stop := context.AfterFunc(parent, func() {
		if errors.Is(parent.Err(), context.Canceled) {
			cancel()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// logFailure logs the first failure of a row; the metric counts the others.
func (r *Reporter) logFailure(what string, pod *corev1.Pod, failures int, err error) {
	level := slog.LevelDebug
	if failures == 1 {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, what, "namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID, "error", err)
}
