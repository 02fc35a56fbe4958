package plain_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/plain"
)

// mostInLine is the most characters of a line that is not in a table or in code.
const mostInLine = 160

// generated are pages whose words stand in the code, or in what others have reported; their tests are there.
var generated = []string{"matrix.md", "recall.md", "incidents.md", "advice.md", "sentinels.md", "patience.md"}

// What people read is in plain words, short sentences and short lines.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../CHANGELOG.md", "../../deploy/helm/nodeagent/README.md")
	for _, page := range pages {
		if slices.Contains(generated, filepath.Base(page)) {
			continue
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if length := len([]rune(strings.TrimSuffix(line, "\n"))); length > mostInLine && !code && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d characters, at most %d are easy to read", page, n, length, mostInLine)
			}
		}
		for _, err := range plain.Page(string(b)) {
			t.Errorf("%s: %v", page, err)
		}
	}
}
