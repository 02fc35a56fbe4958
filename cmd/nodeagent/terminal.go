package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// printPage writes a page in Markdown as a terminal shows it, with headings in bold on a terminal unless NO_COLOR is set
// (https://no-color.org).
func printPage(w io.Writer, page string) {
	columns, bold := 0, false
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bold = os.Getenv("NO_COLOR") == ""
		columns, _, _ = term.GetSize(int(f.Fd())) // 0 where it does not tell
	}
	fmt.Fprint(w, terminal.Page(page, terminal.PageWidth(columns), bold))
}
