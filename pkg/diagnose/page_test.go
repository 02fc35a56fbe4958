package diagnose_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/fact"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

// The runbook pages are generated from the rules: one for each cause and each shared
// family, none for anything else, and never edited by hand.
func TestRunbookPages(t *testing.T) {
	const dir = "../../docs/reasons"
	want := map[string]string{}
	for _, e := range cause.Entries() {
		want[e.Cause+".md"] = e.Page
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
		// Events of the test cluster end with a command that has braces of its own.
		if placeholder.MatchString(strings.ReplaceAll(page, "{.status.conditions[*].message}", "")) {
			t.Errorf("%s shows a raw placeholder", name)
		}
	}
}

// Pages are read at three in the morning: plain words, sentences of at most 25 words, and paragraphs and items of at most 120.
func TestPagesArePlain(t *testing.T) {
	pages := diagnose.FamilyPages(cause.All())
	for _, e := range cause.Entries() {
		pages[e.Cause] = e.Page
	}
	for name, page := range pages {
		page, _, _ = strings.Cut(page, "\n## See also\n") // in the words of the reports
		for _, err := range plain.Page(page) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each patience is in docs/patience.md, and longer under pressure.
func TestPatiencePage(t *testing.T) {
	const file = "../../docs/patience.md"
	want := diagnose.PatiencePage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/patience.md differs (-rules +docs); go test ./pkg/diagnose -update writes it:\n%s", diff)
	}
	for _, a := range fact.Patiences() {
		if a.Usual <= 0 || a.Pressed <= a.Usual || a.What == "" || a.Why == "" {
			t.Errorf("%+v", a)
		}
	}
}

// The page of Unknown, and the README, send the reader to docs/design.md for the phases.
func TestDesignExplainsThePhases(t *testing.T) {
	design, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	phases := []diagnose.Phase{diagnose.Delivery, diagnose.Cleanup, diagnose.PhaseUnknown}
	for _, r := range cause.All() {
		phases = append(phases, r.Phases...)
	}
	for _, p := range phases {
		if !strings.Contains(string(design), "\n| `"+string(p)+"` | ") {
			t.Errorf("docs/design.md does not explain the phase %s", p)
		}
	}
}

// layers are the groups of the README's table, with their titles.
var layers = []struct{ name, title string }{
	{"signal", "The program does not react to its stop signal, or takes longer than its grace period"},
	{"kubelet", "The kubelet waits, hangs or does not run"},
	{"kernel", "A process cannot exit"},
	{"runtime", "containerd, a shim or runc does not do its part"},
	{"network", "The pod's network is not torn down"},
	{"storage", "A volume cannot be unmounted"},
	{"api", "Nothing is left on the node; the API object remains"},
	{"unknown", "Anything else"},
}

// causeTable returns the README's table of causes, in Markdown: a row for each layer, with its causes in the order of precedence.
func causeTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| where | causes |\n|---|---|\n")
	listed := 0
	for _, layer := range layers {
		var causes []string
		for _, r := range cause.All() {
			if r.Doc.Layer == layer.name {
				causes = append(causes, fmt.Sprintf("[%s](docs/reasons/%[1]s.md)", r.Cause))
			}
		}
		listed += len(causes)
		fmt.Fprintf(&b, "| %s | %s |\n", layer.title, strings.Join(causes, ", "))
	}
	if all := len(cause.All()); listed != all {
		t.Fatalf("%d of %d causes are of a layer that has no title", all-listed, all)
	}
	return b.String()
}

// The README lists what the agent can tell, between two comments.
func TestREADMEListsTheCauses(t *testing.T) {
	const file, begin, end = "../../README.md", "<!-- Causes: go test ./pkg/diagnose -update writes this table. -->\n", "<!-- End of causes. -->\n"
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(readme), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("README.md lacks the comments %q and %q around its table of causes", begin, end)
	}
	want := "\n" + causeTable(t) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("README.md differs from the rules (-rules +README); go test ./pkg/diagnose -update writes it:\n%s", diff)
	}
}
