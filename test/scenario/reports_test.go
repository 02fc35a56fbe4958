package scenario

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite docs/incidents.md")

const (
	incidents = "../../docs/incidents.md"
	testdata  = "../../pkg/diagnose/testdata"
)

const incidentsHead = "# Incidents from the field, rebuilt\n\n" +
	"Public reports of pods that stay Terminating, rebuilt: a scenario of test/scenario breaks a real pod on a real node the same way, and\n" +
	"`make matrix` asks what nodeagent says of it. What is rebuilt is what holds the pod up, not the system on which it happened. Where a\n" +
	"report does not name the cause, it is inferred from what the report shows: \"(inferred)\".\n\n" +
	"The quotations are what nodeagent said about a pod that was stuck on the test cluster; names, numbers and times are that pod's. Where\n" +
	"there is none, the page of the cause has the message.\n\n" +
	"Written by `go test ./test/scenario -update` from test/scenario/reports.go.\n"

// Each report that is rebuilt names a scenario that breaks a pod, and docs/incidents.md
// tells of all of them in the words of the fixture that was taken from that scenario.
func TestReports(t *testing.T) {
	causes := map[string]string{}
	for _, s := range append(All(), Alone()...) {
		causes[s.Name] = s.Cause
	}
	issue := regexp.MustCompile(`^([\w.-]+/[\w.-]+)#(\d+)$`)
	seen := map[string]bool{}
	told := map[string]string{} // of which scenario, in lines of a list
	var order []string
	for _, r := range Reports() {
		m := issue.FindStringSubmatch(r.Issue)
		if m == nil || seen[r.Issue] || r.Told == "" {
			t.Errorf("%q is no issue, is there twice, or nothing is told of it", r.Issue)
			continue
		}
		seen[r.Issue] = true
		if causes[r.Scenario] == "" {
			t.Errorf("%s: no scenario %q breaks a pod", r.Issue, r.Scenario)
			continue
		}
		if told[r.Scenario] == "" {
			order = append(order, r.Scenario)
		}
		inferred := ""
		if r.Inferred {
			inferred = " (inferred)"
		}
		told[r.Scenario] += fmt.Sprintf("- [%s](https://github.com/%s/issues/%s): %s%s\n", r.Issue, m[1], m[2], r.Told, inferred)
	}
	writeReports(t, causes)
	said := messages(t, causes)
	var b strings.Builder
	b.WriteString(incidentsHead)
	for _, name := range order {
		fmt.Fprintf(&b, "\n## [%s](reasons/%s.md), scenario %s\n\n%s", causes[name], causes[name], name, told[name])
		if s := said[name]; s != "" {
			fmt.Fprintf(&b, "\n> %s\n", s)
		}
	}
	if *update {
		if err := os.WriteFile(incidents, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(incidents)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, []byte(b.String())) {
		t.Error("docs/incidents.md is not what the reports and fixtures say; write it with: go test ./test/scenario -update")
	}
}

// writeReports checks, or writes, what the pages of causes have of the reports.
func writeReports(t *testing.T, causes map[string]string) {
	t.Helper()
	const file = "../../pkg/diagnose/cause/reports.txt"
	var b strings.Builder
	for _, r := range Reports() {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", causes[r.Scenario], r.Issue, r.Told)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil { //nolint:gosec // as all files of the checkout
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != b.String() {
		t.Errorf("%s is not what the reports say (%v); write it with: go test ./test/scenario -update, then go test ./pkg/diagnose -update", file, err)
	}
}

// messages returns what was found first in the fixtures that were taken from scenarios, as
// far as that is the scenario's cause.
func messages(t *testing.T, causes map[string]string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(testdata + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	out := map[string]string{}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var evidence struct{ Name string }
		var diagnosis struct {
			Findings []struct{ Cause, Message string }
		}
		for _, f := range a.Files {
			switch f.Name {
			case "evidence.json":
				err = json.Unmarshal(f.Data, &evidence)
			case "diagnosis.json":
				err = json.Unmarshal(f.Data, &diagnosis)
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", file, f.Name, err)
			}
		}
		if f := diagnosis.Findings; len(f) > 0 && f[0].Cause == causes[evidence.Name] && out[evidence.Name] == "" {
			out[evidence.Name] = f[0].Message
		}
	}
	return out
}
