// Package terminal prepares text for a terminal: wrapped between words, and with nothing in it that a terminal obeys.
package terminal

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s with all that is not printed in the form of a Go escape: text that others chose may hold escape
// sequences, and marks that make it run backwards.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "?") {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

// Wrap breaks a text between words into lines of at most width columns, 0 for one line. The first line begins with first, the
// others with rest. A word that is longer than a line stays whole.
func Wrap(text, first, rest string, width int) string {
	line, indent := first, first
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		if width > 0 && line != indent && utf8.RuneCountInString(line)+utf8.RuneCountInString(word) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, indent = rest, rest
		}
		line += word + " "
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}

// The width of a page's lines where nobody tells the terminal's, and where that is larger than is good to read.
const (
	usualWidth = 80
	mostWidth  = 100
)

// PageWidth returns how wide the lines of a page are on a terminal of so many columns, 0 for what is not known.
func PageWidth(columns int) int {
	if columns <= 0 {
		return usualWidth
	}
	return min(columns, mostWidth)
}

// pageLink is a link in Markdown, of which a terminal shows the text.
var pageLink = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)

// Page returns a page in Markdown as a terminal shows it: lines wrapped, links as their text, and headings in bold if bold is set.
func Page(page string, width int, bold bool) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		if code {
			b.WriteString(Wrap(strings.TrimSpace(line), "  ", "  ", width))
			continue
		}
		line = pageLink.ReplaceAllString(strings.TrimSuffix(line, "\n"), "$1")
		heading := strings.TrimLeft(line, "#")
		switch {
		case heading != line && bold:
			b.WriteString("\x1b[1m" + strings.TrimSuffix(Wrap(heading, "", "", width), "\n") + "\x1b[0m\n")
		case heading != line:
			b.WriteString(Wrap(heading, "", "", width))
		case strings.HasPrefix(line, "> "):
			b.WriteString(Wrap(line[2:], "  ", "  ", width))
		case strings.HasPrefix(line, "- "):
			b.WriteString(Wrap(line[2:], "- ", "  ", width))
		default:
			b.WriteString(Wrap(line, "", "", width))
		}
	}
	return b.String()
}
