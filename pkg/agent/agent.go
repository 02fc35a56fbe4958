// Package agent is the loop: once a period it takes the terminating pods of the
// node, has each read and diagnosed, and reports the verdict. Being stuck is the
// passing of time, not an event, so there is a ticker and no work queue. It is
// handed everything that it does not do itself.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/node"
	"github.com/nodeagent-io/nodeagent/pkg/orphan"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
)

// A Watch knows the pods of the node; *kube.Watch is one.
type Watch interface {
	// Round returns the pods that terminate, and the last states of those that did
	// and that have gone since the call before.
	Round() (terminating, gone []*corev1.Pod)
	// All returns the pods of the node; nil before they are known.
	All() []*corev1.Pod
}

// A Monitor counts what the loop does; *report.Metrics is one.
type Monitor interface {
	// Blocked is told the tasks of the node in state D, in each round in which a
	// pod is read.
	Blocked(tasks []evidence.Task)
	// Gathered is told how long the reading of one pod took.
	Gathered(d time.Duration)
	// Deleted is told the cause of the verdict that stood about a pod when it was
	// deleted, and how it has ended (verdict.EndedClean and others).
	Deleted(cause, ending string)
	// HeldBack is told the cause of a verdict that is not told on the pod, for want of
	// budget.
	HeldBack(cause string)
	// Killed is told how many containers of a pod SIGKILL has ended at the deadline, and of how many of them no cause was found.
	Killed(containers, unexplained int)
	// Passed is told that a part of a pod's termination is over, and how long it took.
	Passed(verdict.Subject, verdict.Passage)
	// Lost is told that the reading of a pod has not returned in time.
	Lost()
	// Ticked is told the end of a round, the number of terminating pods, and the time
	// between two rounds.
	Ticked(now time.Time, terminating int, period time.Duration)
}

// An Agent diagnoses the terminating pods of one node.
type Agent struct {
	Watch Watch
	// Reader reads the evidence. A reading that does not return costs its own pod
	// the verdict and no other one.
	Reader node.Source
	// Skew returns the least and the most by which the API server's clock is ahead of
	// the node's, if that is known; nil is allowed.
	Skew func() (least, most time.Duration, ok bool)
	// Failures knows what the kubelet has said of why it could not stop a pod; nil is
	// allowed.
	Failures *Failures
	// Readiness knows what the API server has heard from the kubelet; nil is allowed.
	Readiness *Readiness
	// Setters knows who has put finalizers on pods; nil is allowed.
	Setters *Setters
	// Diagnose looks for causes in the evidence.
	Diagnose func(*evidence.Pod) diagnose.Diagnosis
	// Reasons are those that a condition of an earlier run of the agent can have; nil is any.
	Reasons []string
	// Wrote reports whether an agent may have written that condition about a pod; nil is any.
	Wrote func(p *corev1.Pod, reason string, m condition.Message) bool
	// Cases holds what stands about each pod that is looked at.
	Cases *verdict.Cases
	// Budget bounds what is told about pods that are not late.
	Budget *verdict.Budget
	// InGraceAfter is how long after the request for deletion it is said of a pod that it is inside its
	// grace period, and LongHook is as in evidence.Pod.
	InGraceAfter, LongHook time.Duration
	// Report publishes what the last look at a pod has changed. It has a deadline
	// of its own.
	Report func(context.Context, *verdict.Case)
	// ReportGone publishes what kept a pod that is gone, by the last reading of it
	// and the time of that, and reports whether an Event names it; nil is allowed. It may be called
	// side by side with everything else.
	ReportGone func(context.Context, *verdict.Case, time.Time, diagnose.Diagnosis) bool
	// ReportRemains publishes what is left on the node of a pod that was deleted while a
	// verdict, of the given cause, stood about it; nil is allowed.
	ReportRemains func(ctx context.Context, s verdict.Subject, t time.Time, cause, left string)
	// Orphans looks for pods that are on the node and not in the API; nil is allowed.
	Orphans *Orphans
	// Monitor is told what the loop does.
	Monitor Monitor

	// Period is the least time between the starts of two rounds, and Longest the most,
	// to which it grows while the node is short of processors, or rounds take much of
	// one. Pods at their deadline are read in between.
	Period, Longest time.Duration
	// Spent returns the CPU time that reading has taken so far; nil when it is not
	// known.
	Spent func() time.Duration
	// Elapsed returns what has gone by since the program began, at a moment that time.Now has just returned; nil is by the
	// clock that nobody can set, of which time.Now tells too.
	Elapsed func(now time.Time) time.Duration
	// Timeout is how long the reading of one pod, and of what all of them share, may
	// take.
	Timeout time.Duration
	// Workers is how many pods are looked at side by side.
	Workers int
	Log     *slog.Logger

	pace  pace
	moved atomic.Int64 // nanoseconds from loaded to the end of the last round or look
	// clock notices that the node's clock was set. mu guards it.
	clock evidence.Clock
	node  *evidence.Node
	// lastBegun is as in evidence.Node.
	lastBegun time.Time
	// late are the pods, by UID, that were being deleted when the loop began: it has
	// not seen their first deadline. nil before the pods are known.
	late map[string]bool

	// deleted are the pods that were deleted with a verdict and are to be looked at once
	// more, the first one first. records and remains bound what is kept of them in the
	// log, and told on the node.
	deleted          []deleted
	records, remains verdict.Budget
	// ends bounds the records of ended verdicts, and unlogged counts those that were left out since the last one.
	ends     verdict.Budget
	unlogged atomic.Int64

	// Before keeps what the first processes did with signals before the deletion.
	Before Baselines

	mu       sync.Mutex
	underWay map[string]*underWay       // looks, by the pod's UID; those that do without its files by blind
	lacked   map[evidence.Source]string // the pod's UID that a source is missing of
	again    []deleted                  // to be looked at once more, because something was left

	lookingBack sync.WaitGroup
	backSlots   chan struct{}
}

