package why

import (
	"fmt"
	"io"

	"github.com/nodeagent-io/nodeagent/pkg/terminal"
)

// A Style is how text is printed.
type Style struct {
	Width int  // columns, 0 for as many as are needed
	Color bool // escape sequences for bold and red
	Wide  bool // nothing is shortened
	Names bool // with the namespace of each pod
	// Flags are those by which kubectl finds the cluster, with a blank before each, for the commands that are printed.
	Flags string
}

func (s Style) bold(text string) string { return s.escape("1", text) }
func (s Style) red(text string) string  { return s.escape("31", text) }

func (s Style) escape(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// unread prints what could not be read.
func (s Style) unread(w io.Writer, all []Unread) {
	for _, u := range all {
		fmt.Fprintf(w, "Not read: %s.\n", terminal.Printable(u.String()))
	}
}
