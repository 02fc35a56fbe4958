package diagnose

import (
	"slices"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// A Holding is the answer of a fact: yes, no, not yet, or not read. The zero value is not read, so that what nobody has decided is no "no".
type Holding struct {
	answer answer
	open   Open            // of notYet
	known  time.Time       // of notYet: when a later reading tells, though it is not waited for
	source evidence.Source // of notRead, "" where it is not known
}

// An answer is which of the four a Holding is.
type answer int

const (
	notRead answer = iota
	no
	yes
	notYet
)

// Is returns the Holding of what a reading shows, yes or no, whatever comes later.
func Is(holds bool) Holding {
	if holds {
		return Holding{answer: yes}
	}
	return Holding{answer: no}
}

// NotYet returns the Holding of what a later reading shows: what is open says until when, and why.
func NotYet(o Open) Holding { return Holding{answer: notYet, open: o} }

// KnownAt is a Holding that is not yet known with the time at which it is, if nothing changes. It is shown, and not waited for: until when
// that is, the Open says.
func (h Holding) KnownAt(t time.Time) Holding {
	h.known = t
	return h
}

// NotRead returns the Holding of what a source would show that could not be read.
func NotRead(source evidence.Source) Holding { return Holding{answer: notRead, source: source} }

// Lasted returns the Holding of what has to last for so long, and has been so since a time: not yet until then, and no where the time
// is zero.
func Lasted(p *fact.View, since time.Time, long time.Duration, why Why) Holding {
	if since.IsZero() || p.Time.Sub(since) >= long {
		return Is(!since.IsZero())
	}
	return timed(Waits(since, long, why))
}

// timed returns the Holding of what has not lasted for long enough.
func timed(o Open) Holding {
	o.Timed = true
	return NotYet(o)
}

// LastedOnNode is Lasted for what readings of the node show: they are older than those of the pod.
func LastedOnNode(p *fact.View, since time.Time, long time.Duration, why Why) Holding {
	if since.IsZero() || fact.OfNode(p, since) >= long {
		return Is(!since.IsZero())
	}
	return timed(Waits(since, long, why))
}

// Still returns the Holding of a task that must not have run for so long. One that has run in the last three seconds may do so again and again:
// nothing is waited for then.
func Still(p *fact.View, t *evidence.Task, long time.Duration) Holding {
	still := t.Unchanged(p.Time)
	switch {
	case still >= long:
		return Is(true)
	case still < min(long, fact.LeastStill):
		return timed(Seen(p, Slow)).KnownAt(p.Time.Add(long - still))
	}
	return timed(Waits(t.UnchangedSince, long, Slow))
}

// Or returns the Holding of one thing or another: yes if one of them is, else the first that is not decided, else no.
func Or(holdings ...Holding) Holding {
	out := Is(false)
	for _, h := range holdings {
		switch {
		case h.answer == yes:
			return h
		case out.answer == no:
			out = h
		}
	}
	return out
}

// IsOr returns yes, or the Holding of what a later reading shows if this one does not: what is open says until when, and why.
func IsOr(holds bool, o Open) Holding {
	if holds {
		return Is(true)
	}
	return NotYet(o)
}

// Yes reports whether it is so. A fact may ask it of another one.
func (h Holding) Yes() bool { return h.answer == yes }

// No reports whether it is not so.
func (h Holding) No() bool { return h.answer == no }

// Unawaited returns a Holding that is not yet so as one that is not waited for: of what comes and goes, or may be of another pod.
func (h Holding) Unawaited(p *fact.View) Holding {
	if h.answer != notYet {
		return h
	}
	o := Seen(p, h.open.Why)
	o.Timed = h.open.Timed
	return NotYet(o).KnownAt(fact.Latest(h.open.Until, h.known))
}

// If makes a fact of a function that reports yes or no.
func If[T any](is func(*fact.View, T) bool) func(*fact.View, T) Holding {
	return func(p *fact.View, t T) Holding { return Is(is(p, t)) }
}

// IfPod is If for a fact about the pod or the node.
func IfPod(is func(*fact.View) bool) func(*fact.View) Holding {
	return func(p *fact.View) Holding { return Is(is(p)) }
}

// IfLater makes a fact of a function that reports yes, or not yet: the next reading may show it.
func IfLater[T any](is func(*fact.View, T) bool, why Why) func(*fact.View, T) Holding {
	return func(p *fact.View, t T) Holding { return IsOr(is(p, t), Seen(p, why)) }
}

// IfPodLater is IfLater for a fact about the pod or the node.
func IfPodLater(is func(*fact.View) bool, why Why) func(*fact.View) Holding {
	return func(p *fact.View) Holding { return IsOr(is(p), Seen(p, why)) }
}

// A Fact is one condition by which a cause is recognised. It asks one thing: two that are joined by "and" are two facts.
type Fact[T any] struct {
	// Says is its line on the cause's page.
	Says string
	// Is answers it for a candidate, and Pod for the pod or its node, whichever the candidate is. One of them is set. A line with neither only
	// explains. A fact is asked after those before it, unless one of them is not so.
	Is  func(*fact.View, T) Holding
	Pod func(*fact.View) Holding
	// From are the sources without which it is not asked: it is not read then. Partly are those that show yes with what was read of them, and
	// without the rest no "no".
	From, Partly []evidence.Source
}

// ask returns the answer of a fact about a candidate.
func (f *Fact[T]) ask(p *fact.View, t T) Holding {
	if s := lacking(p, f.From); s != "" {
		return NotRead(s)
	}
	h := Is(true)
	switch {
	case f.Is != nil:
		h = f.Is(p, t)
	case f.Pod != nil:
		h = f.Pod(p)
	}
	if h.answer == no {
		if s := lacking(p, f.Partly); s != "" {
			return NotRead(s)
		}
	}
	return h
}

// lacking returns the first of some sources that could not be read, "" for none.
func lacking(p *fact.View, sources []evidence.Source) evidence.Source {
	if len(p.Missing) == 0 {
		return ""
	}
	for _, s := range sources {
		if fact.Missing(p, s) {
			return s
		}
	}
	return ""
}

// ThePod is the candidate of a cause that is about the pod or its node as a whole.
type ThePod struct{}

// By recognises a cause by facts about candidates: a candidate of which one fact is not so is none, one of which all are so is found, and
// any other is open.
type By[T any] struct {
	// Title tells this way to recognise the cause from others (Ways), on its page.
	Title string
	// Of lists the candidates by what they are, such as containers, tasks or volumes, and never by whether they are guilty. It is nil for ThePod.
	Of func(*fact.View) []T
	// From are the sources without which there are no candidates, and Partly those without which some may be missing.
	From, Partly []evidence.Source
	// Facts stand in the order in which they are asked, and on the page.
	Facts []Fact[T]
	// Alone is set where nothing is told of several candidates that are found. It is a line on the page.
	Alone string
	// Tell returns what is told of the candidates that are found. It leaves none out but those that another one stands for. It is nil for a way
	// that only waits: for what decides whether the cause will be there.
	Tell func(*fact.View, []T) []Finding
}

// Each makes a Tell of a function about one candidate.
func Each[T any](tell func(*fact.View, T) Finding) func(*fact.View, []T) []Finding {
	return func(p *fact.View, found []T) []Finding {
		out := make([]Finding, 0, len(found))
		for _, t := range found {
			out = append(out, tell(p, t))
		}
		return out
	}
}

// First makes a Tell of a function about the first of the candidates, which stands for all.
func First[T any](tell func(*fact.View, T) Finding) func(*fact.View, []T) []Finding {
	return func(p *fact.View, found []T) []Finding { return []Finding{tell(p, found[0])} }
}

// OfPod makes a Tell of a function about the pod.
func OfPod(tell func(*fact.View) Finding) func(*fact.View, []ThePod) []Finding {
	return func(p *fact.View, _ []ThePod) []Finding { return []Finding{tell(p)} }
}

// Met returns those of some candidates that meet all of some facts.
func Met[T any](p *fact.View, candidates []T, facts []Fact[T]) (met []T) {
	for _, t := range candidates {
		if !slices.ContainsFunc(facts, func(f Fact[T]) bool { return !f.ask(p, t).Yes() }) {
			met = append(met, t)
		}
	}
	return met
}

// MetAsRead is Met by what could be read: facts of which a source is missing are asked, too.
func MetAsRead[T any](p *fact.View, candidates []T, facts []Fact[T]) (met []T) {
	for _, t := range candidates {
		if !slices.ContainsFunc(facts, func(f Fact[T]) bool { return f.Is != nil && !f.Is(p, t).Yes() || f.Pod != nil && !f.Pod(p).Yes() }) {
			met = append(met, t)
		}
	}
	return met
}

// A Recognition is how a rule recognises its cause: By, or several in Ways.
type Recognition interface {
	// Lines are those of its page, a list for each way.
	Lines() []Lines
	// Without is the same without one of its facts, by their order, and ok is false for one that does not exist or only explains. It is for
	// tests: what a fact is for is seen when it is missing.
	Without(i int) (r Recognition, ok bool)

	sources() (needs, partly []evidence.Source)
	look(p *fact.View) looked
	// met reports whether a candidate meets all facts, by what could be read.
	met(p *fact.View) bool
	explain(p *fact.View) []Candidate
	facts() int
}

// Lines are those of one way to recognise a cause.
type Lines struct {
	Title string
	Says  []string
}

// looked is what a recognition sees. Neither what is found, nor what is open, means that the cause is not there.
type looked struct {
	found []Finding
	open  []Open
	// unread are the sources for want of which it cannot be told. blind says that not even candidates could be listed.
	unread []evidence.Source
	blind  bool
}

// lack notes a source that could not be read.
func (l *looked) lack(sources ...evidence.Source) {
	for _, s := range sources {
		if !slices.Contains(l.unread, s) {
			l.unread = append(l.unread, s)
		}
	}
}

// lackSome notes those of some sources that could not be read, and reports whether there are any.
func (l *looked) lackSome(p *fact.View, sources []evidence.Source) (some bool) {
	for _, s := range sources {
		if fact.Missing(p, s) {
			l.lack(s)
			some = true
		}
	}
	return some
}

func (b By[T]) look(p *fact.View) (out looked) {
	out.lackSome(p, b.Partly)
	if out.blind = out.lackSome(p, b.From); out.blind {
		return out
	}
	// What is asked of the pod first spares it to list candidates.
	first, all := 0, tally{}
	for ; first < len(b.Facts) && b.Facts[first].Is == nil; first++ {
		if !all.add(p, b.Facts[first].ask(p, *new(T))) {
			return out
		}
	}
	var found []T
next:
	for _, t := range b.candidates(p) {
		sum := all
		for i := range b.Facts[first:] {
			if !sum.add(p, b.Facts[first+i].ask(p, t)) {
				continue next
			}
		}
		if sum.passes() {
			out.open = append(out.open, sum.open...)
			continue
		}
		out.lack(sum.unread...)
		if out.open = append(out.open, sum.open...); len(sum.open)+len(sum.unread) == 0 {
			found = append(found, t)
		}
	}
	if len(found) > 0 && b.Tell != nil && (b.Alone == "" || len(found) == 1) {
		out.found = b.Tell(p, found)
	}
	return out
}

// A tally is what the answers about a candidate leave open.
type tally struct {
	open   []Open
	unread []evidence.Source
}

// passes reports whether the candidate is not guilty by this reading, though it may be by a later one. Nothing else is open of it then.
func (s *tally) passes() bool {
	passing := slices.ContainsFunc(s.open, Open.passes)
	if passing {
		s.open = slices.DeleteFunc(slices.Clone(s.open), func(o Open) bool { return !o.passes() })
	}
	return passing
}

// add adds an answer, and reports whether the candidate may still be guilty.
func (s *tally) add(p *fact.View, h Holding) bool {
	switch {
	case h.answer == no:
		return false
	case h.answer == notYet:
		o := h.open
		o.Known = h.known
		s.open = append(slices.Clip(s.open), o)
	case h.answer == notRead && h.source != "" && fact.Missing(p, h.source):
		s.unread = append(slices.Clip(s.unread), h.source)
	case h.answer == notRead: // what the source has shown does not tell
		o := Seen(p, Unread)
		o.By = string(h.source)
		s.open = append(slices.Clip(s.open), o)
	}
	return true
}

func (b By[T]) met(p *fact.View) bool { return len(MetAsRead(p, b.candidates(p), b.Facts)) > 0 }

func (b By[T]) candidates(p *fact.View) []T {
	if b.Of == nil {
		return make([]T, 1)
	}
	return b.Of(p)
}

// Lines are the facts, as they stand on the page.
func (b By[T]) Lines() []Lines {
	l := Lines{Title: b.Title}
	for _, f := range b.Facts {
		l.Says = append(l.Says, f.Says)
	}
	if b.Alone != "" {
		l.Says = append(l.Says, b.Alone)
	}
	return []Lines{l}
}

func (b By[T]) facts() int { return len(b.Facts) }

// Without is By without one of its facts.
func (b By[T]) Without(i int) (Recognition, bool) {
	if i >= len(b.Facts) || b.Facts[i].Is == nil && b.Facts[i].Pod == nil {
		return nil, false
	}
	b.Facts = slices.Delete(slices.Clone(b.Facts), i, i+1)
	return b, true
}

func (b By[T]) sources() (needs, partly []evidence.Source) {
	needs, partly = slices.Clone(b.From), slices.Clone(b.Partly)
	for _, f := range b.Facts {
		needs, partly = append(needs, f.From...), append(partly, f.Partly...)
	}
	return needs, partly
}

// Ways recognises a cause in one of several ways. What they find is told in their order.
type Ways []Recognition

func (w Ways) look(p *fact.View) (out looked) {
	out.blind = true
	for _, r := range w {
		l := r.look(p)
		out.found, out.open = append(out.found, l.found...), append(out.open, l.open...)
		out.lack(l.unread...)
		out.blind = out.blind && l.blind
	}
	return out
}

func (w Ways) met(p *fact.View) bool {
	return slices.ContainsFunc(w, func(r Recognition) bool { return r.met(p) })
}

// Lines are those of each way.
func (w Ways) Lines() (out []Lines) {
	for _, r := range w {
		out = append(out, r.Lines()...)
	}
	return out
}

func (w Ways) facts() (n int) {
	for _, r := range w {
		n += r.facts()
	}
	return n
}

// Without is Ways without one fact, counted through all of them.
func (w Ways) Without(i int) (Recognition, bool) {
	for n, r := range w {
		if i >= r.facts() {
			i -= r.facts()
			continue
		}
		less, ok := r.Without(i)
		if !ok {
			return nil, false
		}
		out := slices.Clone(w)
		out[n] = less
		return out, true
	}
	return nil, false
}

func (w Ways) sources() (needs, partly []evidence.Source) {
	for _, r := range w {
		n, p := r.sources()
		needs, partly = append(needs, n...), append(partly, p...)
	}
	return needs, partly
}
