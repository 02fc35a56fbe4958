// Package agent is the loop: once a period it takes the terminating pods of the
// node, gathers the evidence about each, has it diagnosed and reports the
// verdict. Being stuck is the passing of time, not an event, so there is a
// ticker and no work queue. It is handed functions for everything it does not
// do itself.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Condition is the type of the pod condition that carries the verdict.
const Condition corev1.PodConditionType = "nodeagent.io/TerminationBlocked"

// An Agent diagnoses the terminating pods of one node. Its functions must
// return when their context ends.
type Agent struct {
	// Pods lists the node's pods, from a cache.
	Pods func() []*corev1.Pod
	// Node reads what all pods of the node share. It is called once a period,
	// and only while a pod terminates; overdue says that one is past its
	// deadline, whether or not it is looked at in this period, so that the
	// node's own processes are worth a look.
	Node func(ctx context.Context, overdue bool) evidence.Node
	// Gather fills in the evidence that a pod's API object does not hold.
	Gather func(context.Context, *evidence.Pod)
	// Diagnose gives the verdict.
	Diagnose func(*evidence.Pod) diagnose.Diagnosis
	// Report publishes a verdict, also that there is none (any more).
	Report func(context.Context, *corev1.Pod, *evidence.Pod, diagnose.Diagnosis)
	// ReportGone publishes what kept a pod that is gone; nil is allowed.
	ReportGone func(context.Context, *corev1.Pod, *evidence.Pod, diagnose.Diagnosis)
	// Forget is told of a pod that is gone or not terminating any more. It and
	// ReportGone may be called side by side with everything else.
	Forget func(uid string)
	// Ticked is called at the end of each period with the number of
	// terminating pods; nil is allowed.
	Ticked func(now time.Time, terminating int)

	// Period is the time between the starts of two rounds.
	Period time.Duration
	// Timeout is the most that one pod's gathering and report may take.
	Timeout time.Duration
	// Workers is how many pods are looked at side by side.
	Workers int
	Log     *slog.Logger

	lastTick atomic.Int64 // Unix nanoseconds of the end of the last round
	started  atomic.Int64
	node     *evidence.Node
	pods     map[string]*memory

	mu     sync.Mutex
	lacked map[evidence.Source]string // the pod's UID that a source is missing of
	ended  map[string]*corev1.Pod     // the last state of pods that are gone, by UID

	lookingBack sync.WaitGroup
	backSlots   chan struct{}
}

// maxEnded is how many pods that are gone are kept until the next round.
const maxEnded = 512

// whole is for how long a reading in full is kept rather than a later one of
// which sources are missing.
const whole = 10 * time.Second

// slow is how often a pod is looked at whose verdict has stood for settled.
const (
	slow    = 10 * time.Second
	settled = time.Minute
)

// A memory is what has to outlive one round for a pod. All of it can be found
// again after a restart, save the first deletionTimestamp where a later delete
// changed it.
type memory struct {
	last *evidence.Pod
	// alive is the last reading in which the pod's processes lived and had not
	// been killed; nil when there was none. missed says that the pod is gone and
	// that the API's last word on it has not come yet.
	alive        *evidence.Pod
	missed       bool
	requested    time.Time
	deadline     time.Time
	verdict      string
	verdictSince time.Time
}

