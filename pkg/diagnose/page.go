package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// Page writes the runbook page of a cause, in Markdown. docs/reasons holds one
// for each cause, and `nodeagent explain` prints it.
func (r *Rule) Page() string {
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, r.Doc.shown(text, "")) }
	fmt.Fprintf(&b, "# %s: %s\n\n", r.Cause, r.Doc.Title)
	fmt.Fprintf(&b, "Layer: %s. %s\n", r.Doc.Layer, r.told())
	fmt.Fprintf(&b, "\n> %s.\n", r.Doc.shown(r.Doc.Message, ""))
	section("What it means", r.Doc.Meaning)
	section("How it is recognised", r.Doc.Evidence)
	section("What to do", r.Doc.Remedy)
	section("What to avoid", r.Doc.Danger)
	for _, f := range r.Doc.Families {
		fmt.Fprintf(&b, "\n## %s: %s\n\n%s", r.Cause, f.Name, r.Doc.family(f))
	}
	if len(r.Phases) > 0 {
		var names []string
		for _, p := range r.Phases {
			names = append(names, string(p))
		}
		section("Phases", "It can hold a pod up in: "+strings.Join(names, ", ")+".")
	}
	if len(r.Needs) > 0 {
		var names []string
		for _, s := range r.Needs {
			names = append(names, string(s))
		}
		section("Sources", "It is not looked for, and reported as unknown, when one of these could not be read: "+strings.Join(names, ", ")+".")
	}
	return b.String()
}

// family writes what a variant means, and what is different about it.
func (d *Doc) family(f Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", d.shown(f.Meaning, f.Name))
	if message := d.shown(d.Message, f.Name); message != d.shown(d.Message, "") {
		fmt.Fprintf(&b, "\n> %s.\n", message)
	}
	for _, part := range []struct{ title, general, own string }{
		{"What to do", d.Remedy, f.Remedy},
		{"What to avoid", d.Danger, f.Danger},
	} {
		if text := d.shown(cmp.Or(part.own, part.general), f.Name); text != d.shown(part.general, "") {
			fmt.Fprintf(&b, "\n%s: %s\n", part.title, text)
		}
	}
	return b.String()
}

// told says in a sentence when the cause is reported.
func (r *Rule) told() string {
	early := fmt.Sprintf("Reported inside the grace period, from %d seconds after the deletion was asked for", int(StopSettles.Seconds()))
	switch r.When {
	case InGrace:
		return early + "."
	case InGraceAndAfter:
		return early + ", and as long as it holds the pod up."
	case AtTheEnd:
		return "Reported only when the grace period is over; when the pod has gone by then, in an Event only."
	}
	if r == Unrecognised {
		return fmt.Sprintf("Reported when the grace period is over and the pod has been at the same stage for %d seconds.", int(fact.UnknownAfter.Seconds()))
	}
	return "Reported only when the grace period is over."
}

// shown writes a text as a reader of a page expects it: phrases as for a variant,
// placeholders in capitals.
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
