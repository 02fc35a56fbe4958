package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// The width of lines where the terminal does not tell its own, and where that is larger than is good to read.
const (
	usualWidth = 80
	mostWidth  = 100
)

// printPage writes a page in Markdown as a terminal shows it, with headings in bold on a terminal unless NO_COLOR is set
// (https://no-color.org).
func printPage(w io.Writer, page string) {
	width, bold := usualWidth, false
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bold = os.Getenv("NO_COLOR") == ""
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = min(columns, mostWidth)
		}
	}
	fmt.Fprint(w, terminal.Page(page, width, bold))
}
