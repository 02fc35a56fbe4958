// Package diagnose turns evidence into a diagnosis: which phase of a pod's
// termination is not getting on, and why. It is pure: it reads no file, no
// clock and no network, so that a captured incident always gets the same
// verdict.
//
// A deletion is a baton that goes from the API server to the kubelet, the
// processes, the kernel, the runtime, the network, the volumes and back to the
// API server. phase.go says who holds it; the rules, listed in cause/causes.go with
// one file for each cause, say what the holder waits for.
package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Rule recognises one cause.
type Rule struct {
	// Cause is the reason of the condition and of the Event, a label of the
	// metric and the name of the runbook page. It is never renamed.
	Cause string
	// Doc is the only place where words about the cause stand.
	Doc Doc
	// Phases are those in which the cause can hold the pod up; none means any.
	Phases []Phase
	// Shows is the phase that a pod is in while it has the cause, whatever else is seen, "" for none.
	Shows Phase
	// When is the part of the termination in which the cause is looked for.
	When When
	// By is how the cause is recognised. What it finds counts in the rule's phases, and what it leaves open in any.
	By Recognition
	// Recurs returns within what time a cause that is there is seen again, of one that is not seen in each reading: containerd ends
	// again, or a count of the kubelet's rises at its next try. It returns 0 when a reading would have shown it by now. since is when
	// what shows it began anew: one that was found after that, and is not any more, has ended. nil is for a cause that each reading shows.
	Recurs func(*fact.View) (within time.Duration, since time.Time)
	// Awaits returns for how long a pod of which volumes are left must have made no progress until the cause is known to be there or not, 0
	// where nothing is seen of it. Before that it is not said that no cause is known. nil is for a cause that is not waited for so.
	Awaits func(*fact.View) time.Duration
}

// When is the part of a pod's termination in which a cause is looked for.
type When int

const (
	// Overdue is past the deadline.
	Overdue When = iota
	// InGrace is for causes that prove that the pod will use up its grace period:
	// from StopSettles after the request for deletion until the deadline, and once more
	// when the pod is gone, of containers that were there until then. What is
	// told is that the pod waits for SIGKILL; when that is late, it is not what the
	// pod waits for, and a time that has passed is no news.
	InGrace
	// InGraceAndAfter is the same for causes that SIGKILL need not end.
	InGraceAndAfter
	// AtTheEnd is past the deadline, and once more when the pod is gone.
	AtTheEnd
	// WhenGone is when the pod is gone: how its containers ended is the proof.
	WhenGone
)

// A Table holds the rules in order of precedence, and which of them explain
// which others.
type Table []Row

// A Row is a rule and its place in the graph of explanations.
type Row struct {
	Rule *Rule
	// Explains are causes that are only symptoms when this one is found in the
	// same container, or when they are about the whole pod. The graph has no
	// cycle: of two causes that explain each other neither would be told.
	Explains []*Rule
	// Holds are causes that it explains, and that stay open while it is open itself: until that is known what is seen of
	// them may be its doing, or comes after it.
	Holds []*Rule
}

// The variants that more than one cause has.
const (
	// Gone is for a pod that is gone, Stopped for a process that should act and
	// is stopped by a signal itself, Essential for one that holds another process
	// and that nobody may be told to end (fact.Essential). OnePod is for one pod, of a cause that
	// else holds up all of the node.
	Gone      = "Gone"
	Stopped   = "Stopped"
	Essential = "Essential"
	OnePod    = "OnePod"
)

// Confidence says how far the evidence goes.
type Confidence string

// Proved means that the evidence leaves no other explanation; Inferred that it
// is the best one.
const (
	Proved   Confidence = "Proved"
	Inferred Confidence = "Inferred"
)

// A Finding is one cause that a rule has found.
type Finding struct {
	Cause string `json:"cause"`
	// Family is the variant of the cause, "" where it has none.
	Family string `json:"family,omitempty"`
	// Container is the name of the container it is about, "" for the pod.
	Container  string     `json:"container,omitempty"`
	Confidence Confidence `json:"confidence"`
	// Variants are what else the Doc's words depend on, such as Gone.
	Variants []string `json:"variants,omitempty"`
	// Objects are what it is about.
	Objects Objects `json:"objects,omitzero"`
	// Message, Seen, Remedy, Danger, First and Avoid are the Doc's words about the objects.
	Message string   `json:"message"`
	Seen    []string `json:"seen,omitempty"`
	Remedy  string   `json:"remedy"`
	Danger  string   `json:"danger"`
	First   string   `json:"first,omitempty"`
	Avoid   string   `json:"avoid,omitempty"`
	// Who can act, whether the app has certainly not caused it, and whether it ends by itself.
	Who    Who  `json:"who,omitempty"`
	NotApp bool `json:"notApp,omitempty"`
	Ends   bool `json:"ends,omitempty"`
	// WholeNode and Quiet are the Doc's, but for OnePod.
	WholeNode bool `json:"wholeNode,omitempty"`
	Quiet     bool `json:"quiet,omitempty"`
	// Symptom says that another finding explains this one.
	Symptom bool `json:"symptom,omitempty"`

	node string // where it was found
}

// Node returns the name of the node that it was found on; "" where that is not known.
func (f *Finding) Node() string { return cmp.Or(f.Objects.Node, f.node) }

