package diagnose_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/test/generated"
)

// A capability of the agent's container, and what a capture without it lacks, which test/e2e compares with a real one: fields of the
// evidence about an incident, and sources.
type capability struct {
	For           string
	Lost, Missing []string
}

func capabilities(t *testing.T) map[string]capability {
	t.Helper()
	text, err := os.ReadFile("testdata/capabilities.yaml")
	var out map[string]capability
	if err == nil {
		err = yaml.UnmarshalStrict(text, &out)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("%d capabilities: %v", len(out), err)
	}
	return out
}

// take removes a field, as tasks[].comm, from a value that was JSON. What is in a probe is removed from all probes.
func take(value any, path string) {
	if of, field, inProbe := strings.Cut(path, ".probe."); inProbe && of != "" {
		takeFromProbes(value, field)
		return
	}
	head, rest, more := strings.Cut(path, ".")
	name, list := strings.CutSuffix(head, "[]")
	of, ok := value.(map[string]any)
	switch {
	case !ok:
	case !more:
		delete(of, name)
	case list:
		items, _ := of[name].([]any)
		for _, item := range items {
			take(item, rest)
		}
	default:
		take(of[name], rest)
	}
}

func takeFromProbes(value any, field string) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			takeFromProbes(item, field)
		}
	case map[string]any:
		for key, below := range v {
			if probe, ok := below.(map[string]any); ok && key == "probe" {
				take(probe, field)
			}
			takeFromProbes(below, field)
		}
	}
}

// without is some evidence as a capture without the capability shows it.
func (c capability) without(t *testing.T, p *evidence.Pod) *evidence.Pod {
	t.Helper()
	text, err := json.Marshal(p)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range c.Lost {
		_, path, _ := strings.Cut(field, " ") // behind the incident
		take(tree, path)
	}
	if text, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	var out evidence.Pod
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for _, source := range c.Missing {
		out.Lack(evidence.Source(source), "not permitted")
	}
	return &out
}

// docs/security.md has, for each capability, the causes that are not told without it. No other cause takes their place, but one that
// theirs explains.
func TestCapabilitiesInDocs(t *testing.T) {
	const file, begin, end = "../../docs/security.md", "<!-- Capabilities: go test ./pkg/diagnose -update writes this table. -->\n", "<!-- End of the table. -->\n"
	explains := map[string][]string{}
	for _, row := range cause.Table() {
		for _, explained := range row.Explains {
			explains[row.Rule.Cause] = append(explains[row.Rule.Cause], explained.Cause)
		}
	}
	table := "| capability | what it is for | what is not told without it |\n|---|---|---|\n"
	for _, name := range []string{"SYS_PTRACE", "DAC_READ_SEARCH", "SYS_ADMIN"} {
		c := capabilities(t)[name]
		told, all := map[string]int{}, map[string]int{}
		for _, f := range fixtures(t) {
			d := cause.Diagnose(f.evidence)
			v, ok := d.Verdict()
			if !ok || v.Cause == "Unknown" {
				continue
			}
			all[v.Cause]++
			d = cause.Diagnose(c.without(t, f.evidence))
			got, ok := d.Verdict()
			switch {
			case ok && got.Cause == v.Cause:
				told[v.Cause]++
			case ok && got.Cause != "Unknown" && !slices.Contains(explains[v.Cause], got.Cause):
				t.Errorf("without %s %s is told instead of %s of %s: %s", name, got.Cause, v.Cause, f.name, got.Message)
			}
		}
		var none, some, whole []string
		for of, n := range all {
			switch {
			case told[of] == 0:
				none = append(none, of)
			case told[of] < n:
				some = append(some, of)
			default:
				whole = append(whole, of)
			}
		}
		lost := fmt.Sprintf("%d of %d causes: ", len(none), len(all)) + names(none)
		if len(whole) < len(none) {
			lost = fmt.Sprintf("%d of %d causes; told are still ", len(none), len(all)) + names(whole)
		}
		if len(some) > 0 {
			lost += "; and of some incidents " + names(some)
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", name, c.For, lost)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s lacks the comments %q and %q", file, begin, end)
	}
	generated.Check(t, file, before+begin+table+end+after, "go test ./pkg/diagnose -update", *update)
}

func names(causes []string) string { return strings.Join(slices.Sorted(slices.Values(causes)), ", ") }
