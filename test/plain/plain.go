// Package plain tells whether a text is in the words of docs/style.md, and in short sentences. Only tests import it.
package plain

import (
	"fmt"
	"regexp"
	"strings"
)

// MostWords is the most words of a sentence. What stands before a colon, as a label does, and in brackets is not counted, nor is what is
// part of a command, a path, a quotation or a number.
const MostWords = 25

// avoided are words that make a reader stop, each with the better one.
var avoided = []struct{ pattern, better string }{
	{`of which`, `"whose", or a sentence of its own`},
	{`(is|are|was|were|be|been|being) (told|said)`, "reported"},
	{`says? so`, "reports it"},
	{`anew`, "again, restarted"},
	{`go(es)? by|gone by`, "has passed"},
	{`go(es)? on|goes? ahead`, "continues, resumes"},
	{`somebody|someone|anybody`, "the component's name"},
	{`nobody`, "the component's name, or passive"},
	{`meanwhile`, "until then"},
	{`(has|have|had) got`, "has"},
	{`control groups?`, "cgroup"},
	{`(taken|takes?|taking) down`, "torn down"},
	{`short of processors`, "under CPU pressure"},
	{`final delete`, "delete with grace period 0"},
	{`program that scans files`, "fanotify permission listener (antivirus, EDR)"},
	{`for ever|at once`, "permanently, immediately"},
	{`culprits?`, "cause"},
	{`the pod (goes|has gone)`, "the pod is deleted, ends"},
	{`is silent`, "does not respond"},
	{`blames?`, "names"},
	{`is of no use`, "does not help"},
	{`is about to`, "will"},
	{`thereby|thereof|whereby|wherein|hitherto`, "a plain word"},
}

var patterns = func() (out []*regexp.Regexp) {
	for _, a := range avoided {
		out = append(out, regexp.MustCompile(`(?i)\b(?:`+a.pattern+`)\b`))
	}
	return out
}()

var (
	quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	brackets  = regexp.MustCompile(`\([^()]*\)`)
	ends      = regexp.MustCompile(`[.:!?…][)"]?(?:\s+|$)|\n\n`)
	prose     = regexp.MustCompile(`^[(]?[A-Za-z][A-Za-z'’-]*[),;:]*$`)
)

// MostInBlock is the most words of a paragraph, or of an item of a list.
const MostInBlock = 120

// Page returns what is wrong with a page in Markdown. Tables, code and quotations of what programs print are not prose, and a table is no block.
func Page(page string) []error {
	var errs []error
	for _, block := range strings.Split(fences.ReplaceAllString(page, ""), "\n\n") {
		if strings.HasPrefix(block, "> ") || strings.HasPrefix(block, "|") || strings.HasPrefix(block, "#") || strings.HasPrefix(block, "<!--") {
			continue
		}
		for _, item := range items.Split(block, -1) {
			item = strings.Join(strings.Fields(links.ReplaceAllString(item, "$1")), " ")
			if n := len(strings.Fields(item)); n > MostInBlock {
				errs = append(errs, fmt.Errorf("a block of %d words: %.80s…", n, item))
			}
			if err := Check(spans.ReplaceAllString(item, "\"Q\"")); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

var (
	fences = regexp.MustCompile("(?s)```.*?```")
	spans  = regexp.MustCompile("`[^`]*`")
	links  = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
	items  = regexp.MustCompile(`(?m)^ *(?:[-*]|[0-9]+\.) `)
)

// Check returns what is wrong with a text, nil for nothing.
func Check(text string) error {
	text = quotation.ReplaceAllString(text, "Q")
	for i, p := range patterns {
		if at := p.FindStringIndex(text); at != nil {
			return fmt.Errorf("avoid %q (%s): …%s…", text[at[0]:at[1]], avoided[i].better, text[max(at[0]-40, 0):min(at[1]+40, len(text))])
		}
	}
	for _, sentence := range ends.Split(brackets.ReplaceAllString(text, ""), -1) {
		n := 0
		for word := range strings.FieldsSeq(sentence) {
			if prose.MatchString(word) {
				n++
			}
		}
		if n > MostWords {
			return fmt.Errorf("a sentence of %d words: %s", n, sentence)
		}
	}
	return nil
}
