package diagnose_test

import (
	"maps"
	"regexp"
	"testing"
	"time"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// placeholders are the names in braces in some texts.
func placeholders(texts ...string) map[string]bool {
	names := map[string]bool{}
	for _, text := range texts {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	return names
}

// containerdBlocked is the one variant with values of its own of which no fixture
// is captured: containerd's process in state D.
func containerdBlocked() *evidence.Pod {
	now := requested.Add(2 * time.Minute)
	return &evidence.Pod{
		Time: now, UnchangedSince: requested, Phase: "Running", DeletionRequested: requested, Deadline: requested.Add(30 * time.Second),
		Node: evidence.Node{Containerd: evidence.ContainerdService{
			UnansweredSince: now.Add(-time.Minute), Attempts: 3,
			Process: &evidence.Task{
				PID: 7, TID: 7, Comm: "containerd", State: evidence.Uninterruptible, UnchangedSince: now.Add(-time.Minute),
				Probe: &evidence.Probe{Wchan: "io_schedule"},
			},
		}},
	}
}

// Each placeholder of a Doc is one for which the rule gives a value. A misspelt
// one would stand on pods in capitals.
func TestPlaceholdersExist(t *testing.T) {
	given := map[string]map[string]bool{}
	pods := []*evidence.Pod{containerdBlocked()}
	for _, f := range fixtures(t) {
		pods = append(pods, f.evidence)
	}
	for _, p := range pods {
		for _, finding := range cause.Diagnose(p).Findings {
			if given[finding.Cause] == nil {
				given[finding.Cause] = map[string]bool{}
			}
			for name := range finding.Values {
				given[finding.Cause][name] = true
			}
		}
	}
	for _, r := range cause.All() {
		d := r.Doc
		used := placeholders(d.Message, d.Meaning, d.Evidence, d.Remedy, d.Danger)
		for _, f := range d.Families {
			maps.Copy(used, placeholders(f.Meaning, f.Remedy, f.Danger))
		}
		for name, text := range d.Phrases {
			used[name] = true
			maps.Copy(used, placeholders(text))
		}
		for name := range used {
			if !given[r.Cause][name] {
				t.Errorf("%s: nothing gives a value to {%s}", r.Cause, name)
			}
		}
	}
}

// What a fixture shows has a value for each placeholder of its variant.
func TestFindingsHaveTheirValues(t *testing.T) {
	docs := map[string]diagnose.Doc{}
	for _, r := range cause.All() {
		docs[r.Cause] = r.Doc
	}
	for _, f := range fixtures(t) {
		for _, finding := range cause.Diagnose(f.evidence).Findings {
			d := docs[finding.Cause]
			used := placeholders(d.Message, d.Remedy, d.Danger)
			for _, family := range d.Families {
				if family.Name == finding.Family {
					maps.Copy(used, placeholders(family.Remedy, family.Danger))
				}
			}
			for name := range used {
				if _, ok := finding.Values[name]; !ok {
					t.Errorf("%s: %s %s has no value for {%s}", f.name, finding.Cause, finding.Family, name)
				}
			}
		}
	}
}
