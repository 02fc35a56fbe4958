package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Wording is what the advice about a cause looks like, whatever the finding: regular expressions, each for a whole text.
type Wording struct{ Remedies, Dangers []string }

// group is how a group with a name begins. Names stand once in a regular expression: each ends with a number.
var group = regexp.MustCompile(`\(\?P<[a-z]+>`)

// Wording returns that of a Doc. Who reads advice that others could have written sees by it which commands are ours.
func (d *Doc) Wording() Wording {
	var out Wording
	add := func(all *[]string, text string) {
		if text == "" {
			return
		}
		n := 0
		p := group.ReplaceAllStringFunc(`\A`+d.pattern(text)+`\.?\z`, func(begin string) string {
			n++
			return fmt.Sprintf("%s_%d>", strings.TrimSuffix(begin, ">"), n)
		})
		if !slices.Contains(*all, p) {
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
	// word is one of a text in Prose: what looks like a name (quote.go), a quotation, or a remark. It is followed by no colon and
	// blank, behind which a command would begin.
	bare   = `[\w./#@%+=~…-]+(?:[:,]+[\w./#@%+=~…-]+)*`
	quote  = `"(?:[^"\\]|\\.)*…?"`
	word   = `(?:` + bare + `|` + quote + `|\((?:[^()":]|:\S|` + quote + `)*\))`
	digits = `\d+`
	// process is the number of a process or thread. Of the first one, and of -1, no command is about: to end them is to end the node.
	process = `(?:[2-9]|[1-9]\d+)`
	object  = `[A-Za-z0-9_.][\w.:@%+=,~-]*`
	// element is one of a path, and neither empty nor "..".
	element  = `(?:[\w:@%+=,~-][\w.:@%+=,~-]*|\.(?:[\w:@%+=,~-][\w.:@%+=,~-]*)?)`
	filePath = `/?` + element + `(?:/` + element + `)*/?|/`
)

// Prose is what stands in a Wording where any words may stand. No command has it.
const Prose = word + `(?:[,;]? ` + word + `)*`

// inCommands are the placeholders that stand in commands, and what they are there: of what no shell gives a meaning to (inCommand).
var inCommands = map[string]string{
	"pid": process, "thread": process, "childpid": process, "foregroundpid": process, "tracerpid": process, "memberpid": process, "parentpid": process,
	"starttime": digits, "childstarttime": digits, "tracerstarttime": digits, "parentstarttime": digits, "connection": digits, "port": digits, "limit": digits,
	"mountnumber": `\d+:\d+`, "containerid": object, "mapped": object, "mapper": object, "registry": object,
	"podnamespace": object, "podname": object, "node": object, "poduid": object,
	"hostmount": filePath, "innerpoint": filePath, "cgroup": filePath, "root": filePath,
}

// pattern returns a regular expression for what fill makes of a text. What stands in a command is a group with the name of its
// placeholder: where that stands twice, it is the same.
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
		case inCommands[name] != "":
			all = append(all, "(?P<"+name+">"+inCommands[name]+")")
		default:
			all = append(all, Prose)
		}
		b.WriteString("(?:" + strings.Join(all, "|") + ")")
	}
	b.WriteString(regexp.QuoteMeta(text[last:]))
	return b.String()
}

// YesWording is Wording for the answer that a force delete is safe, which is the one that does harm when it is wrong.
func YesWording() string {
	text := regexp.QuoteMeta(string(ForceYes) + ", " + reasons[ReasonNothing])
	return `\A` + regexp.MustCompile(`\\{[a-z]+\\}`).ReplaceAllLiteralString(text, "(?:"+Prose+")") + `\.?\z`
}
