package diagnose_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
)

// The runbook pages are generated from the rules: one for each cause and each shared
// family, none for anything else, and never edited by hand.
func TestRunbookPages(t *testing.T) {
	const dir = "../../docs/reasons"
	want := map[string]string{}
	for _, r := range cause.All() {
		want[r.Cause+".md"] = r.Page()
	}
	for name, page := range diagnose.FamilyPages(cause.All()) {
		want[diagnose.FamilyDir+"/"+name+".md"] = page
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, diagnose.FamilyDir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string]string{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		got[path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
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
