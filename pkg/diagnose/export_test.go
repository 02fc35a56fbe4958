package diagnose

import (
	"maps"
	"slices"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Value returns what a placeholder of a Doc stands for in a finding, and whether the
// finding has it.
func (d *Doc) Value(name string, f *Finding) (string, bool) { return d.value(name, f) }

// Phrase returns the choices of a phrase, the Doc's own or one that all share.
func (d *Doc) Phrase(name string) ([]Choice, bool) { return d.phrase(name) }

// Advice returns the texts that a finding's remedy and danger, and what an Event has of them, are made of.
func (d *Doc) Advice(f *Finding) Family { return d.advice(f) }

// IsValue reports whether a placeholder is one of words.go.
func IsValue(name string) bool { return values[name] != nil }

// ValueNames returns the placeholders of words.go.
func ValueNames() []string { return slices.Sorted(maps.Keys(values)) }

// Tried reports whether the rule's Check is run on a pod: it is time for it, the pod
// is in one of its phases, and no source that it needs is missing.
func (r *Rule) Tried(pod *evidence.Pod) bool {
	p := fact.See(pod)
	return r.due(p) && (len(r.Phases) == 0 || slices.Contains(r.Phases, locate(p))) && !fact.Missing(p, r.Sources()...)
}

// Said returns a finding with all that the Doc says of it.
func (d *Doc) Said(f *Finding) Finding {
	said := *f
	d.say(&said)
	return said
}

// ClaimedOf returns what the pod's specification calls a volume, nil when that is not known.
func ClaimedOf(p *evidence.Pod, name string) *Claimed { return claimedBy(fact.See(p), name) }

// WhyOf returns what an answer about a force delete rests on, in words.
func WhyOf(f *Force, p *evidence.Pod) string { return string(f.why(fact.See(p))) }

// Reasons are those of the answers.
var Reasons = []Reason{
	ReasonMirror, ReasonProcess, ReasonLeftover, ReasonGroup, ReasonContainer, ReasonRecord, ReasonHolder, ReasonVolume, ReasonDevice, ReasonUnmount,
	ReasonStarting, ReasonLocal, ReasonNetwork,
	ReasonFinalizers, ReasonSources, ReasonHostPID, ReasonRuntime, ReasonClaim, ReasonEmptyGroup, ReasonNotEnded, ReasonNotItsWord,
	ReasonUnseen, ReasonCause, ReasonOnce, ReasonNothing,
}
