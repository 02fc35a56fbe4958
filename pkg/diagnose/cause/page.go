package cause

import (
	_ "embed"
	"fmt"
	"strings"

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

// Page returns the runbook page of a cause, in Markdown: docs/reasons/CAUSE.md.
func Page(r *diagnose.Rule) string {
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
