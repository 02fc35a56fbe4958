package why

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// Table prints a line for each answer, and a line about all of them and about what could not be read.
func (s Style) Table(w io.Writer, answers []Answer, v *View) {
	late := 0
	for i := range answers {
		if answers[i].Late() {
			late++
		}
	}
	if len(answers) > 0 {
		s.rows(w, answers, v)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, summary(len(v.Pods), late, v))
	if len(answers) > 0 {
		first := &answers[0]
		fmt.Fprintf(w, "Details: kubectl why-terminating %s -n %s%s\n", inCommand(first.Name, "POD"), inCommand(first.Namespace, "NAMESPACE"), s.Flags)
	}
	s.unread(w, v.Unread)
}

// summary says how many pods terminate, and how many of them are late.
func summary(n, late int, v *View) string {
	where := ""
	for _, f := range []struct{ words, value string }{{" in namespace ", v.Namespace}, {" on node ", v.Node}, {" with labels ", v.Selector}} {
		if f.value != "" {
			where += f.words + terminal.Printable(f.value)
		}
	}
	switch {
	case n == 0 && v.Namespace != "":
		return "No pods are terminating" + where + ". Use -A for all namespaces."
	case n == 0:
		return "No pods are terminating" + where + "."
	case n == 1 && late == 1:
		return "1 pod is terminating" + where + ", and it is late."
	case n == 1:
		return "1 pod is terminating" + where + ", and it is not late."
	case late == 0:
		return fmt.Sprintf("%d pods are terminating%s, none of them late.", n, where)
	}
	return fmt.Sprintf("%d pods are terminating%s, %d of them late.", n, where, late)
}

// A column of the table. Of those that may be left out, the first goes first where the terminal is too narrow.
type column struct {
	head string
	cell func(a *Answer, v *View) string
	// out is the order in which columns are left out, 0 for never.
	out int
	// wide and names say that it is there with -o wide, and for pods of several namespaces.
	wide, names bool
}

var columns = []column{
	{head: "NAMESPACE", names: true, cell: func(a *Answer, _ *View) string { return a.Namespace }},
	{head: "NAME", cell: func(a *Answer, _ *View) string { return a.Name }},
	{head: "NODE", out: 2, cell: func(a *Answer, _ *View) string { return dash(a.Node) }},
	{head: "SINCE", out: 1, cell: func(a *Answer, v *View) string { return Age(v.Now.Sub(a.Deleted)) }},
	{head: "LATE", cell: func(a *Answer, v *View) string {
		if !a.Late() {
			return "-"
		}
		return Age(v.Now.Sub(a.Deadline))
	}},
	{head: "PHASE", wide: true, cell: func(a *Answer, _ *View) string { return dash(a.Phase) }},
	{head: "CAUSE", cell: func(a *Answer, _ *View) string { return cmp.Or(a.Cause, "?") }},
	{head: "WHO ACTS", wide: true, cell: func(a *Answer, _ *View) string { return dash(person(a)) }},
	{head: "AGENT", wide: true, cell: func(a *Answer, _ *View) string { return string(a.Agent) }},
	{head: "FORCE DELETE", cell: func(a *Answer, _ *View) string { return a.Force }},
}

// person is who acts, in two words.
func person(a *Answer) string {
	if a.Unverified {
		return ""
	}
	first, _, _ := strings.Cut(a.Who, ".")
	return strings.TrimPrefix(first, "the ")
}

const (
	heldByColumn = "HELD BY"
	// leastHeldBy is how many columns of what holds a pod are of use.
	leastHeldBy = 24
	gap         = "  "
)

// rows prints the table. What holds a pod is the last column, cut to the width; where there is no room for that, a line of its own.
func (s Style) rows(w io.Writer, answers []Answer, v *View) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.wide && !s.Wide || c.names && !s.Names })
	cells, widths := s.cells(shown, answers, v, 0)
	if s.Width > 0 && !s.Wide {
		for out := 1; out <= 2 && total(widths)+leastHeldBy > s.Width; out++ {
			shown = slices.DeleteFunc(shown, func(c column) bool { return c.out == out })
			cells, widths = s.cells(shown, answers, v, 0)
		}
		if total(widths) > s.Width {
			cells, widths = s.cells(shown, answers, v, s.Width/4)
		}
	}
	left := total(widths)
	below := s.Width > 0 && !s.Wide && left+leastHeldBy > s.Width
	for i, row := range cells {
		var b strings.Builder
		for j, cell := range row {
			b.WriteString(cell + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)) + gap)
		}
		held := heldByColumn
		if i > 0 {
			held = terminal.Printable(answers[i-1].HeldBy)
		}
		lines := []string{b.String() + held}
		if below && i > 0 {
			lines = []string{b.String(), gap + held}
		}
		for _, line := range lines {
			line = strings.TrimRight(line, " ")
			if s.Width > 0 && !s.Wide {
				line = shorten(line, s.Width)
			}
			switch {
			case i == 0:
				line = s.bold(line)
			case answers[i-1].Late():
				line = s.red(line)
			}
			fmt.Fprintln(w, line)
		}
	}
}

// cells returns the table's text, the heads first, and how wide each column is: at most most columns, 0 for as many as are needed.
func (s Style) cells(shown []column, answers []Answer, v *View, most int) (cells [][]string, widths []int) {
	var head []string
	for _, c := range shown {
		head = append(head, c.head)
	}
	cells = append(cells, head)
	for i := range answers {
		var row []string
		for _, c := range shown {
			text := terminal.Printable(c.cell(&answers[i], v))
			if most > 0 {
				text = shorten(text, most)
			}
			row = append(row, text)
		}
		cells = append(cells, row)
	}
	widths = make([]int, len(shown))
	for _, row := range cells {
		for j, cell := range row {
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
		}
	}
	return cells, widths
}

// total is how wide columns are with the gaps behind them.
func total(widths []int) int {
	n := len(gap) * len(widths)
	for _, w := range widths {
		n += w
	}
	return n
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shorten cuts a text to n columns.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
