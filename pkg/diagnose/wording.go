package diagnose

import (
	"regexp"
	"slices"
	"strings"
)

// Wording is what the advice about a cause looks like, whatever the finding: regular expressions, each for a whole text.
type Wording struct{ Remedies, Dangers []string }

// Wording returns that of a Doc. Who reads advice that others could have written sees by it which commands are ours.
func (d *Doc) Wording() Wording {
	var out Wording
	add := func(all *[]string, text string) {
		if text == "" {
			return
		}
		if p := `\A` + d.pattern(text) + `\.?\z`; !slices.Contains(*all, p) {
			*all = append(*all, p)
		}
	}
	add(&out.Remedies, d.Remedy)
	add(&out.Dangers, d.Danger)
	for _, f := range d.Families {
		add(&out.Remedies, f.Remedy)
		add(&out.Dangers, f.Danger)
	}
	return out
}

const (
	// token is what may stand in a command (inCommand), or a number.
	token = `[\w./](?:[\w./:@%+=,~-]*[\w/~-])?`
	// word is one of a text in prose: what looks like a name, a quotation, or a remark. It is followed by no colon and
	// blank, behind which a command would begin.
	word  = `(?:[\w./#@%+=~…-]+(?::[\w./#@%+=~…-]+)*|"(?:[^"\\]|\\.)*…?"|\((?:[^()":]|:\S|"(?:[^"\\]|\\.)*")*\))`
	prose = word + `(?:[,;]? ` + word + `)*`
)

// inCommands are the placeholders that stand in commands.
var inCommands = strings.Fields(`containerid pid starttime thread childpid childstarttime foregroundpid tracerpid tracerstarttime memberpid
	parentpid parentstarttime hostmount mountnumber innerpoint mapped mapper connection cgroup registry root podnamespace podname node poduid port`)

// pattern returns a regular expression for what fill makes of a text.
func (d *Doc) pattern(text string) string {
	var b strings.Builder
	last := 0
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[last:at[0]]))
		name := text[at[0]+1 : at[1]-1]
		last = at[1]
		all := []string{regexp.QuoteMeta(strings.ToUpper(name))}
		choices, phrase := d.phrase(name)
		for _, c := range choices {
			if p := d.pattern(c.Text); !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		switch {
		case phrase:
		case slices.Contains(inCommands, name):
			all = append(all, token)
		default:
			all = append(all, prose)
		}
		b.WriteString("(?:" + strings.Join(all, "|") + ")")
	}
	b.WriteString(regexp.QuoteMeta(text[last:]))
	return b.String()
}

// ForceWording is Wording for the answers about a force delete, of which the agent writes the first part.
func ForceWording() []string {
	var out []string
	for _, answer := range []Answer{ForceNo, ForceNotYet, ForceYes, ForceUnknown} {
		for reason, text := range reasons {
			if (answer == ForceYes) != (reason == ReasonNothing) {
				continue
			}
			quoted := regexp.QuoteMeta(string(answer) + ", " + text)
			out = append(out, `\A`+regexp.MustCompile(`\\{[a-z]+\\}`).ReplaceAllLiteralString(quoted, "(?:"+prose+")?")+
				`(?:\. Its StatefulSet would start a second pod with the same name: two writers)?\.?\z`)
		}
	}
	slices.Sort(out)
	return out
}
