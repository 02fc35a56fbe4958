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
	// Needs are the sources without which the rule cannot tell. When one is
	// missing the rule is reported as unknown instead of being run.
	Needs []evidence.Source
	// Partly are sources of which the rule can use what was read. When one is missing, what
	// the rule does not find is unknown, and what it finds is there.
	Partly []evidence.Source
	// When is the part of the termination in which the cause is looked for.
	When When
	// Undecided reports whether what a verdict of before was about has changed, and whether it is the
	// same again takes longer to see: that verdict is neither confirmed nor refuted then, and the
	// cause is not ruled out. nil means never.
	Undecided func(*evidence.Pod) bool
	// Check looks for the cause. It may return one finding for each container.
	Check func(*evidence.Pod) []Finding
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
}

// The variants that more than one cause has.
const (
	// Gone is for a pod that is gone, Stopped for a process that should act and
	// is stopped by a signal itself, Essential for one that holds another process
	// and that nobody may be told to end (fact.Essential).
	Gone      = "Gone"
	Stopped   = "Stopped"
	Essential = "Essential"
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
	// Message, Remedy and Danger are the Doc's words about the objects.
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	Danger  string `json:"danger"`
	// Symptom says that another finding explains this one.
	Symptom bool `json:"symptom,omitempty"`
}

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
	// expired are the causes that are looked for in the grace period only, when
	// that is over and SIGKILL may still be on its way, or the stop signal may not
	// have been sent; and those that take time to see which has not passed.
	expired []string
}

