package diagnose

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

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
func (t Table) Tried(r *Rule, pod *evidence.Pod) bool {
	p := fact.See(pod)
	return r.due(p) && (len(r.Phases) == 0 || slices.Contains(r.Phases, locate(p, t))) && !fact.Missing(p, r.Sources()...)
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

// Guarded looks for a rule's cause as the rule does, and finds out which of its facts make a difference to what is found.
type Guarded struct {
	Recognition
	mu sync.Mutex
	// Left are the facts that have made no difference yet, and Silent is set when something was found and nothing said of it.
	Left   map[int]Recognition
	Silent bool
	// without is the rule without each of its facts.
	without map[int]Recognition
}

// Guard lets all tests of the package tell which facts they guard.
func Guard(rules []*Rule) map[string]*Guarded {
	out := make(map[string]*Guarded)
	for _, r := range rules {
		g := &Guarded{Recognition: r.By, Left: make(map[int]Recognition)}
		for i := range r.By.facts() {
			if less, ok := r.By.Without(i); ok {
				g.Left[i] = less
			}
		}
		g.without = maps.Clone(g.Left)
		out[r.Cause], r.By = g, g
	}
	return out
}

func (g *Guarded) look(p *fact.View) looked {
	got := g.Recognition.look(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, less := range g.Left {
		if differs(less, p, got.found) {
			delete(g.Left, i)
		}
	}
	g.Silent = g.Silent || silent(g.Recognition, p)
	return got
}

// differs reports whether a rule without one of its facts finds something else. One that fails without it does.
func differs(less Recognition, p *fact.View, found []Finding) (differs bool) {
	defer func() { differs = differs || recover() != nil }()
	return !reflect.DeepEqual(less.look(p).found, found)
}

// Facts returns the lines of the facts by their order, and the title of its way before a line that stands in several ways.
func (g *Guarded) Facts() (names []string) {
	times := make(map[string]int)
	for _, w := range g.ways() {
		for _, says := range w.Lines()[0].Says[:w.facts()] {
			times[says]++
		}
	}
	for _, w := range g.ways() {
		for _, says := range w.Lines()[0].Says[:w.facts()] {
			if times[says] > 1 {
				says = w.Lines()[0].Title + ": " + says
			}
			names = append(names, says)
		}
	}
	return names
}

// ways returns the ways of a rule, one where it has no several.
func (g *Guarded) ways() Ways {
	if ways, ok := g.Recognition.(Ways); ok {
		return ways
	}
	return Ways{g.Recognition}
}

// FoundBy returns in which of its ways a rule finds its cause, as the first of the facts of each.
func (g *Guarded) FoundBy(p *fact.View) (first []int) {
	n := 0
	for _, w := range g.ways() {
		if found, _ := finds(w, p); len(found) > 0 {
			first = append(first, n)
		}
		n += w.facts()
	}
	return first
}

// Look looks for a rule's cause as Diagnose does.
func (g *Guarded) Look(p *fact.View) { g.look(p) }

// Found returns what a rule finds, and guards no fact by that.
func (g *Guarded) Found(p *fact.View) []Finding {
	found, _ := finds(g.Recognition, p)
	return found
}

// RulesOut reports whether a rule says that its cause is not there.
func (g *Guarded) RulesOut(p *fact.View) bool {
	l := g.Recognition.look(p)
	return len(l.found)+len(l.open)+len(l.unread) == 0
}

// finds returns what is found, and ok is false where the look fails, as on evidence that no reading shows.
func finds(r Recognition, p *fact.View) (found []Finding, ok bool) {
	defer func() { ok = recover() == nil }()
	return r.look(p).found, true
}

// Needed returns which of some facts are each what rules out a finding: it was there before the evidence was changed, it is not now, and is
// without the fact.
func (g *Guarded) Needed(was []Finding, changed *fact.View, facts []int) (needed []int) {
	got, ok := finds(g.Recognition, changed)
	if !ok || reflect.DeepEqual(got, was) {
		return nil
	}
	for _, i := range facts {
		if g.without[i] == nil {
			continue
		}
		again, ok := finds(g.without[i], changed)
		if ok && (len(got) < len(was) && len(again) > len(got) || reflect.DeepEqual(again, was)) {
			needed = append(needed, i)
		}
	}
	return needed
}

// Yes counts for each fact the candidates of which it is so, and all candidates.
func (g *Guarded) Yes(p *fact.View) (counts []int, candidates int) {
	for _, w := range g.ways() {
		yes, n := w.(interface{ yes(*fact.View) ([]int, int) }).yes(p)
		counts, candidates = append(counts, yes...), candidates+n
	}
	return counts, candidates
}

func (b By[T]) yes(p *fact.View) (counts []int, candidates int) {
	counts = make([]int, len(b.Facts))
	defer func() { _ = recover() }()
	for _, t := range b.candidates(p) {
		candidates++
		for i := range b.Facts {
			if meets(&b.Facts[i], p, t) {
				counts[i]++
			}
		}
	}
	return counts, candidates
}

// WayOf returns the first and the last of the facts of the way of a fact, and whether the way only waits.
func (g *Guarded) WayOf(i int) (first, last int, waits bool) {
	for _, w := range g.ways() {
		if last = first + w.facts() - 1; i <= last {
			return first, last, w.(interface{ waits() bool }).waits()
		}
		first = last + 1
	}
	return 0, 0, false
}

func (b By[T]) waits() bool { return b.Tell == nil }

// silent reports whether there are candidates that meet all facts, and nothing is told of them.
func silent(r Recognition, p *fact.View) bool {
	switch r := r.(type) {
	case Ways:
		return slices.ContainsFunc(r, func(r Recognition) bool { return silent(r, p) })
	case interface{ silent(*fact.View) bool }:
		return r.silent(p)
	}
	return false
}

func (b By[T]) silent(p *fact.View) bool {
	if lacking(p, b.From) != "" {
		return false
	}
	met := len(Met(p, b.candidates(p), b.Facts))
	return b.Tell != nil && met > 0 && (b.Alone == "" || met == 1) && len(b.look(p).found) == 0
}

// Problems returns what is wrong with the form of a rule's facts.
func (r *Rule) Problems() []string { return problems(r.By) }

func problems(r Recognition) (out []string) {
	switch r := r.(type) {
	case *Guarded:
		return problems(r.Recognition)
	case Ways:
		for _, way := range r {
			out = append(out, problems(way)...)
			if len(way.Lines()) != 1 || way.Lines()[0].Title == "" {
				out = append(out, "a way has no title")
			}
		}
		return out
	case interface{ problems() []string }:
		return r.problems()
	}
	return []string{"it is not recognised by facts"}
}

func (b By[T]) problems() (out []string) {
	for _, f := range b.Facts {
		if f.Is != nil && f.Pod != nil {
			out = append(out, "both Is and Pod answer: "+f.Says)
		}
		if f.Is == nil && f.Pod == nil && len(f.From)+len(f.Partly) > 0 {
			out = append(out, "a line that only explains has sources: "+f.Says)
		}
		if !strings.HasSuffix(f.Says, ".") {
			out = append(out, "is no sentence: "+f.Says)
		}
	}
	return out
}

// Distance returns how many facts the most suspicious candidate of a rule does not meet, and ok is false where there is no candidate.
func (r *Rule) Distance(pod *evidence.Pod) (n int, ok bool) { return distance(r.By, fact.See(pod)) }

func distance(r Recognition, p *fact.View) (n int, ok bool) {
	switch r := r.(type) {
	case *Guarded:
		return distance(r.Recognition, p)
	case Ways:
		for _, way := range r {
			if d, has := distance(way, p); has && (!ok || d < n) {
				n, ok = d, true
			}
		}
		return n, ok
	case interface{ distance(*fact.View) (int, bool) }:
		return r.distance(p)
	}
	return 0, false
}

func (b By[T]) distance(p *fact.View) (n int, ok bool) {
	if lacking(p, b.From) != "" {
		return 0, false
	}
	for _, t := range b.candidates(p) {
		d := 0
		for i := range b.Facts {
			if !meets(&b.Facts[i], p, t) {
				d++
			}
		}
		if !ok || d < n {
			n, ok = d, true
		}
	}
	return n, ok
}

// meets reports whether a candidate meets a fact. One that relies on a fact before it that is not so does not.
func meets[T any](f *Fact[T], p *fact.View, t T) (met bool) {
	defer func() { _ = recover() }()
	h := f.ask(p, t)
	return h.answer == yes
}

// RuledOut reports whether a rule's facts say that its cause is not there.
func (r *Rule) RuledOut(pod *evidence.Pod) bool {
	got := r.By.look(fact.See(pod))
	return len(got.found)+len(got.open)+len(got.unread) == 0
}