// Run goes on until the context ends.
func (a *Agent) Run(ctx context.Context) {
	a.pods = make(map[string]*memory)
	a.backSlots = make(chan struct{}, max(a.Workers, 1))
	defer a.lookingBack.Wait() // the end of the context ends what it waits for
	a.started.Store(time.Now().UnixNano())
	ticker := time.NewTicker(a.Period)
	defer ticker.Stop()
	for {
		n := a.round(ctx)
		now := time.Now()
		a.lastTick.Store(now.UnixNano())
		if a.Ticked != nil {
			a.Ticked(now, n)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Health is nil while the loop moves: its last round ended not longer ago than
// a round may take.
func (a *Agent) Health() error {
	last := a.lastTick.Load()
	if last == 0 {
		last = a.started.Load()
	}
	if last == 0 {
		return nil // Run has not begun; readiness tells that
	}
	limit := 3*a.Period + 3*a.Timeout
	if age := time.Since(time.Unix(0, last)); age > limit {
		return fmt.Errorf("the last round ended %s ago, more than %s", age.Round(time.Second), limit)
	}
	return nil
}

// round looks at every terminating pod once and returns how many there are.
func (a *Agent) round(ctx context.Context) int {
	now := time.Now()
	var due []*corev1.Pod
	here := make(map[string]bool)
	overdue := false
	for _, p := range a.Pods() {
		if p.DeletionTimestamp == nil {
			continue
		}
		uid := string(p.UID)
		here[uid] = true
		overdue = overdue || p.DeletionTimestamp.Time.Before(now)
		if a.pods[uid].due(now) {
			due = append(due, p)
		}
	}
	a.bury(ctx, here)
	if len(due) == 0 {
		if len(here) == 0 {
			a.node = nil
		}
		return len(here)
	}

	nodeCtx, cancel := context.WithTimeout(ctx, a.Timeout)
	node := a.Node(nodeCtx, overdue)
	cancel()
	node.Since(a.node, now)
	a.node = &node

	var wg sync.WaitGroup
	slots := make(chan struct{}, max(a.Workers, 1))
	for _, p := range due {
		m := a.pods[string(p.UID)]
		if m == nil {
			m = new(memory)
			a.pods[string(p.UID)] = m
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return len(here)
		}
		wg.Go(func() {
			defer func() { <-slots }()
			a.look(ctx, p, m, node)
		})
	}
	wg.Wait()
	return len(here)
}

// Ended takes note of the last state of a pod that is gone: how its containers
// ended tells whether its grace period was enough.
func (a *Agent) Ended(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended = make(map[string]*corev1.Pod)
	}
	if len(a.ended) < maxEnded {
		a.ended[string(p.UID)] = p
	}
}

// bury forgets the pods that are gone, after a last look at what is known of
// them.
func (a *Agent) bury(ctx context.Context, here map[string]bool) {
	a.mu.Lock()
	ended := a.ended
	a.ended = nil
	a.mu.Unlock()
	for uid, m := range a.pods {
		if here[uid] {
			continue
		}
		p := ended[uid]
		if p == nil && m.alive != nil && !m.missed {
			m.missed = true // the cache has lost it, its last state is on the way
			continue
		}
		delete(a.pods, uid)
		a.forgetLack(uid)
		if p == nil || m.alive == nil || a.ReportGone == nil {
			a.Forget(uid)
			continue
		}
		// The loop does not wait: a drain ends many pods at once, and the API
		// server may be slow to take their Events.
		a.lookingBack.Go(func() {
			a.backSlots <- struct{}{}
			defer func() { <-a.backSlots }()
			a.lookBack(ctx, p, m)
			a.Forget(uid)
		})
	}
}

// lookBack diagnoses a pod that is gone: the last reading of it while it lived,
// and how its containers ended.
func (a *Agent) lookBack(ctx context.Context, p *corev1.Pod, m *memory) {
	defer a.recovered(p)
	e := *m.alive
	e.Gone = true
	e.Containers = slices.Clone(e.Containers)
	final := Seed(p, e.Time)
	for i := range e.Containers {
		for j := range final.Containers {
			if e.Containers[i].Kind == final.Containers[j].Kind && e.Containers[i].Name == final.Containers[j].Name {
				e.Containers[i].Exit = final.Containers[j].Exit
			}
		}
	}
	d := a.Diagnose(&e)
	a.logChange(&e, m, d)
	if _, found := d.Verdict(); !found && m.verdict == "" && killed(e.Containers) {
		// Why is worth knowing: the log is all that is left of it.
		a.Log.Info("SIGKILL ended a container, and no cause was found", "namespace", p.Namespace, "pod", p.Name, "uid", p.UID,
			"lastSeen", e.Time, "deadline", e.Deadline, "missing", e.Missing, "unknown", d.Unknown)
	}
	a.ReportGone(ctx, p, &e, d)
}

// killed says that SIGKILL has ended one of the containers.
func killed(containers []evidence.Container) bool {
	return slices.ContainsFunc(containers, func(c evidence.Container) bool { return c.Exit != nil && c.Exit.Code == 128+int(evidence.SIGKILL) })
}

// recovered keeps a rule that panics from taking the verdicts on the other pods
// with it. It is deferred.
func (a *Agent) recovered(p *corev1.Pod) {
	if r := recover(); r != nil {
		a.Log.Error("diagnosis of a pod panicked: this is a bug in nodeagent, please report it",
			"namespace", p.Namespace, "pod", p.Name, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// look gathers, diagnoses and reports one pod.
func (a *Agent) look(ctx context.Context, p *corev1.Pod, m *memory, node evidence.Node) {
	defer a.recovered(p)
	agent := ctx
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()

	e := Seed(p, time.Now())
	m.remember(p, e)
	e.Node = node
	a.Gather(ctx, e)
	e.Since(m.last)
	m.last = e
	if lives(e) && (len(e.Missing) == 0 || m.alive == nil || e.Time.Sub(m.alive.Time) >= whole) {
		m.alive = e
	}
	if agent.Err() != nil {
		return // the agent ends
	}
	d := a.Diagnose(e)
	a.logLack(e)
	a.logChange(e, m, d)
	a.Report(ctx, p, e, d)
}

// lives says that processes of the pod's containers live and have not been
// killed. A process that dumps its core counts: its other threads look killed.
func lives(e *evidence.Pod) bool {
	live, killed := false, false
	for i := range e.Tasks {
		t := &e.Tasks[i]
		c, ok := e.Container(t.Container)
		if !ok || c.Kind == evidence.Sandbox || t.State == evidence.Zombie {
			continue
		}
		if t.CoreDumping {
			return true
		}
		live = true
		killed = killed || t.Killed()
	}
	return live && !killed
}

// due reports whether a pod is to be looked at in this round: in every one at
// first, and more rarely when its verdict has settled.
func (m *memory) due(now time.Time) bool {
	return m == nil || m.last == nil || m.verdict == "" || now.Sub(m.verdictSince) < settled || now.Sub(m.last.Time) >= slow
}

// remember gives the evidence the first deadline and request that were seen.
// The deletionTimestamp moves: the kubelet's final delete, with a grace period of
// 0, sets it to the present while finalizers are left
// (k8s.io/apiserver/pkg/registry/rest/delete.go), and a later delete may shorten
// the grace period, which the kubelet does not heed once it has begun to kill
// (pkg/kubelet/kubelet.go, syncTerminatingPod). The condition of an agent
// that ran before tells that the pod was being deleted at that time.
func (m *memory) remember(p *corev1.Pod, e *evidence.Pod) {
	if m.requested.IsZero() || e.DeletionRequested.Before(m.requested) {
		m.requested = e.DeletionRequested
	}
	if m.deadline.IsZero() || e.Deadline.Before(m.deadline) && e.GracePeriodSeconds == 0 {
		m.deadline = e.Deadline
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == Condition && !c.LastTransitionTime.IsZero() && c.LastTransitionTime.Time.Before(m.requested) {
			m.requested = c.LastTransitionTime.Time
		}
	}
	e.DeletionRequested, e.Deadline = m.requested, m.deadline
}

// logLack logs once that a source cannot be read, and once that it can again.
// The metric counts every time.
func (a *Agent) logLack(e *evidence.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lacked == nil {
		a.lacked = make(map[evidence.Source]string)
	}
	for source, why := range e.Missing {
		if a.lacked[source] == "" {
			a.lacked[source] = e.UID
			a.Log.Warn("a source of evidence is incomplete; causes that depend on it cannot be checked",
				"source", source, "why", why, "namespace", e.Namespace, "pod", e.Name)
		}
	}
	for source, uid := range a.lacked {
		if _, ok := e.Missing[source]; !ok && uid == e.UID {
			delete(a.lacked, source)
			a.Log.Info("a source of evidence is complete again", "source", source)
		}
	}
}

// forgetLack makes room for the next pod of which a source is missing.
func (a *Agent) forgetLack(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for source, of := range a.lacked {
		if of == uid {
			delete(a.lacked, source)
		}
	}
}

func (a *Agent) logChange(e *evidence.Pod, m *memory, d diagnose.Diagnosis) {
	verdict, message := "", ""
	if f, ok := d.Verdict(); ok {
		verdict, message = f.Cause, f.Message
	}
	if verdict == m.verdict {
		return
	}
	m.verdict, m.verdictSince = verdict, e.Time
	log := a.Log.With("namespace", e.Namespace, "pod", e.Name, "uid", e.UID, "phase", d.Phase)
	if verdict == "" {
		log.Info("verdict withdrawn")
		return
	}
	log.Info("verdict", "cause", verdict, "message", message)
}
