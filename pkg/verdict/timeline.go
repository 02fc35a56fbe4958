package verdict

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/condition"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Part is a part of a pod's termination of which the time is counted.
type Part string

// The parts, in order. GracePeriod ends with the last container, or at the deadline, and
// Overdue is from there to the last container. Sandbox ends when the kubelet writes that
// all containers have ended, after it has taken down the pod's network. Volumes is
// all that it does on the node after that.
const (
	GracePeriod Part = "GracePeriod"
	Overdue     Part = "Overdue"
	Sandbox     Part = "Sandbox"
	Volumes     Part = "Volumes"
	Finalizers  Part = "Finalizers"
)

// Parts lists them.
var Parts = []Part{GracePeriod, Overdue, Sandbox, Volumes, Finalizers}

// A Passage is a part that has ended, and the time that it took.
type Passage struct {
	Part Part
	Took time.Duration
}

// A stage is how far a termination has got. It never goes back.
type stage int

const (
	stops     stage = iota // containers live
	sandbox                // they have ended
	volumes                // the kubelet has written that, and the sandbox is down
	finalizer              // only finalizers are left
	stages
)

// stageOf returns the stage that a reading shows, and false where it shows none.
func stageOf(e *evidence.Pod, phase diagnose.Phase) (stage, bool) {
	switch phase {
	case diagnose.Finalizers:
		return finalizer, true
	case diagnose.Sandbox, diagnose.DynamicResources:
		return sandbox, true
	case diagnose.Delivery, diagnose.Startup, diagnose.PreStop, diagnose.StopSignal, diagnose.Kill, diagnose.Runtime:
		return stops, true
	case diagnose.Volumes, diagnose.Cleanup, diagnose.FinalDelete, diagnose.PhaseUnknown:
		if e.ContainersEnded() {
			return volumes, true
		}
	}
	return stops, false
}

// A timeline is when a pod's termination got to its stages, by the node's clock.
//
// A part whose beginning was not seen is in the sentence and is not counted. One that is shorter than a round may count
// as nothing, or as what is left of the round.
type timeline struct {
	known bool // whether there was a reading
	// from is the first stage of which the begin was seen. Of a pod that was being
	// deleted when the agent began, that of none that had begun was.
	from    stage
	stage   stage
	entered [stages]time.Time // zero where that was not seen
	// deadline is the first one, zero when it is not known: the final delete, a force
	// delete and a second one move it, and the kubelet keeps to the first.
	deadline time.Time
	sawGrace bool // a reading was before the deadline
	// told is what an agent before this one has told.
	told string
}

// see takes note of a reading and returns the parts that have ended.
func (t *timeline) see(e *evidence.Pod, phase diagnose.Phase, late bool) []Passage {
	now, ok := stageOf(e, phase)
	if !ok {
		return nil
	}
	if !t.known {
		t.begin(e)
		if late {
			t.from, t.stage = max(t.from, now+1), now
			t.entered[sandbox] = ended(e, time.Time{})
		}
	}
	t.sawGrace = t.sawGrace || !late || e.Time.Before(t.deadline)
	return t.reach(now, e)
}

// begin takes note of the deletion. With a grace period of 0 it is a final delete, which
// hides when the first one was, or one by force, or of a pod that had ended: of the kubelet's
// work only the end may be seen.
func (t *timeline) begin(e *evidence.Pod) {
	t.known = true
	if e.GracePeriodSeconds == 0 {
		t.from = finalizer
		return
	}
	t.entered[stops] = e.DeletionRequested
	if !e.DeadlineUnsure {
		t.deadline = e.Deadline
	}
}

// reach moves the timeline on to a stage.
func (t *timeline) reach(to stage, e *evidence.Pod) (passed []Passage) {
	for t.stage < to {
		at := e.Time
		if t.stage == stops {
			at = ended(e, e.Time)
		}
		passed = append(passed, t.leave(at)...)
		t.stage++
		t.entered[t.stage] = latest(at, t.entered[t.stage-1])
	}
	return passed
}

// leave returns the parts that end when the timeline's stage does.
func (t *timeline) leave(at time.Time) []Passage {
	since := t.entered[t.stage]
	switch {
	case t.stage == stops:
		return t.stopped(at)
	case t.stage < t.from || since.IsZero():
		return nil
	}
	part := map[stage]Part{sandbox: Sandbox, volumes: Volumes, finalizer: Finalizers}[t.stage]
	return []Passage{{part, max(0, at.Sub(since))}}
}

// stopped returns the parts that end with the last container. Without a deadline there
// are none: what was deleted with a grace period of 0 had ended, or the kubelet goes by
// another grace period.
func (t *timeline) stopped(at time.Time) (passed []Passage) {
	if t.deadline.IsZero() {
		return nil
	}
	in := at
	if in.After(t.deadline) {
		in = t.deadline
	}
	if t.from == stops {
		passed = append(passed, Passage{GracePeriod, max(0, in.Sub(t.entered[stops]))})
	}
	if over := at.Sub(t.deadline); over > 0 && t.sawGrace {
		passed = append(passed, Passage{Overdue, over})
	}
	return passed
}

