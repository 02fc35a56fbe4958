package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nodeagent-io/nodeagent/test/bed"
	"github.com/nodeagent-io/nodeagent/test/scenario"
)

// examples has an Event of each cause, which the pages show.
const examples = "pkg/diagnose/cause/examples.txt"

// described is the agent's Event in what kubectl describe prints.
var described = regexp.MustCompile(`(?m)^  (Normal|Warning) +([A-Z][A-Za-z0-9]+) +[^ ]+(?: \(x[^)]*\))? +nodeagent\.io/nodeagent +(.+)$`)

// writeExamples keeps an Event of each cause from what the incidents have left. A sentinel is preferred, and an Event that is there already
// stays if its scenario told nothing in this run.
func writeExamples() error {
	file := filepath.Join(bed.Root(), examples)
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := map[string]string{} // by cause
	for line := range strings.Lines(string(old)) {
		cause, _, _ := strings.Cut(line, "\t")
		lines[cause] = line
	}
	all := scenario.All()
	slices.SortStableFunc(all, func(a, b bed.Scenario) int { return int(b.Tier) - int(a.Tier) })
	found := map[string]bool{}
	for _, s := range all {
		if s.Cause == "" || found[s.Cause] {
			continue
		}
		for i := range phases {
			paths, err := filepath.Glob(filepath.Join(folder(i), s.Name+".*.describe.txt"))
			if err != nil {
				return err
			}
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				for _, m := range described.FindAllStringSubmatch(string(text), -1) {
					if m[2] == s.Cause && !found[s.Cause] {
						found[s.Cause] = true
						lines[s.Cause] = fmt.Sprintf("%s\t%s\t%s\t%s\n", s.Cause, s.Name, m[1], m[3])
					}
				}
			}
		}
	}
	var b strings.Builder
	causes := make([]string, 0, len(lines))
	for cause := range lines {
		causes = append(causes, cause)
	}
	slices.Sort(causes)
	for _, cause := range causes {
		b.WriteString(lines[cause])
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
