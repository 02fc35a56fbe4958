package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

func TestPage(t *testing.T) {
	const page = "# A: b\n\n> it waits for the server, see [ShimHung](ShimHung.md).\n\n## What to do\n\n- one two three four\n- five\n"
	for name, tc := range map[string]struct {
		width int
		bold  bool
		want  string
	}{
		"wide":   {80, false, "A: b\n\n  it waits for the server, see ShimHung.\n\nWhat to do\n\n- one two three four\n- five\n"},
		"narrow": {16, false, "A: b\n\n  it waits for\n  the server,\n  see ShimHung.\n\nWhat to do\n\n- one two three\n  four\n- five\n"},
		"bold":   {80, true, "\x1b[1mA: b\x1b[0m\n\n  it waits for the server, see ShimHung.\n\n\x1b[1mWhat to do\x1b[0m\n\n- one two three four\n- five\n"},
	} {
		if got := Page(page, tc.width, tc.bold); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}

// Each page is read without Markdown, and only what cannot be broken is longer than a line.
func TestPagesForTerminal(t *testing.T) {
	for _, e := range cause.Entries() {
		for line := range strings.Lines(Page(e.Page, 80, false)) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, "](") || strings.HasPrefix(line, "#") || utf8.RuneCountInString(line) > 80 && strings.Contains(line, " ") {
				t.Errorf("%s: %q", e.Cause, line)
			}
		}
	}
}
