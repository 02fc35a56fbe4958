package diagnose_test

import (
	"path/filepath"
	"testing"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/evidence"
)

// BenchmarkFixtures runs all rules on all fixtures.
func BenchmarkFixtures(b *testing.B) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		b.Fatal(err)
	}
	var pods []*evidence.Pod
	for _, p := range paths {
		pods = append(pods, readFixture(b, p).evidence)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pods {
			cause.Diagnose(p)
		}
	}
}