// keepWhole is for how long a reading in full is kept rather than a later one of
// which sources are missing, or in which only sidecars live: they are stopped
// last, and have two seconds when the app has used up the grace period. With rounds
// further apart than that it is kept rather than the next one.
const keepWhole = 10 * time.Second

// lateAfter is how much longer than Timeout a look may take before it is given
// up: what it reads may return late, and the report has a deadline of its own.
const lateAfter = 7 * time.Second

// perMinute is how many records of deleted pods are logged in any minute, and how many
// of them are told on the node. Beyond that each workload has one in an hour.
const perMinute = 5

// Run returns when the context ends.
func (a *Agent) Run(ctx context.Context) {
	a.backSlots = make(chan struct{}, max(a.Workers, 1))
	a.records.PerMinute, a.remains.PerMinute, a.ends.PerMinute = perMinute, perMinute, endsPerMinute
	defer a.lookingBack.Wait() // the end of the context ends what it waits for
	a.moved.Store(int64(time.Since(loaded)))
	ticker := time.NewTicker(a.Period)
	defer ticker.Stop()
	for {
		n := a.round(ctx)
		now := time.Now()
		a.moved.Store(int64(time.Since(loaded)))
		a.Monitor.Ticked(now, n, max(a.pace.period, a.Period))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Health returns an error when the loop does not move: the last round or look
// ended longer ago than the next one may take.
func (a *Agent) Health() error {
	moved := a.moved.Load()
	if moved == 0 {
		return nil // Run has not begun; readiness tells that
	}
	limit := 3*max(a.Period, a.Longest) + 3*a.Timeout
	if age := time.Since(loaded) - time.Duration(moved); age > limit {
		return fmt.Errorf("the last round or reading ended %s ago, more than %s", age.Round(time.Second), limit)
	}
	return nil
}

// A look is one that is to be had at a pod.
type look struct {
	pod   *corev1.Pod
	known *verdict.Case
	// earlier is the reading before. known is not used before the pod has been read: the look may have been given up then.
	earlier *evidence.Pod
	// unreturned is as in evidence.Pod.
	unreturned time.Time
}

// key is what the look is under way by.
func (l *look) key() string {
	if l.unreturned.IsZero() {
		return string(l.pod.UID)
	}
	return blind(string(l.pod.UID))
}

// blind returns what a look is under way by that opens none of the pod's files.
func blind(uid string) string { return uid + "/blind" }

// blindAfter is how long after a look at a pod was given up the pod is looked at without its files.
const blindAfter = 30 * time.Second

// round looks at every terminating pod once, or while the pace does not allow that yet
// at those that are at their deadline, and returns how many there are.
func (a *Agent) round(ctx context.Context) int {
	now := time.Now()
	a.keepTime(now, a.elapsed(now))
	all := a.Watch.All() // before Round, which returns none until the pods are known
	a.Before.Refresh(ctx, carefulBaselines{a.Reader, a}, all, now)
	terminating, gone := a.Watch.Round()
	if a.late == nil && all != nil {
		a.late = make(map[string]bool, len(terminating))
		for _, p := range terminating {
			a.late[string(p.UID)] = true
		}
	}
	full := !now.Before(a.pace.next)
	c := a.choose(terminating, now, full)
	a.begun(c.ahead, terminating, gone)
	a.bury(ctx, c.here, gone)
	after := a.remainsDue(now)
	orphans := a.Orphans.search(ctx, a.Reader, all, now, a.careful)
	if a.Failures != nil {
		a.Failures.forget(c.here)
	}
	if a.Setters != nil {
		a.Setters.forget(c.here)
	}
	if len(c.due) == 0 && len(after) == 0 && len(orphans) == 0 {
		if len(c.here) == 0 {
			a.node, a.pace = nil, pace{period: a.Period}
		}
		return len(c.here)
	}

	before := a.spent()
	defer func() {
		a.pace.cost += a.spent() - before
		if full {
			a.pace.full(now, a.Period, a.Longest, a.node.Pressure)
		}
	}()
	shared, cancel := context.WithTimeout(ctx, a.Timeout)
	ask := Ask(a.Watch.All(), now.Add(c.ahead))
	ask.Overdue, ask.Finished, ask.Earlier = c.overdue, c.finished, a.node
	ask.Scanned, ask.LastBegun = c.scanned, a.lastBegun
	ask.Lists = a.Readiness != nil && a.Readiness.Unlisted()
	reading := a.Reader.Round(shared, ask)
	cancel()
	n := reading.Node()
	a.node = &n
	a.Monitor.Blocked(n.Blocked)
	a.lookAtAll(ctx, reading, c.due, after, orphans)
	return len(c.here)
}

// begun notes when the last deletion was requested that the kubelet has acted upon. The API server's clock may be ahead of the node's by so much.
func (a *Agent) begun(ahead time.Duration, pods ...[]*corev1.Pod) {
	for _, p := range slices.Concat(pods...) {
		if has, _ := stop(p); has && p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
			at := p.DeletionTimestamp.Add(-ahead - time.Duration(*p.DeletionGracePeriodSeconds)*time.Second)
			if at.After(a.lastBegun) {
				a.lastBegun = at
			}
		}
	}
}

// A choice is what a round finds among the terminating pods.
type choice struct {
	due  []look          // to be looked at now
	here map[string]bool // all of them, by UID
	// overdue reports whether one is past its deadline, and finished whether nothing but
	// the object was left of one of these when it was read last, scanned whether its end has
	// waited for a program that scans files.
	overdue, finished, scanned bool
	// ahead is how far the API server's clock, by which it writes deadlines, may be ahead of the node's.
	ahead time.Duration
}

// choose opens the cases of the terminating pods and returns which are to be looked at: of a
// full round all that are due, of another one those at their deadline, and those of which
// something is seen that is soon over.
func (a *Agent) choose(terminating []*corev1.Pod, now time.Time, full bool) choice {
	out := choice{here: make(map[string]bool, len(terminating))}
	if a.Skew != nil {
		_, out.ahead, _ = a.Skew()
	}
	room := a.share(terminating)
	for _, p := range terminating {
		uid := string(p.UID)
		out.here[uid] = true
		deadline := p.DeletionTimestamp.Add(-out.ahead)
		late := deadline.Before(now)
		out.overdue = out.overdue || late
		if !room[uid] || a.uses(uid) {
			continue
		}
		c := a.Cases.Open(uid)
		if c == nil {
			continue
		}
		if late && c.Last != nil {
			out.finished = out.finished || c.Last.NothingLeft()
			out.scanned = out.scanned || c.Last.ScannerWaits.Lasts(now)
		}
		l := look{pod: p, known: c, earlier: c.Last}
		if a.looking(uid) {
			lost := a.unreturned(uid)
			if lost.IsZero() || now.Sub(lost) < blindAfter || a.looking(blind(uid)) {
				continue // it has just returned, or may soon, or a look without files hangs too
			}
			l.unreturned = now.Add(lost.Sub(now)) // by the clock as it is now
		}
		c.Late = a.late[uid]
		if c.Due(now) && (full || closes(deadline, now, c.Last, a.Period) || fleeting(now, c.Last, a.Period)) {
			out.due = append(out.due, l)
		}
	}
	slices.SortStableFunc(out.due, func(a, b look) int { return lastRead(a.earlier).Compare(lastRead(b.earlier)) })
	out.due = verdict.InTurn(out.due, func(l *look) string { return l.pod.Namespace })
	return out
}

// lastRead returns when a reading began, zero for none.
func lastRead(e *evidence.Pod) time.Time {
	if e == nil {
		return time.Time{}
	}
	return e.Time
}

// share returns those of the terminating pods, by UID, for which there is room.
func (a *Agent) share(terminating []*corev1.Pod) map[string]bool {
	all := make([]verdict.Candidate, 0, len(terminating))
	for _, p := range terminating {
		one := verdict.Candidate{UID: string(p.UID), Namespace: p.Namespace, Deleted: p.DeletionTimestamp.Time}
		if c := a.Cases.Get(one.UID); c != nil && c.Reading() != nil {
			one.ObjectOnly = c.Reading().NothingLeft()
		} else {
			one.ObjectOnly = len(p.Finalizers) > 0 && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
		}
		all = append(all, one)
	}
	return a.Cases.Share(all)
}

// leastLooks is how many pods each round looks at that has as many, as many as a kubelet runs.
const leastLooks = 110

// lookAtAll looks at pods side by side, as many as there are workers, and returns when each
// look has returned or was given up.
func (a *Agent) lookAtAll(ctx context.Context, reading node.Round, due []look, after []deleted, orphans []orphan.Pod) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(a.Workers, 1))
	watch := func(key string, pod *corev1.Pod, look func(context.Context)) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			a.watch(ctx, key, pod, look)
			a.moved.Store(int64(time.Since(loaded)))
		})
	}
	// A round of which the looks take long, as those at a thousand pods of one tenant do, each of which writes to the API server,
	// ends early. The next one begins with the pods whose last look is the oldest, in turn from each namespace.
	begun := time.Now()
	for i, l := range due {
		if i >= leastLooks && time.Since(begun) > a.Longest {
			break
		}
		watch(l.key(), l.pod, func(ctx context.Context) { a.look(ctx, l, reading) })
	}
	for i := range after {
		watch(after[i].subject.UID, named(after[i].subject), func(ctx context.Context) { a.lookAfter(ctx, &after[i], reading) })
	}
	for _, o := range orphans {
		s := verdict.Subject{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
		if a.looking(o.UID) {
			continue // a look at it was given up, and has not returned
		}
		watch(s.UID, named(s), func(ctx context.Context) { a.lookAtOrphan(ctx, o, reading) })
	}
	wg.Wait()
}

