package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Asked is what a rule makes of a reading: why its cause is found, or why not.
type Asked struct {
	Cause string `json:"cause"`
	// Early is why the cause is not looked for in this reading, or is found and not told; "" where neither is so.
	Early string `json:"early,omitempty"`
	// Candidates are at most 20 of what the rule looks at.
	Candidates []Candidate `json:"candidates,omitempty"`
}

// mostCandidates is of how many candidates the answers are kept: a pod may have thousands of threads.
const mostCandidates = 20

// A Candidate is what a rule has looked at, and the answers of its facts.
type Candidate struct {
	// Way is the title of the way in which the cause is looked for, "" where there is one only.
	Way string `json:"way,omitempty"`
	// Name is what it is, such as a process with its PID; "" for the pod.
	Name string `json:"name,omitempty"`
	// Answers are those of the facts in their order. After one that is no, none is asked.
	Answers []FactAnswer `json:"answers"`

	waits bool   // of a way that only waits
	alone string // the line of By.Alone, if there are others that meet all conditions
}

// A FactAnswer is that of one fact.
type FactAnswer struct {
	// Is is yes, no, not yet, or not read; Says is the fact's line on the page.
	Is   string `json:"is"`
	Says string `json:"says"`
	// Until is when a fact that is not yet so is known, if nothing changes; zero where only another reading tells.
	Until time.Time `json:"until,omitzero"`
	// Source is the one that could not be read, "" where that is not known.
	Source evidence.Source `json:"source,omitempty"`

	passes bool // it is not yet so, and refutes the cause for now (Moves, Next)
}

// The answers, as they are printed.
const (
	AnswerYes     = "yes"
	AnswerNo      = "no"
	AnswerNotYet  = "not yet"
	AnswerNotRead = "not read"
)

// Ask asks each rule of a table about a pod. Those that have nothing to look at are left out.
func (t Table) Ask(pod *evidence.Pod) (out []Asked) {
	p, d := fact.See(pod), Run(pod, t)
	for _, row := range t {
		if a := t.ask(p, row.Rule, &d); len(a.Candidates) > 0 {
			out = append(out, a)
		}
	}
	return out
}

func (t Table) ask(p *fact.View, r *Rule, d *Diagnosis) Asked {
	a := Asked{Cause: r.Cause, Early: t.early(p, r), Candidates: r.By.explain(p)}
	if a.Early == "" {
		a.Early = heldBack(r, d)
	}
	return a
}

// heldBack returns why a cause is not told that is found, "" where nothing holds it back, or it is told all the same, as what is stopped is.
func heldBack(r *Rule, d *Diagnosis) string {
	if slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Cause == r.Cause }) {
		return ""
	}
	for _, o := range d.Open {
		if o.Why == HeldBack && slices.Contains(o.Causes, r.Cause) {
			return fmt.Sprintf("It is not told in this reading: it may come from %s, which is not ruled out.", o.By)
		}
	}
	return ""
}

// early returns why a cause is not looked for in a reading, or not told.
func (t Table) early(p *fact.View, r *Rule) string {
	if !r.due(p) {
		return "It is not looked for in this reading. " + r.told()
	}
	if phase := locate(p, t); len(r.Phases) > 0 && !slices.Contains(r.Phases, phase) {
		return fmt.Sprintf("It is not told in this reading: the pod is in phase %s, and the cause can hold it up in %s.", phase, names(r.Phases))
	}
	return ""
}

// names lists phases.
func names(phases []Phase) string {
	var out []string
	for _, p := range phases {
		out = append(out, string(p))
	}
	return strings.Join(out, ", ")
}

// AskedPage writes what a rule of the table makes of a pod, in Markdown.
func (t Table) AskedPage(r *Rule, pod *evidence.Pod) string {
	p, d := fact.See(pod), Run(pod, t)
	var b strings.Builder
	fmt.Fprintf(&b, "# Why %s, or why not\n\nAbout pod %.253q of namespace %.63q, by the reading of %s.\n",
		r.Cause, p.Name, p.Namespace, p.Time.UTC().Format(time.DateTime+" UTC"))
	a := t.ask(p, r, &d)
	if a.Early != "" {
		fmt.Fprintf(&b, "\n%s\n", a.Early)
	}
	if len(a.Candidates) == 0 {
		b.WriteString("\nNothing in this reading can be the cause.\n")
	}
	for _, c := range a.Candidates {
		fmt.Fprintf(&b, "\n## %s\n\n", c.title())
		for _, f := range c.Answers {
			fmt.Fprintf(&b, "- %s: %s\n", f.when(), f.Says)
		}
		fmt.Fprintf(&b, "\n%s\n", c.verdict(a.Early))
	}
	if len(a.Candidates) == mostCandidates {
		fmt.Fprintf(&b, "\nOnly the first %d are shown.\n", mostCandidates)
	}
	return b.String()
}

