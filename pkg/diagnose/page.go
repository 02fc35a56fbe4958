package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// Page writes the runbook page of a cause, in Markdown. docs/reasons holds one for each cause, and `nodeagent explain` prints it.
func (r *Rule) Page() string {
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, r.Doc.shown(text, "")) }
	fmt.Fprintf(&b, "# %s: %s\n\n", r.Cause, r.Doc.Title)
	fmt.Fprintf(&b, "Layer: %s. Who acts: %s. %s\n", r.Doc.Layer, acts(r.Doc.Who, r.Doc.NotApp, r.Doc.Ends || r.Doc.Quiet), r.told())
	fmt.Fprintf(&b, "\n> %s.\n", r.Doc.shown(r.Doc.Message, ""))
	section("Meaning", r.Doc.Meaning)
	section("How it is recognised", r.recognised())
	section("Fix", r.Doc.Remedy+r.Doc.elsewhere(r.Cause))
	section("Avoid", r.Doc.Danger)
	var shared []string
	for _, f := range r.Doc.Families {
		if f.Shared {
			first, _, _ := strings.Cut(r.Doc.shown(f.Meaning, f.Name), ". ")
			shared = append(shared, fmt.Sprintf("- [%s](%s/%s.md): %s.", f.Name, FamilyDir, f.Name, strings.TrimSuffix(first, ".")))
			continue
		}
		fmt.Fprintf(&b, "\n## %s: %s\n\n%s", r.Cause, f.Name, r.Doc.family(f))
	}
	if len(shared) > 0 {
		section("What it waits for", "Each of these has a page with Fix and Avoid. nodeagent explain FAMILY prints it.\n\n"+strings.Join(shared, "\n"))
	}
	if len(r.Phases) > 0 {
		section("Phases", "It can hold a pod up in: "+names(r.Phases)+".")
	}
	if text := r.read(); text != "" {
		section("Sources", text)
	}
	if text := b.String(); strings.Contains(text, " under pressure)") {
		fmt.Fprintf(&b, "\n%s\nAll times, and the reasons for them: [patience](../patience.md).\n", fact.UnderPressure)
	}
	return b.String()
}

// Recognised returns the lines under "How it is recognised".
func (r *Rule) Recognised() (out []string) {
	for _, l := range r.By.Lines() {
		out = append(out, l.Says...)
	}
	return out
}

// recognised writes these lines, those of each way below its title.
func (r *Rule) recognised() string {
	var b strings.Builder
	for i, l := range r.By.Lines() {
		if i > 0 {
			b.WriteString("\n\n")
		}
		if l.Title != "" {
			fmt.Fprintf(&b, "%s:\n\n", l.Title)
		}
		fmt.Fprintf(&b, "- %s", strings.Join(l.Says, "\n- "))
	}
	return b.String()
}

// read says which sources the cause is read from.
func (r *Rule) read() string {
	needs, partly := r.sources()
	join := func(of []evidence.Source, with string) string {
		names := make([]string, 0, len(of))
		for _, s := range of {
			names = append(names, string(s))
		}
		return strings.Join(names, with)
	}
	if len(needs) == 0 {
		return ""
	}
	text := "The cause is not evaluated if one of these sources is unavailable: " + join(needs, ", ") + "."
	if len(partly) > 0 {
		text += " If " + join(partly, " or ") + " is incomplete, the rest is evaluated."
	}
	return text
}

// Page writes the runbook page of a cause, with its relations to other causes in the table.
func (t Table) Page(r *Rule) string {
	holds, explains := func(row Row) []*Rule { return row.Holds }, func(row Row) []*Rule { return row.Explains }
	var b strings.Builder
	line := func(text string, causes []string) {
		if len(causes) > 0 {
			fmt.Fprintf(&b, "- %s: %s.\n", text, strings.Join(causes, ", "))
		}
	}
	i := slices.IndexFunc(t, func(row Row) bool { return row.Rule == r })
	if i < 0 {
		return r.Page()
	}
	line("Not reported while one of these is found, or may be the cause", t.with(r, holds))
	line("Listed under \"Also found\", as a symptom, when one of these is found", t.with(r, explains))
	line("These are not reported while it is found, or may be the cause", links(t[i].Holds))
	line("These are listed under \"Also found\", as symptoms, when it is found", links(t[i].Explains))
	if b.Len() == 0 {
		return r.Page()
	}
	return r.Page() + "\n## Other causes\n\n" + b.String()
}

// with returns links to the causes for which of returns the given one.
func (t Table) with(r *Rule, of func(Row) []*Rule) []string {
	var by []*Rule
	for _, row := range t {
		if slices.Contains(of(row), r) {
			by = append(by, row.Rule)
		}
	}
	return links(by)
}

func links(rules []*Rule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, fmt.Sprintf("[%s](%s.md)", r.Cause, r.Cause))
	}
	return out
}

