package scenario

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodeagent-io/nodeagent/test/bed"
)

// What the README says is tested names an incident or a check that runs.
func TestPlatformsNameIncidents(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- Platforms: test/scenario checks the names. -->")
	if !found {
		t.Fatal("README.md has no table of platforms")
	}
	table, _, _ = strings.Cut(table, "<!-- End of platforms. -->")
	tested := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || strings.TrimSpace(cells[1]) == "" || strings.HasPrefix(cells[1], "---") {
			continue
		}
		mark := strings.TrimSpace(cells[1])
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(mark, -1)
		switch kind, _, _ := strings.Cut(mark, ":"); {
		case kind == "tested" && len(names) == 0:
			t.Errorf("no incident is named: %s", line)
		case kind == "tested":
			tested++
			for _, name := range names {
				if !slices.ContainsFunc(All(), func(s bed.Scenario) bool { return s.Name == name[1] }) &&
					!slices.ContainsFunc(Checks(), func(c bed.Check) bool { return c.Name == name[1] }) {
					t.Errorf("there is no incident %s", name[1])
				}
			}
		case !slices.ContainsFunc([]string{"by source", "not tried", "no"}, func(m string) bool { return strings.HasPrefix(mark, m) }):
			t.Errorf("an unknown mark: %s", line)
		}
	}
	if tested < 5 {
		t.Errorf("%d rows are tested", tested)
	}
}
