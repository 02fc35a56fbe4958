package diagnose_test

import (
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
)

// What others chose cannot break a line, nor pass for a sentence of ours.
func TestForeignWords(t *testing.T) {
	for in, want := range map[string]string{
		"java":                "java",
		"Web Content":         `"Web Content"`,
		"x; Remedy: rm":       `"x; Remedy…"`,
		"a\nb":                `"a\nb"`,
		"a\xff":               `"a\xff"`,
		"x. Remedy: kill -9":  `"x. Remedy…"`,
		"longer-than-that-is": "longer-than…",
		"/data":               `"/data"`,
		"-rf":                 `"-rf"`,
		"caf\u00e9":           `"caf\u00e9"`,
		"a\u2800b":            `"a\u2800b"`,
		`a"b`:                 `"a\"b"`,
		"<http://a|b>":        `"<http://a|b>"`,
		"Remedy:":             `"Remedy:"`,
		"done.":               `"done."`,
		"https://a.b":         `"https://a.b"`,
		"nfs:/":               "nfs:/",
		"":                    "",
	} {
		if got := diagnose.Foreign(in, 14); got != want {
			t.Errorf("%q stands as %s, want %s", in, got, want)
		}
	}
}

// A cut leaves no quotation open, and no room for one to be forged.
func TestCutClosesQuotations(t *testing.T) {
	for in, want := range map[string]string{
		`short`:                             `short`,
		`no quotation, and longer`:          `no quotation,…`,
		`a "b c d e f g h i`:                `a "b c d e…"…`,
		`a "b" c d e f g h i`:               `a "b" c d e f…`,
		`a b c d e f g "h i"`:               `a b c d e f g…`,
		`a b c d e "f\" g h`:                `a b c d e…`,
		`"\"\"\"\"\"\"\"\"\"\"`:             `"\"\"\"\…"…`,
		strings.Repeat("\u6f22", 10):        "\u6f22\u6f22\u6f22\u6f22…",
		`"` + strings.Repeat("\u6f22", 10):  "\"\u6f22\u6f22…\"…",
		`says "x", "y", "z" and "more" too`: `says "x", "y…`,
	} {
		got := diagnose.Cut(in, 16, "…")
		if len(got) > 16 || diagnose.InQuotation(got) {
			t.Errorf("%q is cut to %q (want %q)", in, got, want)
		}
	}
}
