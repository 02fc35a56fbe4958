package grafana_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
	"github.com/nodeagent-io/nodeagent/test/plain"
)

var values = map[string]string{"__rate_interval": "2m", "__range": "6h", "node": "worker-1", "namespace": "shop", "pod": "web-0", "datasource": "x"}

func dashboards(t *testing.T) []*grafana.Dashboard {
	t.Helper()
	all, err := grafana.ReadAll("../../../deploy/grafana")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestQueries(t *testing.T) {
	states := map[string]bool{}
	n := map[string]int{}
	for _, d := range dashboards(t) {
		queries, err := d.Queries(values)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			n[q.Dashboard]++
			states[q.EmptyUntil] = true
			if strings.Contains(strings.ReplaceAll(q.Expr, `"$1"`, ""), "$") || q.Expr == "" {
				t.Errorf("%s, %s: %s", q.Dashboard, q.Panel, q.Expr)
			}
			if strings.Contains(q.Panel, "Late pods by") && q.EmptyUntil != grafana.PodIsLate {
				t.Errorf("%s, %s: empty until %q", q.Dashboard, q.Panel, q.EmptyUntil)
			}
		}
	}
	want := []string{"", grafana.PodIsLate, grafana.PodHasVerdict, grafana.TaskIsBlocked, grafana.EventIsReported, grafana.VerdictIsHeld,
		grafana.SourceMissing}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(states))); diff != "" {
		t.Errorf("the states in which queries have data differ (-constants +dashboards):\n%s", diff)
	}
	if len(n) != 3 {
		t.Errorf("queries of %v", n)
	}
}

func TestVariables(t *testing.T) {
	var d grafana.Dashboard
	d.Templating.List = []grafana.Variable{
		{Name: "datasource", Type: "datasource", Query: "prometheus"},
		{Name: "pod", Type: "query", Query: `label_values(up{namespace="$namespace"}, pod)`, Description: "The pod. Empty until a pod is there."},
	}
	d.Title = "T"
	d.Panels = []grafana.Panel{{Title: "P", Targets: []grafana.Target{{Expr: `x{node="${node}"}[$__rate_interval] # $1`, Instant: true}}}}
	got, err := d.Queries(values)
	if err != nil {
		t.Fatal(err)
	}
	want := []grafana.Query{
		{Dashboard: "T", Panel: "variable pod", Expr: `group by (pod) (up{namespace="shop"})`, Instant: true, EmptyUntil: "a pod is there"},
		{Dashboard: "T", Panel: "P", Expr: `x{node="worker-1"}[2m] # $1`, Instant: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("queries differ (-want +got):\n%s", diff)
	}
	d.Panels[0].Targets[0].Expr = "$nobody"
	if _, err := d.Queries(values); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a variable without a value: %v", err)
	}
	d.Templating.List[1].Query = "metrics(up)"
	if _, err := d.Queries(values); err == nil {
		t.Error("a variable that is not understood is left out")
	}
}

// What is on the dashboards is in plain words.
func TestWords(t *testing.T) {
	for _, d := range dashboards(t) {
		texts := []string{d.Title, d.Description}
		for _, p := range d.Panels {
			texts = append(texts, p.Title, p.Description)
			for _, err := range plain.Page(p.Options.Content) {
				t.Errorf("%s, %s: %v", d.Title, p.Title, err)
			}
		}
		for _, text := range texts {
			if err := plain.Check(text); err != nil {
				t.Errorf("%s: %v", d.Title, err)
			}
		}
	}
}