func (c *Candidate) title() string {
	name := c.Name
	if name == "" {
		name = "the pod"
	}
	if c.Way != "" {
		return c.Way + ": " + name
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// verdict says what follows from the answers. early is that of Asked.
func (c *Candidate) verdict(early string) string {
	open, passes := false, false
	for _, f := range c.Answers {
		switch f.Is {
		case AnswerNo:
			return "So it is not the cause. The conditions after that are not checked."
		case AnswerNotYet, AnswerNotRead:
			open, passes = true, passes || f.passes
		}
	}
	switch {
	case passes:
		return "So it is not the cause by this reading. A later one may show it."
	case open:
		return "So it is open: neither the cause nor ruled out."
	case c.waits:
		return "So nothing is waited for."
	case c.alone != "":
		return "So all conditions are met, and it is not told. " + c.alone
	case early != "":
		return "So all conditions are met, and it is not told, for the reason above."
	}
	return "So it is found."
}

// met reports whether all answers are yes.
func (c *Candidate) met() bool {
	return !slices.ContainsFunc(c.Answers, func(f FactAnswer) bool { return f.Is != AnswerYes })
}

// when is the answer, with the time or the source that is missing.
func (f *FactAnswer) when() string {
	switch {
	case !f.Until.IsZero():
		return "not before " + f.Until.UTC().Format(time.TimeOnly+" UTC")
	case f.Is == AnswerNotYet:
		return "not yet, another reading may show it"
	case f.Source != "":
		return fmt.Sprintf("%s (%s)", f.Is, f.Source)
	}
	return f.Is
}

func (b By[T]) explain(p *fact.View) []Candidate {
	if s := lacking(p, b.From); s != "" {
		return []Candidate{{Way: b.Title, Answers: []FactAnswer{{Is: AnswerNotRead, Says: "What the cause may be about.", Source: s}}}}
	}
	var out []Candidate
	for _, t := range b.candidates(p) {
		if len(out) == mostCandidates {
			break
		}
		c := Candidate{Way: b.Title, Name: named(p, t), waits: b.Tell == nil}
		for i := range b.Facts {
			f := &b.Facts[i]
			if f.Is == nil && f.Pod == nil {
				continue
			}
			h := f.ask(p, t)
			a := FactAnswer{
				Is: [...]string{notRead: AnswerNotRead, no: AnswerNo, yes: AnswerYes, notYet: AnswerNotYet}[h.answer], Says: f.Says, Source: h.source,
				passes: h.answer == notYet && h.open.passes(),
			}
			if until := fact.Latest(h.open.Until, h.known); h.answer == notYet && until.After(p.Time) {
				a.Until = until
			}
			if c.Answers = append(c.Answers, a); h.answer == no {
				break
			}
		}
		out = append(out, c)
	}
	if b.Alone != "" && countMet(out) > 1 {
		for i := range out {
			out[i].alone = b.Alone
		}
	}
	return out
}

func countMet(candidates []Candidate) (n int) {
	for i := range candidates {
		if candidates[i].met() {
			n++
		}
	}
	return n
}

func (w Ways) explain(p *fact.View) (out []Candidate) {
	for _, r := range w {
		out = append(out, r.explain(p)...)
	}
	return out
}

// Named is a candidate that is none of evidence's: it says what it is, in words.
type Named interface{ Named(p *fact.View) string }

// named says what a candidate is. Names of processes, containers and volumes are others' words: they are quoted.
func named(p *fact.View, candidate any) string {
	switch c := candidate.(type) {
	case ThePod:
		return ""
	case Named:
		return c.Named(p)
	case *evidence.Task:
		return fmt.Sprintf("process %.40q (PID %d, thread %d)", c.Comm, c.PID, c.TID)
	case fact.FirstProcess:
		return fmt.Sprintf("container %.63q, process %.40q (PID %d)", c.Container.Name, c.Leader.Comm, c.Leader.PID)
	case *evidence.Container:
		if c.Kind == evidence.Sandbox {
			return "the sandbox"
		}
		return fmt.Sprintf("container %.63q", c.Name)
	case *evidence.Volume:
		return fmt.Sprintf("volume %.63q", c.Name)
	case *evidence.Mount:
		return fmt.Sprintf("the mount of volume %.63q", c.Volume)
	case string:
		return fmt.Sprintf("%.80q", c)
	}
	return fmt.Sprintf("%T", candidate)
}
