package diagnose

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
)

// Page writes the runbook page of a cause, in Markdown. docs/reasons holds one
// for each cause, and `nodeagent explain` prints it.
func (r *Rule) Page() string {
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, r.shown(text)) }
	fmt.Fprintf(&b, "# %s: %s\n\n", r.Cause, r.Doc.Title)
	fmt.Fprintf(&b, "Layer: %s. %s\n", r.Doc.Layer, r.told())
	fmt.Fprintf(&b, "\n> %s.\n", r.shown(r.Doc.Message))
	section("What it means", r.Doc.Meaning)
	section("How it is recognised", r.Doc.Evidence)
	section("What to do", r.Doc.Remedy)
	section("What to avoid", r.Doc.Danger)
	for _, f := range r.Doc.Families {
		fmt.Fprintf(&b, "\n## %s: %s\n\n%s\n", r.Cause, f.Name, r.shown(f.Meaning))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "\nWhat to do: %s\n", r.shown(f.Remedy))
		}
		if f.Danger != "" {
			fmt.Fprintf(&b, "\nWhat to avoid: %s\n", r.shown(f.Danger))
		}
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

// optional are the placeholders that stand for a whole phrase, or for nothing:
// a page leaves them out.
var optional = regexp.MustCompile(`\{(where|on|more|left|unseen)\}`)

// shown writes the placeholders as a reader of a page expects them. In the
// Remedy and the Danger a phrase never stands alone.
func (r *Rule) shown(text string) string {
	return fill(optional.ReplaceAllString(text, ""), r.Doc.Phrases)
}