// spent returns the CPU time that reading has taken so far.
func (a *Agent) spent() time.Duration {
	if a.Spent == nil {
		return 0
	}
	return a.Spent()
}

// watch has a look at a pod and gives it up when it does not return. Until it
// does there is no other look by this key, so that no more than one is lost.
func (a *Agent) watch(ctx context.Context, key string, pod *corev1.Pod, look func(context.Context)) {
	a.begin(key)
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.end(key)
		defer a.recovered(pod)
		look(ctx)
	}()
	select {
	case <-done:
	case <-time.After(a.Timeout + lateAfter):
		a.lose(key)
		a.Monitor.Lost()
		a.Log.Error("reading a pod hangs; its files on the node are not read again until the reading returns",
			"namespace", pod.Namespace, "pod", pod.Name, "uid", string(pod.UID))
	}
}

// An underWay is a look that has not returned.
type underWay struct {
	lost time.Time // when it was given up
	read bool      // it has read the pod, and uses its case
}

func (a *Agent) begin(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.underWay == nil {
		a.underWay = make(map[string]*underWay)
	}
	a.underWay[key] = new(underWay)
}

func (a *Agent) end(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.underWay, key)
}

// lose notes that a look was given up, unless it has just returned.
func (a *Agent) lose(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.underWay[key]; w != nil {
		w.lost = time.Now()
	}
}