// NotLookedFor reports whether a cause could not be looked for, because a source
// was missing, because it has not been seen for long enough, or because it is told in the
// grace period only and that is over: a verdict of before is neither confirmed nor refuted then.
func (d *Diagnosis) NotLookedFor(cause string) bool {
	return slices.Contains(d.expired, cause) || slices.ContainsFunc(d.Unknown, func(u Unknown) bool { return slices.Contains(u.Causes, cause) })
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

// layerRuntime is the layer of the causes that a silent containerd leaves open.
const layerRuntime = "runtime"

// layerStorage is the layer of the causes that a volume leaves open that is not unmounted, and layerKernel of those that
// gVisor leaves open.
const (
	layerStorage = "storage"
	layerKernel  = "kernel"
)

// Run looks for the causes of a table.
func Run(p *evidence.Pod, table Table) Diagnosis {
	d := Diagnosis{Phase: locate(p), Gone: p.Gone}
	// While containerd is silent or down, so that the pod seems to wait for it, the causes
	// of other phases are neither there nor ruled out.
	silent := !p.Node.Containerd.UnansweredSince.IsZero() || p.Node.Containerd.Refused
	// undelivered says that the stop signal may not have been sent, by what this
	// reading shows, or that nobody knows what it met: a verdict of an earlier reading is
	// not refuted by this one. waits says that the pod may still wait for SIGKILL.
	undelivered := !p.Gone && (!fact.Delivered(p) || fact.Hastened(p) || fact.Doubted(p))
	waits := !p.Gone && (silent || d.Phase == PreStop || d.Phase == StopSignal || d.Phase == PhaseUnknown)
	// Until the API server has heard nothing from the kubelet for long enough, or while one is
	// started again, what follows from that is neither there nor ruled out.
	unheard := p.Node.Ready.Unheard() && !fact.OutOfTouch(p)
	var looked search
	explained := make(map[string][]Finding)
	for _, row := range table {
		r := row.Rule
		if waits && (r.When == InGrace || r.When == InGraceAndAfter) && p.Overdue() >= -p.ClockDoubt() && p.Overdue() < fact.UnknownAfter {
			d.expired = append(d.expired, r.Cause)
		}
		if unheard && slices.Contains(r.Needs, evidence.NodeObject) {
			d.expired = append(d.expired, r.Cause)
		}
		// Those that look at what becomes of the signal need the suspects.
		if undelivered && r.When == InGrace && p.Overdue() < 0 && slices.Contains(r.Needs, evidence.Suspects) && r.Doc.Layer == "signal" {
			d.expired = append(d.expired, r.Cause)
		}
		if r.Undecided != nil && r.Undecided(p) {
			d.expired = append(d.expired, r.Cause)
			looked.part = append(looked.part, r.Doc.Layer)
		}
		if !r.due(p) {
			continue
		}
		if len(r.Phases) > 0 && !slices.Contains(r.Phases, d.Phase) {
			if silent {
				d.unlooked(evidence.Containerd, p.Node.Containerd.Error, r)
				looked.part = append(looked.part, r.Doc.Layer)
			}
			if d.Phase == PhaseUnknown && mayBeIn(p, r.Phases) && d.lacks(p, r, slices.Concat(r.Needs, r.Partly)) {
				looked.part = append(looked.part, r.Doc.Layer)
			}
			continue
		}
		if d.lacks(p, r, r.Needs) {
			looked.part = append(looked.part, r.Doc.Layer)
			continue
		}
		looked.whole = append(looked.whole, r.Doc.Layer)
		if d.lacks(p, r, r.Partly) {
			looked.part = append(looked.part, r.Doc.Layer)
		}
		if (silent || len(views(p)) > 0) && r.Doc.Layer == layerRuntime {
			looked.part = append(looked.part, layerRuntime) // it has not hung for long enough, a shim behind it does, or it is wrong
		}
		found := r.Check(p)
		for _, f := range found {
			f.Cause = r.Cause
			f.Objects.Claimed = claimed(p, &f.Objects)
			f.Message, f.Remedy, f.Danger = r.Doc.words(&f)
			d.Findings = append(d.Findings, f)
		}
		for _, s := range row.Explains {
			explained[s.Cause] = append(explained[s.Cause], found...)
		}
	}
	slices.SortFunc(d.Unknown, func(a, b Unknown) int { return cmp.Compare(a.Source, b.Source) })
	for i := range d.Findings {
		f := &d.Findings[i]
		// What somebody has stopped waits for nothing else: it stays when the other cause goes.
		f.Symptom = f.Family != Stopped && slices.ContainsFunc(explained[f.Cause], func(by Finding) bool { return by.reaches(f) })
	}
	if unmountFails(p, d.Phase) != nil {
		looked.part = append(looked.part, layerStorage)
	}
	if fact.UnderGVisor(p) && len(p.Tasks) > 0 {
		looked.part = append(looked.part, layerKernel) // that a thread of it waits for a FUSE daemon is not seen
	}
	d.Force = force(p, &d, table.layer)
	if len(d.Findings) == 0 && !p.Gone && standsStill(p, d.Phase) {
		d.Findings = []Finding{unknown(p, d.Phase, looked, d.Unknown, d.Force)}
	}
	if f, ok := d.Verdict(); ok && d.Phase != Startup && slices.ContainsFunc(p.Containers, func(c evidence.Container) bool { return c.Kind == evidence.App && c.Name == f.Container }) {
		d.Sidecars = fact.WaitingSidecars(p)
	}
	d.ShutsDown = !p.Gone && len(d.Findings) > 0 && fact.Hastened(p)
	return d
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

// lacks notes those of the sources of a rule that could not be read, and reports whether
// there are any.
func (d *Diagnosis) lacks(p *evidence.Pod, r *Rule, sources []evidence.Source) bool {
	blind := false
	for _, s := range sources {
		why, ok := p.Missing[s]
		if !ok {
			continue
		}
		blind = true
		d.unlooked(s, why, r)
	}
	return blind
}

// unlooked notes that a rule's cause was not looked for, for want of a source.
func (d *Diagnosis) unlooked(s evidence.Source, why string, r *Rule) {
	i := slices.IndexFunc(d.Unknown, func(u Unknown) bool { return u.Source == s })
	if i < 0 {
		i = len(d.Unknown)
		d.Unknown = append(d.Unknown, Unknown{Source: s, Why: why})
	}
	d.Unknown[i].Causes = append(d.Unknown[i].Causes, r.Cause)
}

// reaches reports whether the finding can be the reason of another one: what
// happens in one container explains what happens there and to the pod as a
// whole, whose shim serves each of its containers, but not what happens in
// another container.
func (f *Finding) reaches(symptom *Finding) bool {
	return symptom.Container == f.Container || symptom.Container == ""
}

// due reports whether it is time to look for the cause.
func (r *Rule) due(p *evidence.Pod) bool {
	if p.Gone {
		return r.When == AtTheEnd || r.When == WhenGone || r.When == InGrace && fact.Grace(p) >= fact.Stuck
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