// end takes note that the pod is gone, by its last state, at its Time. One that was
// deleted by force ends nothing on the node.
func (t *timeline) end(e *evidence.Pod, late bool) []Passage {
	if late && !t.known {
		return nil
	}
	if !t.known {
		t.begin(e)
	}
	t.sawGrace = t.sawGrace || !late
	if !e.ContainersEnded() {
		return nil
	}
	passed := t.reach(max(t.stage, volumes), e)
	return append(passed, t.leave(e.Time)...)
}

// ended returns when the last container of the pod had ended, as the kubelet has written
// it, and otherwise, or where that cannot be, the given time. A clock may have been set,
// and a runtime may write anything.
func ended(e *evidence.Pod, otherwise time.Time) time.Time {
	last := e.DeletionRequested
	for i := range e.Containers {
		c := &e.Containers[i]
		switch {
		case c.Kind != evidence.App && c.Kind != evidence.Sidecar:
		case c.Exit == nil || c.Exit.At.IsZero():
			return otherwise
		case c.Exit.At.After(last):
			last = c.Exit.At
		}
	}
	if last.After(e.Time) {
		return otherwise
	}
	return last
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Passed returns the parts of the pod's termination that the last look has shown to be
// over. It is called once after Judge.
func (c *Case) Passed() []Passage {
	p := c.passed
	c.passed = nil
	return p
}

// End returns the parts that are over because the pod is gone. e is its last state, at
// the time when it was gone.
func (c *Case) End(e *evidence.Pod) []Passage { return c.timeline.end(e, c.Late) }

// The words of a timeline.
const (
	deleted         = "deleted"
	containersEnded = "containers ended by"
	graceOver       = "grace period over"
	sandboxRemoved  = "sandbox removed by"
	nodeDone        = "node done by"
)

// neverRan reports whether nothing shows that anything of the pod was ever made on the node, as of one
// that the kubelet has not admitted.
func neverRan(e *evidence.Pod) bool {
	return !e.Seen.Group && !slices.ContainsFunc(e.Containers, func(c evidence.Container) bool {
		return c.ID != "" || c.Exit != nil && !c.Exit.At.IsZero() || c.Running || c.State != ""
	})
}

// earlierTimeline is a timeline as Timeline writes it.
var earlierTimeline = regexp.MustCompile(strings.ReplaceAll(
	`^WORDS \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(, WORDS( \d{4}-\d\d-\d\d)? \d\d:\d\d:\d\d){0,4}\.$`,
	"WORDS", "("+strings.Join([]string{deleted, containersEnded, graceOver, sandboxRemoved, nodeDone}, "|")+")"))

// recall returns the timeline that an agent before this one has told of a pod; "" for none.
func recall(s Subject) string {
	if s.Condition == nil {
		return ""
	}
	m, ok := condition.Parse(s.Condition.Message)
	if !ok || !earlierTimeline.MatchString(m.Timeline) {
		return ""
	}
	return m.Timeline
}

// Since returns when the grace period of a pod was over, zero inside of it.
func (c *Case) Since() time.Time {
	if t := &c.timeline; t.known && c.Last.Overdue() > c.Last.ClockDoubt() {
		return t.deadline
	}
	return time.Time{}
}

// Timeline says in a sentence when the termination of a pod that is past its deadline got to where, in UTC; "" inside the grace period. Nothing in it
// changes while the pod is stuck. What an agent before this one has told stands in the
// pod's condition, and it has seen more.
func (c *Case) Timeline() string {
	t, e := &c.timeline, c.Last
	if !t.known || e.Overdue() <= e.ClockDoubt() {
		return ""
	}
	if t.told != "" {
		return t.told
	}
	type moment struct {
		words string
		at    time.Time
	}
	all := []moment{{deleted, t.entered[stops]}, {containersEnded, t.entered[sandbox]}, {graceOver, t.deadline},
		{sandboxRemoved, t.entered[volumes]}, {nodeDone, t.entered[finalizer]}}
	if neverRan(e) {
		all = slices.DeleteFunc(all, func(m moment) bool { return m.words == containersEnded || m.words == sandboxRemoved })
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.at.Compare(b.at) })
	var b strings.Builder
	day := ""
	for _, m := range all {
		if m.at.IsZero() {
			continue
		}
		at := m.at.UTC()
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.words)
		if is := at.Format(time.DateOnly); is != day {
			b.WriteString(" " + is)
			day = is
		}
		b.WriteString(at.Format(" 15:04:05"))
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + "."
}
