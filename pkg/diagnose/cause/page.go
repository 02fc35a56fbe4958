package cause

import (
	"embed"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// What pages show beside the words of the rules, a line for each thing and its parts between tabs. examples.txt has an Event of each cause
// as kubectl describe showed it on the test cluster (make matrix writes it): the cause, the scenario, the type and the note. reports.txt has
// public reports (go test ./test/scenario -update writes it): the cause, the issue, and what is told there.
var (
	//go:embed examples.txt
	examples string
	//go:embed reports.txt
	reports string
)

// plugin has the pages of the causes that only kubectl why-terminating reports, because no agent can.
//
//go:embed plugin
var plugin embed.FS

// An Entry is a cause that has a page.
type Entry struct {
	Cause, Layer, Title string
	// Page is its runbook page, in Markdown: docs/reasons/CAUSE.md.
	Page string
}

// Entries returns all causes in order of precedence, and then those that only kubectl why-terminating reports, by their names.
func Entries() []Entry {
	var all []Entry
	for _, r := range All() {
		all = append(all, Entry{r.Cause, r.Doc.Layer, r.Doc.Title, pageOf(r)})
	}
	files, _ := plugin.ReadDir("plugin") // it is in memory, as are the files
	for _, f := range files {
		text, _ := plugin.ReadFile("plugin/" + f.Name())
		head, rest, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n\nLayer: ")
		name, title, _ := strings.Cut(head, ": ")
		layer, _, _ := strings.Cut(rest, ".")
		all = append(all, Entry{name, layer, title, string(text)})
	}
	return all
}

// Index lists all causes, each with its layer and title.
func Index() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range Entries() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Cause, e.Layer, e.Title)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// Explain returns the page of a cause, or of a family that several causes share, by its name in any case, and whether there is one.
func Explain(name string) (page string, ok bool) {
	for _, e := range Entries() {
		if strings.EqualFold(e.Cause, name) {
			return e.Page, true
		}
	}
	for family, page := range diagnose.FamilyPages(All()) {
		if strings.EqualFold(family, name) {
			return page, true
		}
	}
	return "", false
}

// pageOf returns the runbook page of a rule's cause.
func pageOf(r *diagnose.Rule) string {
	var b strings.Builder
	b.WriteString(table.Page(r))
	for _, e := range of(examples, r.Cause) {
		fmt.Fprintf(&b, "\n## Example\n\nThe Event on the pod of the incident `%s` of the test cluster:\n\n```\n%s  %s  nodeagent.io/nodeagent\n%s```\n",
			e[1], e[2], e[0], wrapped(e[3]))
	}
	for i, e := range of(reports, r.Cause) {
		if i == 0 {
			b.WriteString("\n## See also\n\n")
		}
		repository, number, _ := strings.Cut(e[1], "#")
		fmt.Fprintf(&b, "- [%s](https://github.com/%s/issues/%s): %s\n", e[1], repository, number, e[2])
	}
	return b.String()
}

// wrapped is a text in lines that a page on GitHub shows whole.
func wrapped(text string) string {
	const width = 110
	var b strings.Builder
	n := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case n == 0:
			b.WriteString("  ")
		case n+1+len(word) > width:
			b.WriteString("\n  ")
			n = 0
		default:
			b.WriteString(" ")
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String() + "\n"
}

// of returns the parts of the lines about a cause.
func of(lines, name string) [][]string {
	var out [][]string
	for line := range strings.Lines(lines) {
		if parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); parts[0] == name {
			out = append(out, parts)
		}
	}
	return out
}
