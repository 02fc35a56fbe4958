package report

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/kube"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// writeTimeout bounds the writes that one look at a pod leads to.
const writeTimeout = 5 * time.Second

// A Reporter publishes the verdicts on one node's pods. It remembers nothing
// of them: what has been written stands in the Case.
type Reporter struct {
	mu   sync.Mutex
	told map[string]time.Time // when a cause and its family were told on the node

	client  *kube.Client
	node    string
	metrics *Metrics
	log     *slog.Logger
	size    size
	// Policies are the admission policies that hold the writes; nil is allowed.
	Policies *Policies
}

// New makes a Reporter for the pods of a node.
func New(client *kube.Client, node string, m *Metrics, log *slog.Logger) *Reporter {
	return &Reporter{told: make(map[string]time.Time), client: client, node: node, metrics: m, log: log}
}

// Report writes what the last look at a pod has changed: that there is a verdict,
// or that there is none any more. What cannot be written is tried again at a
// later call. Different Cases may be reported side by side.
func (r *Reporter) Report(ctx context.Context, c *verdict.Case) {
	r.metrics.looked(c.Last)
	if c.HeldBack() || !r.Policies.mayWrite() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	switch c.Outcome() {
	case verdict.Found:
		f := c.Finding()
		r.reportCondition(ctx, c, true, f.Cause, r.size.fit(message(&c.Diagnosis, &f, c.Timeline(), c.Subject)))
		r.reportEvent(ctx, c, tellingOf(&c.Diagnosis, &f, c))
	case verdict.Withdrawn:
		r.reportCondition(ctx, c, false, verdict.Resolved, resolvedMessage)
	case verdict.Nothing:
		if says := c.Waiting(); says != "" {
			r.reportCondition(ctx, c, false, diagnose.InGracePeriod, says)
		}
	case verdict.Held:
	}
}

// ReportGone writes an Event about what kept a pod until it was killed, when the
// pod has been deleted, and its condition with it. d is about the last reading of
// it, made at the time t. When a cause was reported while the pod was there, that
// was the reason, and ReportGone does nothing. It reports whether the Event was written.
func (r *Reporter) ReportGone(ctx context.Context, c *verdict.Case, t time.Time, d diagnose.Diagnosis) bool {
	f, ok := d.Verdict()
	if !ok || c.Told() || !r.Policies.mayWrite() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := r.tell(ctx, c.Subject, t, tellingOf(&d, &f, c)); err != nil {
		r.logFailure("cannot write the Event about a deleted pod", c.Subject, 1, err)
		return false
	}
	return true
}

// ReportRemains writes an Event on the node about what is left there of a pod that is
// deleted. cause is that of the verdict that stood about it.
func (r *Reporter) ReportRemains(ctx context.Context, s verdict.Subject, t time.Time, cause, left string) {
	if !r.Policies.mayWrite() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	text := within(mostNote, who(s)+" is deleted but not gone from this node: "+left, "The verdict was "+diagnose.Foreign(cause, maxReason),
		"First: resolve what held it up"+pageIn(cause),
		"Avoid: starting a pod that uses its volumes until nothing is left (two writers; its IP address may be assigned to another pod, too)")
	ev := r.event(r.self(), t, corev1.EventTypeWarning, diagnose.DeletedPodRemains, text)
	if _, err := r.createOrAdopt(ctx, ev, eventNames(s, diagnose.DeletedPodRemains, r.node), kindNodeEvent); err != nil {
		r.logFailure("cannot write the Event about what a deleted pod left on the node", s, 1, err)
	}
}

// ReportOrphan writes an Event on the node about a pod that is there and not in the API.
// Its names are empty when the agent has not seen it there.
func (r *Reporter) ReportOrphan(ctx context.Context, s verdict.Subject, t time.Time, left string) {
	if !r.Policies.mayWrite() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	text := within(mostNote, who(s)+" is on this node but not in the API: "+left,
		"First: find what holds it up: on the node, search the kubelet's log for the UID (journalctl -u kubelet)",
		"Avoid: starting a pod that uses its volumes (the cluster does not know of this pod, and may assign its volumes and IP address to another)")
	if s.Name == "" {
		s.Name = "orphan"
	}
	ev := r.event(r.self(), t, corev1.EventTypeWarning, diagnose.OrphanedPod, text)
	if _, err := r.createOrAdopt(ctx, ev, eventNames(s, diagnose.OrphanedPod, r.node), kindNodeEvent); err != nil {
		r.logFailure("cannot write the Event about an orphaned pod", s, 1, err)
	}
}

// who names a pod. Of one that nobody has seen in the API the UID is a directory's name.
func who(s verdict.Subject) string {
	uid := diagnose.Foreign(s.UID, 64)
	if s.Name == "" {
		return "The pod with UID " + uid
	}
	return "Pod " + podName(s) + " (UID " + uid + ")"
}

// logFailure logs the first failure of a row; the metric counts the others.
func (r *Reporter) logFailure(what string, s verdict.Subject, failures int, err error) {
	level := slog.LevelDebug
	if failures == 1 {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, what, "namespace", s.Namespace, "pod", s.Name, "uid", s.UID, "error", err)
}