// hasRead reports whether a look that has read its pod may use what is known of that: not when it was given up.
func (a *Agent) hasRead(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.underWay[key]
	w.read = w.lost.IsZero()
	return w.read
}

// unreturned returns since when a look at a pod that was given up has not returned from reading, zero when there is none.
func (a *Agent) unreturned(uid string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.underWay[uid]; w != nil && !w.read {
		return w.lost
	}
	return time.Time{}
}

// uses reports whether a look uses what is known of a pod, or will when it has read that. One without the pod's files may
// do so for longer than the one that it stands in for.
func (a *Agent) uses(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range []string{uid, blind(uid)} {
		if w := a.underWay[key]; w != nil && (w.read || w.lost.IsZero()) {
			return true
		}
	}
	return false
}

func (a *Agent) looking(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.underWay[key] != nil
}

// Hanging returns how many readings of pods were given up and have not returned.
func (a *Agent) Hanging() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, w := range a.underWay {
		if !w.lost.IsZero() {
			n++
		}
	}
	return n
}

// bury forgets the pods that are not here any more, after a last look at what is
// known of those that have gone.
func (a *Agent) bury(ctx context.Context, here map[string]bool, gone []*corev1.Pod) {
	last := make(map[string]*corev1.Pod, len(gone))
	for _, p := range gone {
		last[string(p.UID)] = p
	}
	closed := a.Cases.CloseOthers(here)
	for uid, p := range last {
		c := closed[uid]
		if c == nil {
			c = &verdict.Case{Late: a.late[uid]} // it came and went between two rounds
		}
		if !a.uses(uid) && !a.looking(uid) {
			e := a.seed(p)
			e.Time = time.Now()
			a.passed(a.subject(p), c.End(e))
		}
	}
	for uid, c := range closed {
		a.forgetLack(uid)
		p := last[uid]
		busy := a.looking(uid) || a.uses(uid)
		now := time.Now()
		if stood := c.Standing(); stood.Cause != "" {
			e := *c.Reading()
			if p != nil { // its grace period may have become shorter since
				last := a.seed(p)
				e.Deadline, e.DeletionRequested = last.Deadline, last.DeletionRequested
			}
			a.logEnd(&end{verdict: stood, subject: a.lastSubject(p, c, busy), reading: &e, at: now, how: endDeleted})
		}
		if !busy {
			a.outlives(c, now)
		} else if cause := c.Standing().Cause; cause != "" {
			a.Monitor.Deleted(cause, verdict.EndedUnread)
		}
		if p == nil || busy || c.Alive == nil || a.ReportGone == nil {
			continue
		}
		// The loop does not wait: a drain ends many pods at once, and the API
		// server may be slow to take their Events.
		a.lookingBack.Go(func() {
			a.backSlots <- struct{}{}
			defer func() { <-a.backSlots }()
			a.lookBack(ctx, look{pod: p, known: c}, now)
		})
	}
}

