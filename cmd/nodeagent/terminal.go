package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// The width of lines where the terminal does not tell its own, and where that is larger than is good to read.
const (
	usualWidth = 80
	mostWidth  = 100
)

// pageLink is a link in Markdown, of which a terminal shows the text.
var pageLink = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)

// printPage writes a page in Markdown as a terminal shows it: lines wrapped, links as their text, and headings in bold on a terminal unless
// NO_COLOR is set (https://no-color.org).
func printPage(w io.Writer, page string) {
	width, bold := usualWidth, false
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		bold = os.Getenv("NO_COLOR") == ""
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			width = min(columns, mostWidth)
		}
	}
	fmt.Fprint(w, forTerminal(page, width, bold))
}

func forTerminal(page string, width int, bold bool) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		line = pageLink.ReplaceAllString(strings.TrimSuffix(line, "\n"), "$1")
		heading := strings.TrimLeft(line, "#")
		switch {
		case heading != line && bold:
			b.WriteString("\x1b[1m" + strings.TrimSuffix(wrap(heading, "", "", width), "\n") + "\x1b[0m\n")
		case heading != line:
			b.WriteString(wrap(heading, "", "", width))
		case strings.HasPrefix(line, "> "):
			b.WriteString(wrap(line[2:], "  ", "  ", width))
		case strings.HasPrefix(line, "- "):
			b.WriteString(wrap(line[2:], "- ", "  ", width))
		default:
			b.WriteString(wrap(line, "", "", width))
		}
	}
	return b.String()
}

// wrap breaks a text between words. A word that is longer than a line stays whole.
func wrap(text, first, rest string, width int) string {
	line, indent := first, first
	var b strings.Builder
	for _, word := range strings.Fields(text) {
		if line != indent && utf8.RuneCountInString(line)+utf8.RuneCountInString(word) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, indent = rest, rest
		}
		line += word + " "
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}
