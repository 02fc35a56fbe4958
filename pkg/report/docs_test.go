package report

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/described"
)

var documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)\\{([a-z_,]*)\\}` \\| ([a-z, ]+) \\| (stable|alpha) \\| .+ \\|$")

// docs/metrics.md has each metric, with its labels and type.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	types := map[string]string{}
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		have = append(have, m[1]+"{"+m[2]+"}")
		types[m[1]], _, _ = strings.Cut(m[3], ",")
	}
	metrics := NewMetrics("v1", cause.Who(), func() time.Time { return start }, new(verdict.Cases), nil)
	for name, labels := range described.Labels(t, metrics) {
		want = append(want, name+"{"+strings.Join(labels, ",")+"}")
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("docs/metrics.md differs from the agent (-agent +page):\n%s", diff)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if got := types[f.GetName()]; got != strings.ToLower(dto.MetricType_name[int32(f.GetType())]) {
			t.Errorf("docs/metrics.md calls %s a %s, and it is a %s", f.GetName(), got, f.GetType())
		}
	}
}
