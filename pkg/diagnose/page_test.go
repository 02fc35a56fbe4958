package diagnose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// The runbook pages are generated from the rules: one for each cause, none for
// anything else, and never edited by hand.
func TestRunbookPages(t *testing.T) {
	const dir = "../../docs/reasons"
	want := map[string]string{}
	for _, r := range cause.All() {
		want[r.Cause+".md"] = r.Page()
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/reasons differs from the rules (-rules +docs); go test ./pkg/diagnose -update writes it:\n%s", diff)
	}
	for name, page := range want {
		if strings.ContainsAny(page, "{}") {
			t.Errorf("%s shows a raw placeholder", name)
		}
	}
}

// The README lists what the agent can tell.
func TestREADMEListsTheCauses(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range cause.All() {
		if link := "(docs/reasons/" + r.Cause + ".md)"; !strings.Contains(string(readme), link) {
			t.Errorf("README.md does not link %s", r.Cause)
		}
	}
}