// lastSubject returns the subject of a pod that was deleted, by its last state p; nil if that is not known. A look that was given
// up uses the case of a busy one: then only its UID is known.
func (a *Agent) lastSubject(p *corev1.Pod, c *verdict.Case, busy bool) verdict.Subject {
	switch {
	case p != nil:
		return a.subject(p)
	case busy:
		return verdict.Subject{UID: c.Standing().UID}
	}
	return c.Subject
}

// lookBack diagnoses a pod that was seen to be gone at a time: the last reading of it while it lived,
// and how its containers ended.
func (a *Agent) lookBack(ctx context.Context, l look, gone time.Time) {
	defer a.recovered(l.pod)
	l.known.Subject = a.subject(l.pod) // a look that panicked has not set it
	e := *l.known.Alive
	e.Gone = true
	e.Containers = slices.Clone(e.Containers)
	final := a.seed(l.pod)
	for i := range e.Containers {
		for j := range final.Containers {
			if e.Containers[i].Kind == final.Containers[j].Kind && e.Containers[i].Name == final.Containers[j].Name {
				e.Containers[i].Exit = final.Containers[j].Exit
			}
		}
	}
	d := a.Diagnose(&e)
	stood, doubted := l.known.Standing().Cause, ""
	if f, found := d.Verdict(); found && f.Cause != stood && a.Failures != nil {
		// What the kubelet could not have done is no fault of the program's. What stood
		// was found while the pod lived.
		e.Missing = maps.Clone(e.Missing)
		delete(e.Missing, evidence.Events)
		e.SetStopFailures(a.Failures.Last(ctx, l.pod, e.DeletionRequested))
		d, doubted = a.Diagnose(&e), f.Cause
	}
	log := a.Log.With("namespace", e.Namespace, "pod", e.Name, "uid", e.UID)
	f, found := d.Verdict()
	heldBack := l.known.HeldBack() // what was not told has kept the pod
	if found && !heldBack && !l.known.Told() && !l.known.Allowed(f.Cause) && !a.Budget.Allow(l.known.Subject, &f, e.Time) {
		heldBack = true
		a.Monitor.HeldBack(f.Cause)
	}
	unexplained := d.Unexplained()
	if l.known.Explained() {
		unexplained = nil
	}
	switch {
	case found && f.Cause != stood:
		log.Info("verdict about a deleted pod", "phase", d.Phase, "cause", f.Cause, "message", f.Message, "heldBack", heldBack)
	case !found && !l.known.Explained() && killed(e.Containers):
		// Why is worth knowing: the log is all that is left of it.
		record := ""
		if a.records.Allow(l.known.Subject, &diagnose.Finding{Cause: diagnose.Unrecognised.Cause}, e.Time) {
			record = evidence.Line(&e, maxRecord)
		}
		log.Info("container was killed (SIGKILL), and no cause was found; evidence is its last reading, as printed by nodeagent capture",
			"unexplained", len(unexplained), "lastSeen", e.Time, "deadline", e.Deadline, "missing", e.Missing, "unknown", d.Unknown, "doubted", doubted, "killFailures",
			len(e.KillFailures), "evidence", record)
	}
	a.Monitor.Killed(len(d.Killed), len(unexplained))
	reported := !heldBack && a.ReportGone(ctx, l.known, e.Time, d)
	if found && f.Cause != stood {
		v := verdict.Standing{Namespace: e.Namespace, Name: e.Name, UID: e.UID, Workload: l.known.Subject.Workload, Cause: f.Cause, Phase: d.Phase,
			Message: f.Message, Reported: reported, HeldBack: heldBack}
		a.logEnd(&end{verdict: v, subject: l.known.Subject, reading: &e, at: gone, how: endAlreadyDeleted})
	}
}

