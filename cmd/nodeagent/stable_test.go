package main

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/described"
	"github.com/nodeagent-io/nodeagent/test/generated"
)

var update = flag.Bool("update", false, "write docs/stable-names.txt")

// What dashboards, alerts and scripts hold on to does not vanish by accident.
func TestNamesAreStable(t *testing.T) {
	names := []string{"condition " + verdict.ConditionType}
	for _, r := range cause.All() {
		names = append(names, "cause "+r.Cause)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	alpha := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+){.* \\| alpha \\|").FindAllStringSubmatch(string(page), -1) {
		alpha[m[1]] = true
	}
	for name, labels := range described.Labels(t, report.NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)) {
		if !alpha[name] {
			names = append(names, "metric "+name+"{"+strings.Join(labels, ",")+"}")
		}
	}
	environment := regexp.MustCompile(`\(environment: (\w+)\)`)
	runCommand().Flags().VisitAll(func(f *pflag.Flag) {
		names = append(names, "flag --"+f.Name)
		if m := environment.FindStringSubmatch(f.Usage); m != nil {
			names = append(names, "environment "+m[1])
		}
	})
	names = append(names, recordNames(t)...)
	slices.Sort(names)
	want := strings.Join(slices.Compact(names), "\n") + "\n"
	// A name that is gone needs what docs/stability.md says; CHANGELOG.md tells of it, and of a new one.
	generated.Check(t, "../../docs/stable-names.txt", want, "go test ./cmd/nodeagent -run Stable -update", *update)
}

// recordNames returns the keys of the record of an ended verdict, and how one ends. The tests of pkg/agent compare the schema with
// what is logged.
func recordNames(t *testing.T) []string {
	b, err := os.ReadFile("../../docs/verdict-record.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct{ Enum []string }
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	var names []string
	for key, p := range schema.Properties {
		names = append(names, "log key of verdict ended: "+key)
		for _, value := range p.Enum {
			names = append(names, "log "+key+" of verdict ended: "+value)
		}
	}
	return names
}