// PatiencePage writes docs/patience.md, in Markdown.
func PatiencePage() string {
	var b strings.Builder
	b.WriteString("# How long nodeagent waits\n\nnodeagent reports that something hangs, or does not end, only after it has lasted this long. " +
		fact.UnderPressure +
		"\nWritten by `go test ./pkg/diagnose -update`.\n\n| nodeagent waits while | for | under pressure | why |\n|---|---|---|---|\n")
	for _, a := range fact.Patiences() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.What, fact.Spell(a.Usual), fact.Spell(a.Pressed), a.Why)
	}
	return b.String()
}

// FamilyDir is where the pages of shared families are, below those of the causes.
const FamilyDir = "families"

// FamilyPages writes the pages of families that several of the causes share,
// in Markdown, by the name of the family.
func FamilyPages(causes []*Rule) map[string]string {
	pages := make(map[string]string)
	for _, r := range causes {
		for _, f := range r.Doc.Families {
			if f.Shared && pages[f.Name] == "" {
				pages[f.Name] = r.Doc.familyPage(f, causes)
			}
		}
	}
	return pages
}

func (d *Doc) familyPage(f Family, causes []*Rule) string {
	var of []string
	for _, r := range causes {
		if slices.Contains(r.Doc.Families, f) {
			of = append(of, fmt.Sprintf("[%s](../%s.md)", r.Cause, r.Cause))
		}
	}
	return fmt.Sprintf("# Family %s\n\nIt can be behind these causes: %s. Who acts: %s.\n\n## Meaning\n\n%s\n\n## Fix\n\n%s\n\n## Avoid\n\n%s\n",
		f.Name, strings.Join(of, ", "), acts(f.Who, f.NotApp, f.Ends), d.shown(f.Meaning, f.Name), d.shown(f.Remedy, f.Name), d.shown(f.Danger, f.Name))
}

// elsewhere says which families have a fix of their own, "" for none: their pages are the same one, further down.
func (d *Doc) elsewhere(cause string) string {
	var own []string
	for _, f := range d.Families {
		if !f.Shared && f.Remedy != "" {
			own = append(own, fmt.Sprintf("[%s](#%s-%s)", f.Name, strings.ToLower(cause), strings.ToLower(f.Name)))
		}
	}
	if len(own) == 0 {
		return ""
	}
	return "\n\nThese families have a fix of their own: " + strings.Join(own, ", ") + "."
}

// family writes what a family means, and in what its texts differ from those of the cause.
func (d *Doc) family(f Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", d.shown(f.Meaning, f.Name))
	if f.Who != "" {
		fmt.Fprintf(&b, "\nWho acts: %s.\n", acts(f.Who, f.NotApp, f.Ends || d.Quiet))
	}
	if message := d.shown(d.Message, f.Name); message != d.shown(d.Message, "") {
		fmt.Fprintf(&b, "\n> %s.\n", message)
	}
	for _, part := range []struct{ title, general, own string }{
		{"Fix", d.Remedy, f.Remedy},
		{"Avoid", d.Danger, f.Danger},
	} {
		if text := d.shown(cmp.Or(part.own, part.general), f.Name); text != d.shown(part.general, "") {
			fmt.Fprintf(&b, "\n%s: %s\n", part.title, text)
		}
	}
	return b.String()
}

// told returns when the cause is reported, in a sentence or two.
func (r *Rule) told() string {
	early := fmt.Sprintf("Reported inside the grace period, from %d seconds after the deletion request", int(StopSettles.Seconds()))
	switch r.When {
	case InGrace:
		return early + ". Reported once more, in an Event only, when the pod is gone and the container was there until the deadline."
	case InGraceAndAfter:
		return early + ", and as long as it holds the pod up."
	case WhenGone:
		return "Reported when the pod is gone from the API, in an Event only."
	case AtTheEnd:
		return "Reported only when the grace period is over. If the pod is gone from the API by then, it is reported in an Event only."
	}
	if r == Unrecognised {
		return fmt.Sprintf("Reported when the grace period is over and the pod has been at the same stage for %d seconds. It takes longer "+
			"under pressure, where files of a volume may be deleted, and while the shim does not respond. It also does if the kubelet was "+
			"restarted since.", int(fact.UnknownAfter.Seconds()))
	}
	return "Reported only when the grace period is over."
}

// shown returns a text as a page shows it: with the phrases of a variant, and placeholders in capitals.
func (d *Doc) shown(text, variant string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		choices, ok := d.phrase(name)
		if !ok {
			return strings.ToUpper(name)
		}
		i := slices.IndexFunc(choices, func(c Choice) bool { return c.Variant == "" || c.Variant == variant })
		return d.shown(choices[i].Text, variant) // one is for every variant
	})
}