// passed tells the monitor what is over of a pod's termination.
func (a *Agent) passed(s verdict.Subject, parts []verdict.Passage) {
	for _, p := range parts {
		a.Monitor.Passed(s, p)
	}
}

// killed reports whether SIGKILL has ended one of the containers.
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

// careful returns work that is done beside the loop, of which a panic costs its own result only.
func (a *Agent) careful(what string, do func()) func() {
	return func() {
		defer func() {
			if r := recover(); r != nil {
				a.Log.Error(what+" panicked: this is a bug in nodeagent, please report it", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			}
		}()
		do()
	}
}

// errPanicked is what is known of a question whose answer was never taken note of.
var errPanicked = errors.New("to read the answer of the API server has panicked")

// seed is Seed with what the loop knows of the API server's clock, and of the pod's
// time before.
func (a *Agent) seed(p *corev1.Pod) *evidence.Pod {
	e := Seed(p)
	e.LongHook = a.LongHook
	if a.late[e.UID] {
		DoubtDeadline(e, p)
	}
	for i := range e.Containers {
		if x := e.Containers[i].Exit; x != nil {
			x.Started, x.At = a.present(x.Started), a.present(x.At)
		}
	}
	if a.Skew != nil {
		if least, most, ok := a.Skew(); ok {
			e.SetSkew(least, most)
		}
	}
	return e
}

// look reads, diagnoses and reports one pod.
func (a *Agent) look(ctx context.Context, l look, reading node.Round) {
	timed, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	began := time.Now()
	seed := a.seed(l.pod)
	if seed.Before = a.Before.Of(seed.RuntimeUID, seed.DeletionRequested); l.earlier != nil {
		seed.Before = l.earlier.Before // the deletionTimestamp moves
	}
	seed.HungSince = l.unreturned
	// The API server is asked meanwhile.
	var failures []evidence.KillFailure
	var ready *evidence.NodeReady
	var pulls []evidence.Pull
	var eventsErr, nodeErr, pullsErr error
	var asking sync.WaitGroup
	if a.Readiness != nil {
		nodeErr = errPanicked
		asking.Go(a.careful("asking for the Node", func() { ready, nodeErr = a.Readiness.Of(timed, seed) }))
	}
	if a.Failures != nil {
		eventsErr, pullsErr = errPanicked, errPanicked
		asking.Go(a.careful("asking for Events", func() { failures, eventsErr = a.Failures.Of(timed, l.pod) }))
		asking.Go(a.careful("asking for Events of pulls", func() { pulls, pullsErr = a.Failures.Pulls(timed, l.pod) }))
	}
	e := reading.Pod(timed, seed, l.earlier)
	asking.Wait()
	now := time.Now()
	if ctx.Err() != nil || !a.hasRead(l.key()) || a.clockSet(now, a.elapsed(now)) {
		return // the agent ends, or the look was given up, or its times are by two clocks
	}
	c := l.known
	e.SetStopFailures(failures, eventsErr)
	e.SetPulls(pulls, pullsErr)
	e.SetNodeReady(ready, nodeErr)
	if a.Setters != nil {
		e.FinalizerSetters = a.Setters.Of(timed, l.pod, e)
	}
	e.Refusal = c.Refusal()
	if len(failures) > 0 {
		e.Daemons = Daemons(a.Watch.All())
	}
	a.Monitor.Gathered(time.Since(began))
	if whole := len(e.Missing) == 0 && (appLives(e) || c.Alive == nil || !appLives(c.Alive)); lives(e) &&
		(whole || c.Alive == nil || c.Alive != c.Last && e.Time.Sub(c.Alive.Time) >= keepWhole) {
		c.Alive = e
	}
	if e.HungSince.IsZero() { // else that has been logged
		a.logLack(e)
	}
	stood := c.Standing().Cause
	d := a.Diagnose(e)
	if f, found := d.Verdict(); found && f.Cause != stood && a.Failures != nil && e.Overdue() < 0 {
		// A stop signal that the runtime could not send has met no program.
		e.SetStopFailures(a.Failures.InGrace(timed, l.pod))
		d = a.Diagnose(e)
	}
	c.Judge(a.subject(l.pod), e, d)
	a.passed(c.Subject, c.Passed())
	if c.Weigh(a.Budget) {
		a.Monitor.HeldBack(c.Finding().Cause)
	}
	c.Wait(a.Budget, a.InGraceAfter)
	a.logChange(c, stood)
	a.logEnded(c)
	a.Report(ctx, c)
}

// lives reports whether processes of the pod's containers live, have not been killed and
// do not exit: one that SIGKILL has ended takes a while to exit where it is throttled, and
// its signal is not pending any more. A process that dumps its core counts: its other
// threads look killed.
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
		killed = killed || t.Killed() || t.Exiting()
	}
	return live && !killed
}