// An Unknown is a source that could not be read and that causes need which can
// hold the pod up.
type Unknown struct {
	Source evidence.Source `json:"source"`
	Why    string          `json:"why"`
	// Causes are those that were not looked for.
	Causes []string `json:"-"`
}

// A Diagnosis is the verdict on one pod at one moment. No findings means that
// there is nothing to tell, or not yet.
type Diagnosis struct {
	Phase Phase `json:"phase"`
	// Gone says that it is about a pod that is gone.
	Gone bool `json:"gone,omitempty"`
	// Findings stand in order: the first one that is no symptom is the verdict.
	Findings []Finding `json:"findings,omitempty"`
	// Unknown is sorted by the names of the sources.
	Unknown []Unknown `json:"unknown,omitempty"`
	// Force says whether a force delete is safe; nil for a pod that is gone or not past
	// its deadline.
	Force *Force `json:"force,omitempty"`
	// Sidecars are those that wait for the container of the verdict to end, or for the
	// deadline, before they are sent their stop signal: nothing is wrong with them.
	Sidecars []string `json:"sidecars,omitempty"`
	// ShutsDown reports whether the kubelet says that the node is shutting down, of a pod of which
	// there is a verdict.
	ShutsDown bool `json:"shutsDown,omitempty"`
	// Open is what is neither found nor ruled out yet, in the order of the table.
	Open []Open `json:"open,omitempty"`
	// Killed are the containers of a pod that is gone that SIGKILL has ended at the deadline, by name. A force delete has no deadline.
	Killed []string `json:"-"`

	ground *ground // nil where it is not known
}

// NotLookedFor reports whether a cause could not be looked for, because a source was missing, or is open: a verdict of
// before is neither confirmed nor refuted then.
func (d *Diagnosis) NotLookedFor(cause string) bool {
	return d.notLookedFor(cause, func(Open) bool { return true })
}

// Blind is NotLookedFor of a cause that has not been found since a time. What has begun to last after that is asked of Early: else a
// verdict would stand for as long as anything moves.
func (d *Diagnosis) Blind(cause string, since time.Time) bool {
	return d.notLookedFor(cause, func(o Open) bool { return !o.Timed || o.Since.Before(since) })
}

func (d *Diagnosis) notLookedFor(cause string, counts func(Open) bool) bool {
	return slices.ContainsFunc(d.Open, func(o Open) bool { return slices.Contains(o.Causes, cause) && counts(o) }) ||
		slices.ContainsFunc(d.Unknown, func(u Unknown) bool { return slices.Contains(u.Causes, cause) })
}

// Unexplained returns those of Killed about which nothing was found, nor about the pod.
func (d *Diagnosis) Unexplained() []string {
	return slices.DeleteFunc(slices.Clone(d.Killed), func(container string) bool {
		return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Container == container || f.Container == "" })
	})
}

// Verdict is the root cause, if there is one to report.
func (d *Diagnosis) Verdict() (Finding, bool) {
	for _, f := range d.Findings {
		if !f.Symptom {
			return f, true
		}
	}
	return Finding{}, false
}

// StopSettles is the time after the request for deletion after which the stop
// signal has been sent and a program has had its chance to react.
const StopSettles = 5 * time.Second

// Run looks for the causes of a table.
func Run(pod *evidence.Pod, table Table) Diagnosis {
	p := fact.See(pod)
	s := search{pod: p, d: Diagnosis{Phase: locate(p, table), Gone: p.Gone}, found: make(map[string][]Finding)}
	for _, row := range table {
		s.look(row)
	}
	s.hold(table)
	s.explain(table)
	s.conclude(table)
	s.d.ground = &ground{p, table}
	s.d.Killed = killed(p)
	return s.d
}

// killed returns the containers of a pod that is gone that SIGKILL has ended at the deadline.
func killed(p *fact.View) (names []string) {
	if !p.Gone || fact.Grace(p) < fact.LeastStill {
		return nil
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; fact.KilledAtDeadline(p, c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// layer returns the layer of a cause.
func (t Table) layer(cause string) string {
	for _, row := range t {
		if row.Rule.Cause == cause {
			return row.Rule.Doc.Layer
		}
	}
	return Unrecognised.Doc.Layer
}

// reaches reports whether the finding can be the reason of another one: what
// happens in one container explains what happens there and to the pod as a
// whole, whose shim serves each of its containers, but not what happens in
// another container.
func (f *Finding) reaches(symptom *Finding) bool {
	return symptom.Container == f.Container || symptom.Container == ""
}

// due reports whether it is time to look for the cause.
func (r *Rule) due(p *fact.View) bool {
	if p.Gone {
		return r.When == AtTheEnd || r.When == WhenGone || r.When == InGrace && fact.Grace(p) >= fact.LeastStill
	}
	// Of clocks that were not compared, or that differ by a part of a second that is
	// not known, it is neither before nor after the deadline for certain.
	doubt := p.ClockDoubt()
	switch settled := p.Time.Sub(p.DeletionRequested) >= StopSettles; r.When {
	case InGrace:
		return settled && p.Overdue() < -doubt
	case InGraceAndAfter:
		return settled
	case WhenGone:
		return false
	}
	return p.Overdue() > doubt
}
