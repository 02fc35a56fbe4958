// Package diagnose turns evidence into a diagnosis: which phase of a pod's
// termination is not getting on, and why. It is pure: it reads no file, no
// clock and no network, so that a captured incident always gets the same
// verdict.
//
// A deletion is a baton that goes from the API server to the kubelet, the
// processes, the kernel, the runtime, the network, the volumes and back to the
// API server. phase.go says who holds it; the rules, listed in rules.go with
// one file for each cause, say what the holder waits for.
package diagnose

import (
	"slices"
	"time"

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
	// Explains are causes that are only symptoms when this one is found in the
	// same container, or when they are about the whole pod.
	Explains []*Rule
	// Early says that the cause may be told inside the grace period, because
	// it proves that the pod will use all of it. SIGKILL ends such a pod, so it
	// is not told any more when that should have come.
	Early bool
	// Outlasts says that SIGKILL need not end an Early cause: it goes on being
	// told after the deadline.
	Outlasts bool
	// Posthumous says that the cause may also be told of a pod that is gone.
	Posthumous bool
	// Silent says that the cause is no trouble and is never reported.
	Silent bool
	// Check looks for the cause. It may return one finding for each container.
	Check func(*evidence.Pod) []Finding
}

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
	// Values fill in the placeholders of the rule's Doc.
	Values map[string]string `json:"values,omitempty"`
	// Message, Remedy and Danger are the Doc's words with the values filled in.
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	Danger  string `json:"danger"`
	// Symptom says that another finding explains this one.
	Symptom bool `json:"symptom,omitempty"`
}

// An Unknown is a cause that could not be looked for.
type Unknown struct {
	Cause  string          `json:"cause"`
	Source evidence.Source `json:"source"`
	Why    string          `json:"why"`
}

// A Diagnosis is the verdict on one pod at one moment. No findings means that
// there is nothing to tell, or not yet.
type Diagnosis struct {
	Phase Phase `json:"phase"`
	// Gone says that it is about a pod that is gone.
	Gone bool `json:"gone,omitempty"`
	// Findings stand in order: the first one that is no symptom is the verdict.
	Findings []Finding `json:"findings,omitempty"`
	Unknown  []Unknown `json:"unknown,omitempty"`
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

// How long things take before they are told.
const (
	// StopSettles is the time after the request for deletion after which the
	// stop signal has been sent and a program has had its chance to react.
	StopSettles = 5 * time.Second
	// Stuck is the least time between two equal readings of something that is
	// called stuck.
	Stuck = 3 * time.Second
	// SlowDevice is the same where a device or a daemon is waited for: one that
	// works may take seconds for a request.
	SlowDevice = 10 * time.Second
	// SlowRCU is the same where the kernel waits for its own processors.
	SlowRCU = 60 * time.Second
	// KillLatency is how long after the deadline SIGKILL may come: the kubelet
	// counts the grace period from when it was told of the deletion.
	KillLatency = 10 * time.Second
	// UnknownAfter is the time past the deadline, and without any progress,
	// after which a pod without a recognised cause is reported as such. Kubelet
	// itself needs some seconds for each of its steps, and more on a busy node.
	UnknownAfter = 60 * time.Second
)

// Run looks for the causes that the rules recognise. The order of the rules is
// their precedence.
func Run(p *evidence.Pod, rules []*Rule) Diagnosis {
	d := Diagnosis{Phase: locate(p), Gone: p.Gone}
	var ruledOut []string
	explained := make(map[string][]Finding)
	for _, r := range rules {
		if !r.due(p) || len(r.Phases) > 0 && !slices.Contains(r.Phases, d.Phase) {
			continue
		}
		if u, missing := r.missing(p); missing {
			d.Unknown = append(d.Unknown, u)
			continue
		}
		found := r.Check(p)
		if len(found) == 0 {
			ruledOut = append(ruledOut, r.Cause)
			continue
		}
		if r.Silent {
			continue
		}
		for _, f := range found {
			f.Cause = r.Cause
			f.Message, f.Remedy, f.Danger = r.Doc.words(f)
			d.Findings = append(d.Findings, f)
		}
		for _, s := range r.Explains {
			explained[s.Cause] = append(explained[s.Cause], found...)
		}
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		f.Symptom = slices.ContainsFunc(explained[f.Cause], func(by Finding) bool { return by.reaches(f) })
	}
	if len(d.Findings) == 0 && !p.Gone && p.Overdue() >= UnknownAfter && p.Time.Sub(p.UnchangedSince) >= UnknownAfter {
		d.Findings = []Finding{unknown(p, ruledOut, d.Unknown)}
	}
	return d
}

// reaches reports whether the finding can be the reason of another one: what
// happens in one container explains what happens there and to the pod as a
// whole, whose shim serves each of its containers, but not what happens in
// another container.
func (f *Finding) reaches(symptom *Finding) bool {
	return symptom.Container == f.Container || symptom.Container == ""
}

// due reports whether the rule may speak. What is told early is that the pod
// waits for SIGKILL; when that is late, it is not what the pod waits for.
func (r *Rule) due(p *evidence.Pod) bool {
	switch {
	case p.Gone:
		return r.Posthumous
	case r.Early:
		return p.Time.Sub(p.DeletionRequested) >= StopSettles && (r.Outlasts || p.Overdue() < KillLatency)
	}
	return r.Silent || p.Overdue() > 0
}

func (r *Rule) missing(p *evidence.Pod) (Unknown, bool) {
	for _, s := range r.Needs {
		if why, ok := p.Missing[s]; ok {
			return Unknown{Cause: r.Cause, Source: s, Why: why}, true
		}
	}
	return Unknown{}, false
}