// appLives reports whether a process of an app container lives.
func appLives(e *evidence.Pod) bool {
	return slices.ContainsFunc(e.Tasks, func(t evidence.Task) bool {
		c, ok := e.Container(t.Container)
		return ok && c.Kind == evidence.App && t.State != evidence.Zombie
	})
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
			a.Log.Warn("evidence source is incomplete; causes that need it cannot be checked",
				"source", source, "why", why, "namespace", e.Namespace, "pod", e.Name)
		}
	}
	for source, uid := range a.lacked {
		if _, ok := e.Missing[source]; !ok && uid == e.UID {
			delete(a.lacked, source)
			a.Log.Info("evidence source is complete again", "source", source)
		}
	}
}

// forgetLack forgets what is missing of a pod, so that the same is logged about
// the next one.
func (a *Agent) forgetLack(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for source, of := range a.lacked {
		if of == uid {
			delete(a.lacked, source)
		}
	}
}

// logChange logs what stands about a pod when it differs from what stood before
// the look.
func (a *Agent) logChange(c *verdict.Case, stood string) {
	s := c.Standing()
	if s.Cause == stood {
		return
	}
	log := a.Log.With("namespace", s.Namespace, "pod", s.Name, "uid", s.UID, "phase", c.Diagnosis.Phase)
	switch c.Outcome() {
	case verdict.Found:
		if f := c.Diagnosis.Force; f != nil {
			log = log.With("forceDelete", f.Answer)
		}
		log.Info("verdict", "cause", s.Cause, "message", c.Finding().Message, "heldBack", c.HeldBack())
	case verdict.Held:
		log.Info("verdict from before the agent's restart still stands", "cause", s.Cause)
	case verdict.Withdrawn, verdict.Nothing:
		log.Info("verdict withdrawn", "cause", stood)
	}
}
