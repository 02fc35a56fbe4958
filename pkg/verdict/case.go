package verdict

import (
	"cmp"
	"sync"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A pod whose verdict has stood for settled, and which the last look found
// again, is looked at only once in slow.
const (
	slow    = 10 * time.Second
	settled = time.Minute
)

// A Case is what is known of one pod from look to look. Except for Standing and Reading its
// methods must not be called side by side.
type Case struct {
	// Subject is the pod, Last the last reading and Diagnosis what was found in
	// it. Judge sets them.
	Subject   Subject
	Last      *evidence.Pod
	Diagnosis diagnose.Diagnosis
	// Alive is the last reading in which the pod's processes lived and had not been
	// killed; nil when there was none.
	Alive *evidence.Pod
	// Late reports whether the pod was being deleted when the agent began. It is set
	// before the first look.
	Late bool

	absence   absence
	last      lastFound
	outcome   Outcome
	ended     Standing // with the last look; no Cause when none has
	endings   int
	finding   diagnose.Finding
	looks     int       // how many looks in a row have found the cause that stands
	unread    bool      // whether what stands was found without the pod's files
	returned  time.Time // when they were first read again since
	condition conditionState
	event     eventState
	told      bool // whether there has been an Event
	explained bool // whether a cause but Unknown was found past the deadline
	weighed   weighed
	wait      wait
	timeline  timeline
	passed    []Passage

	mu       sync.Mutex
	standing Standing
	reading  *evidence.Pod // Last, for who asks at any time
}

// A Standing is the verdict that stands about a pod.
type Standing struct {
	Namespace, Name, UID string
	Workload             Workload
	// Cause is "" when no verdict stands.
	Cause string
	// Phase is the one in which the cause was last found.
	Phase diagnose.Phase
	// Since is the time of the look with which the cause came to stand. After a restart of the agent it is since
	// when the pod's condition has been True, maybe with another cause before this one; zero when that has no time.
	Since time.Time
	// Deadline is the end of the pod's grace period.
	Deadline time.Time
	// Message is that of the finding with which the cause was last found; "" when that was before a restart of the agent.
	Message string
	// Reported reports whether the condition or an Event has named the cause, and HeldBack whether neither does
	// for want of budget.
	Reported, HeldBack bool
}

// Judge weighs the diagnosis of a reading against what stands about the pod, and
// keeps both. What an agent before this one has told stands in the subject's
// condition.
func (c *Case) Judge(s Subject, e *evidence.Pod, d diagnose.Diagnosis) {
	if c.Last == nil && c.Late {
		c.timeline.told = recall(s)
	}
	before := c.Standing()
	onPod := c.condition.cause(s, e.Time)
	if c.Last == nil && onPod != "" {
		before, c.last = restored(s, e), lastFound{lacked: d.Lacks(onPod)}
	}
	c.Subject, c.Last, c.Diagnosis = s, e, d
	c.passed = append(c.passed, c.timeline.see(e, d.Phase, c.Late)...)
	stood := cmp.Or(before.Cause, onPod)
	// That a reading has not returned is in the words of Unknown.
	switch {
	case !c.unread || !e.HungSince.IsZero():
		c.returned = time.Time{}
	case c.returned.IsZero():
		c.returned = e.Time
	}
	stays := stood == diagnose.Unrecognised.Cause && before.sameStage(&d) && (c.returned.IsZero() || e.Time.Sub(c.returned) < blindAfter)
	c.outcome, c.finding = c.absence.judge(e.Time, stood, stays, c.last, &d)

	now := Standing{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Workload: s.Workload, Deadline: e.Deadline}
	switch c.outcome {
	case Found:
		c.last = lastFound{at: e.Time, lacked: d.Lacks(c.finding.Cause)}
		now.Cause, now.Phase, now.Message = c.finding.Cause, d.Phase, c.finding.Message
		c.unread = !e.HungSince.IsZero()
	case Held:
		now.Cause, now.Phase, now.Message = stood, before.Phase, before.Message
		if before.Phase == "" || before.Phase == diagnose.PhaseUnknown {
			now.Phase = d.Phase
		}
	case Nothing, Withdrawn:
		c.looks, c.event, c.unread = 0, eventState{}, false
	}
	c.explained = c.explained || c.outcome == Found && explains(now.Cause) && e.Overdue() >= 0
	now.Since, now.Reported, now.HeldBack = before.Since, before.Reported, before.HeldBack
	c.ended = Standing{}
	if now.Cause != before.Cause {
		now.Since, now.Reported, now.HeldBack = e.Time, now.Cause != "" && now.Cause == onPod, false
		if before.Cause != "" {
			c.ended = before
			c.endings++
		}
	}
	if c.outcome == Found {
		if c.event.cause != now.Cause {
			c.looks, c.event = 0, eventState{cause: now.Cause}
		}
		c.looks++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing, c.reading = now, e
}

// restored returns the verdict of an earlier run of the agent, which stands in the pod's condition.
func restored(s Subject, e *evidence.Pod) Standing {
	since := s.Condition.Since
	if since.After(e.Time) {
		since = e.Time // whoever may write the pod's status can write any
	}
	return Standing{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Workload: s.Workload, Cause: s.Condition.Reason, Since: since, Deadline: e.Deadline,
		Reported: true}
}

// sameStage reports whether a pod past its deadline is still in the phase in which the verdict
// came to stand, or in which it was seen first after that where the phase was not known. That it is
// stuck for an unknown reason is told after a patience that begins anew with the agent and grows
// when the kubelet is started, and then it is no less stuck.
func (s Standing) sameStage(d *diagnose.Diagnosis) bool {
	return s.Phase == "" || s.Phase == diagnose.PhaseUnknown || d.Phase == diagnose.PhaseUnknown || s.Phase == d.Phase
}

// A wait is what is said of a pod that is inside its grace period.
type wait struct {
	asked, allowed bool // whether the budget was asked, and what it said
	message        string
}

// Wait decides after Judge whether it is said on the pod that it is inside its grace period: after the given time, of one about
// which nothing stands, within the budget; after 0 never. The words that stand are left as they are, also those of an
// agent before this one, unless whether it will be killed has changed, or it was deleted again.
func (c *Case) Wait(b *Budget, after time.Duration) {
	c.wait.message = ""
	w, waits := diagnose.WaitsFor(c.Last, &c.Diagnosis)
	if !waits || after <= 0 || c.outcome != Nothing || c.Last.Time.Sub(c.Last.DeletionRequested) < after {
		return
	}
	have := c.condition.current(c.Subject, c.Last.Time)
	said := have != nil && have.Reason == diagnose.InGracePeriod
	if have != nil && have.Blocked || said && w.SaysAs(have.Message) || w.Back && !said {
		return
	}
	if !c.wait.asked {
		c.wait.asked = true
		c.wait.allowed = b.Allow(c.Subject, &diagnose.Finding{Cause: diagnose.InGracePeriod, Container: w.Container}, c.Last.Time)
	}
	if c.wait.allowed {
		c.wait.message = w.Message
	}
}

// Waiting returns what is to be said of a pod that is inside its grace period, "" for nothing.
func (c *Case) Waiting() string { return c.wait.message }

// Outcome returns what the last look means for what stands.
func (c *Case) Outcome() Outcome { return c.outcome }

// Explained reports whether it is known why the pod was not ended within its grace period: a cause stands, or was found past the
// deadline and withdrawn since. One that was withdrawn before the deadline explains nothing, and Unknown is none.
func (c *Case) Explained() bool { return c.explained || explains(c.Standing().Cause) }

func explains(cause string) bool { return cause != "" && cause != diagnose.Unrecognised.Cause }

// Finding returns what the last look found; it stands if Outcome is Found.
func (c *Case) Finding() diagnose.Finding { return c.finding }

// Standing returns the verdict that stands. It may be called at any time.
func (c *Case) Standing() Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standing
}

// Ended returns the verdict that has ended with the last look, because it was withdrawn or another cause has taken its
// place, and how many have about this pod; its Cause is "" when none has. It is one of an earlier run of the agent, too,
// which stood until the first look.
func (c *Case) Ended() (Standing, int) { return c.ended, c.endings }

// note changes what is known of the verdict that stands.
func (c *Case) note(change func(*Standing)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.standing)
}

// Reading returns the last reading of the pod, nil when there was none. It may be called at any
// time, and what it returns is not to be changed.
func (c *Case) Reading() *evidence.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading
}

// Due reports whether the pod is to be looked at: at every call, and more rarely
// once its verdict has settled. A look that did not find what stands is followed
// by another one soon.
func (c *Case) Due(now time.Time) bool {
	s := c.Standing()
	return c.Last == nil || s.Cause == "" || c.outcome != Found ||
		now.Sub(s.Since) < settled || now.Sub(c.Last.Time) >= slow
}

// AfterStep has what is known told by the node's clock as it is now, which was set forward by step.
func (c *Case) AfterStep(now time.Time, step time.Duration) {
	last, alive := c.Last, c.Alive
	if c.Last = last.AfterStep(now, step); alive == last {
		c.Alive = c.Last
	} else {
		c.Alive = alive.AfterStep(now, step)
	}
	c.mu.Lock()
	c.reading = c.Last
	c.standing.Since = evidence.MomentAfterStep(c.standing.Since, now, step)
	c.standing.Deadline = evidence.MomentAfterStep(c.standing.Deadline, now, step)
	c.mu.Unlock()
	c.returned = evidence.MomentAfterStep(c.returned, now, step)
	t := &c.timeline
	t.deadline = evidence.MomentAfterStep(t.deadline, now, step)
	for i := range t.entered {
		t.entered[i] = evidence.MomentAfterStep(t.entered[i], now, step)
	}
}
