// Package prometheus_test checks what Prometheus is given: that the alerts and dashboards ask for series that exist,
// and that what an alert says is there.
package prometheus_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/pkg/diagnose"
	"github.com/nodeagent-io/nodeagent/pkg/diagnose/cause"
	"github.com/nodeagent-io/nodeagent/pkg/report"
	"github.com/nodeagent-io/nodeagent/pkg/verdict"
	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
	"github.com/nodeagent-io/nodeagent/test/described"
)

const (
	root   = "../.."
	alerts = root + "/deploy/prometheus/alerts.yaml"
)

// targetLabels are what the Prometheus operator and the chart's PodMonitor give to each series, cluster where one Prometheus has several, and
// what becomes of an agent's own labels without honor_labels.
var targetLabels = []string{
	"job", "instance", "namespace", "pod", "container", "endpoint", "node", "cluster", "exported_namespace", "exported_pod",
}

// others are the metrics of kube-state-metrics that the rules use, with their labels (its docs/metrics).
var others = map[string][]string{
	"kube_pod_deletion_timestamp":              {"namespace", "pod", "uid"},
	"kube_pod_info":                            {"namespace", "pod", "uid", "node", "host_ip", "pod_ip", "created_by_kind", "created_by_name", "priority_class", "host_network"},
	"kube_node_status_condition":               {"node", "condition", "status"},
	"kube_daemonset_status_number_unavailable": {"namespace", "daemonset"},
}

// A set holds labels.
type set map[string]bool

func setOf(names ...string) set {
	out := set{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

func (s set) has(names ...string) error {
	for _, n := range names {
		if !s[n] {
			return fmt.Errorf("there is no label %s; there are %s", n, strings.Join(slices.Sorted(maps.Keys(s)), ", "))
		}
	}
	return nil
}

// metrics returns the labels of each metric: of the agent, of kube-state-metrics, and those that the rules record.
func metrics(t *testing.T) map[string]set {
	t.Helper()
	out := map[string]set{}
	for name, labels := range others {
		out[name] = setOf(append(labels, targetLabels...)...)
	}
	for name, of := range described.Labels(t, report.NewMetrics("v1", cause.Who(), time.Now, new(verdict.Cases), nil)) {
		all := setOf(append(of, targetLabels...)...)
		out[name] = all
		if !strings.HasSuffix(name, "_seconds") {
			continue
		}
		bucket := maps.Clone(all)
		bucket[labels.BucketLabel] = true
		out[name+"_bucket"], out[name+"_sum"], out[name+"_count"] = bucket, all, all
	}
	return out
}

// A query is checked against the metrics that there are.
type query struct {
	metrics map[string]set
}

// labels returns the labels that the result of an expression may have. It fails on a metric or a label that does not exist.
func (q query) labels(e parser.Expr) (set, error) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return q.labels(e.Expr)
	case *parser.UnaryExpr:
		return q.labels(e.Expr)
	case *parser.MatrixSelector:
		return q.labels(e.VectorSelector)
	case *parser.SubqueryExpr:
		return q.labels(e.Expr)
	case *parser.StepInvariantExpr:
		return q.labels(e.Expr)
	case *parser.NumberLiteral, *parser.StringLiteral:
		return set{}, nil
	case *parser.VectorSelector:
		have, ok := q.metrics[e.Name]
		if !ok {
			return nil, fmt.Errorf("there is no metric %q", e.Name)
		}
		for _, m := range e.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				if err := have.has(m.Name); err != nil {
					return nil, fmt.Errorf("%s: %w", e.Name, err)
				}
			}
		}
		return have, nil
	case *parser.AggregateExpr:
		have, err := q.labels(e.Expr)
		if err != nil {
			return nil, err
		}
		if err := have.has(e.Grouping...); err != nil {
			return nil, err
		}
		switch {
		case e.Without:
			return without(have, e.Grouping...), nil
		case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
			return have, nil
		}
		return setOf(e.Grouping...), nil
	case *parser.Call:
		return q.call(e)
	case *parser.BinaryExpr:
		return q.binary(e)
	}
	return nil, fmt.Errorf("unknown kind of expression %T", e)
}

func (q query) call(e *parser.Call) (set, error) {
	out := set{}
	for _, arg := range e.Args {
		have, err := q.labels(arg)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, have)
	}
	switch e.Func.Name {
	case "absent", "absent_over_time":
		return set{}, nil
	case "histogram_quantile":
		return without(out, labels.BucketLabel), nil
	case "label_replace":
		to, from := e.Args[1].(*parser.StringLiteral).Val, e.Args[3].(*parser.StringLiteral).Val
		if err := out.has(from); err != nil {
			return nil, err
		}
		out[to] = true
	case "label_join":
		return nil, fmt.Errorf("the check does not know %s", e.Func.Name)
	}
	return out, nil
}

func (q query) binary(e *parser.BinaryExpr) (set, error) {
	l, err := q.labels(e.LHS)
	if err != nil {
		return nil, err
	}
	r, err := q.labels(e.RHS)
	if err != nil {
		return nil, err
	}
	m := e.VectorMatching
	if m == nil { // one of them is a number
		out := maps.Clone(l)
		maps.Copy(out, r)
		return out, nil
	}
	if m.On {
		for _, side := range []set{l, r} {
			if err := side.has(m.MatchingLabels...); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case e.Op == parser.LOR:
		out := maps.Clone(l)
		maps.Copy(out, r)
		return out, nil
	case e.Op.IsSetOperator():
		return l, nil
	case m.Card == parser.CardOneToOne && m.On:
		return setOf(m.MatchingLabels...), nil
	case m.Card == parser.CardOneToOne:
		return without(l, m.MatchingLabels...), nil
	case m.Card == parser.CardOneToMany:
		l, r = r, l
	}
	if err := r.has(m.Include...); err != nil {
		return nil, err
	}
	out := maps.Clone(l)
	maps.Copy(out, setOf(m.Include...))
	return out, nil
}

func without(s set, names ...string) set {
	out := maps.Clone(s)
	for _, n := range names {
		delete(out, n)
	}
	return out
}

// groups are the rules, as Prometheus reads them, with the metrics that there are: those that they record among them.
func groups(t *testing.T) ([]rulefmt.Rule, query) {
	t.Helper()
	text, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	parsed, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	q := query{metrics: metrics(t)}
	var rules []rulefmt.Rule
	for _, g := range parsed.Groups {
		for _, r := range g.Rules {
			rules = append(rules, r)
			if r.Record == "" {
				continue
			}
			if q.metrics[r.Record], err = q.expr(r.Expr); err != nil {
				t.Errorf("%s: %v", r.Record, err)
			}
		}
	}
	return rules, q
}

func (q query) expr(text string) (set, error) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return nil, err
	}
	return q.labels(e)
}

var (
	templated = regexp.MustCompile(`\$labels\.(\w+)`)
	queried   = regexp.MustCompile(`printf "([^"]+)"[^}]*\| query`)
	result    = regexp.MustCompile(`\.Labels\.(\w+)`)
)

// A rule asks for series that there are, and what its alert says of them is there.
func TestRules(t *testing.T) {
	rules, q := groups(t)
	for _, r := range rules {
		t.Run(r.Alert+r.Record, func(t *testing.T) {
			have, err := q.expr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range r.Annotations {
				for _, m := range templated.FindAllStringSubmatch(text, -1) {
					if err := have.has(m[1]); err != nil {
						t.Errorf("%s: %v", m[0], err)
					}
				}
				inner := queried.FindStringSubmatch(text)
				if inner == nil {
					continue
				}
				of, err := q.expr(strings.ReplaceAll(inner[1], "%s", "x"))
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range result.FindAllStringSubmatch(text, -1) {
					if err := of.has(m[1]); err != nil {
						t.Errorf("%s: %v", m[0], err)
					}
				}
			}
		})
	}
}

const docs = "https://github.com/nodeagent-io/nodeagent/blob/main/"

// Whoever is woken up by an alert finds out what is wrong, and where to read on.
func TestAlertsAreComplete(t *testing.T) {
	rules, _ := groups(t)
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		for _, annotation := range []string{"summary", "description", "runbook_url"} {
			if r.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", r.Alert, annotation)
			}
		}
		path, ok := strings.CutPrefix(r.Annotations["runbook_url"], docs)
		if !ok {
			t.Errorf("%s: runbook_url %s", r.Alert, r.Annotations["runbook_url"])
			continue
		}
		path, anchor, _ := strings.Cut(path, "#")
		pages := []string{path}
		const reason = `{{ reReplaceAll "[^A-Za-z]" "" $labels.reason }}`
		if strings.Contains(path, reason) {
			pages = nil
			for _, cause := range causes() {
				pages = append(pages, strings.Replace(path, reason, cause, 1))
			}
		}
		for _, page := range pages {
			text, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			} else if anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s: %s has no heading %s", r.Alert, page, anchor)
			}
		}
	}
}

// causes are the values of the label reason.
func causes() []string {
	out := []string{diagnose.Unrecognised.Cause}
	for _, r := range cause.All() {
		out = append(out, r.Cause)
	}
	return out
}

// anchors are those that GitHub gives to the headings of a page.
func anchors(page string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		heading := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(heading, " ", "-"))
	}
	return out
}

// The tests of the alerts are about series that there are, and each alert fires in one of them, with the labels that it has.
func TestAlertsTests(t *testing.T) {
	rules, q := groups(t)
	var fired []string
	for _, file := range []string{"alerts_test.yaml", "alerts_native_test.yaml"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(alerts), file))
		if err != nil {
			t.Fatal(err)
		}
		var all struct {
			Tests []struct {
				Series []struct{ Series string } `json:"input_series"`
				Alerts []struct {
					Name string `json:"alertname"`
					Want []struct {
						Labels map[string]string `json:"exp_labels"`
					} `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		for _, test := range all.Tests {
			for _, s := range test.Series {
				if _, err := q.expr(s.Series); err != nil {
					t.Errorf("%s: %v", s.Series, err)
				}
			}
			for _, a := range test.Alerts {
				for _, want := range a.Want {
					i := slices.IndexFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == a.Name })
					if i < 0 {
						t.Fatalf("there is no alert %s", a.Name)
					}
					fired = append(fired, a.Name)
					have, err := q.expr(rules[i].Expr)
					if err != nil {
						t.Fatal(err)
					}
					delete(want.Labels, "severity")
					if err := have.has(slices.Collect(maps.Keys(want.Labels))...); err != nil {
						t.Errorf("%s: %v", a.Name, err)
					}
				}
			}
		}
	}
	for _, r := range rules {
		if r.Alert != "" && !slices.Contains(fired, r.Alert) {
			t.Errorf("%s fires in no test", r.Alert)
		}
	}
}

// What is wrong in these is found.
func TestQueriesAreChecked(t *testing.T) {
	q := query{metrics: metrics(t)}
	for _, wrong := range []string{
		"stuck_terminating_secs",
		`stuck_terminating_seconds{cause="ShimHung"}`,
		"sum by (workload) (stuck_terminating_seconds)",
		"rate(nodeagent_termination_phase_seconds_buckets[5m])",
		"stuck_terminating_seconds and on (owner) nodeagent_blocked_tasks",
		`kube_pod_deletion_timestamp * on (pod) group_left (severity) kube_pod_info`,
		"absent(nodeagent_build)",
		`label_replace(nodeagent_orphaned, "k", "$1", "kinds", "(.*)")`,
	} {
		if have, err := q.expr(wrong); err == nil {
			t.Errorf("%s is taken, with the labels %v", wrong, have)
		}
	}
	for expr, want := range map[string]string{
		"sum by (reason) (nodeagent_stuck_pods)":                                                                                     "reason",
		"topk(3, sum by (namespace, workload) (nodeagent_stuck_pods))":                                                               "namespace workload",
		"absent(nodeagent_build_info)":                                                                                               "",
		`sum by (phase, le) (nodeagent_termination_phase_seconds_bucket)`:                                                            "le phase",
		"histogram_quantile(0.9, sum by (phase, le) (rate(nodeagent_termination_phase_seconds_bucket[5m])))":                         "phase",
		"kube_pod_deletion_timestamp * on (namespace, pod) group_left (node) kube_pod_info and on (node) kube_node_status_condition": "cluster container endpoint exported_namespace exported_pod instance job namespace node pod uid",
		"sum by (node) (nodeagent_orphaned) / on (node) sum by (node) (nodeagent_terminating_pods)":                                  "node",
	} {
		have, err := q.expr(expr)
		if got := strings.Join(slices.Sorted(maps.Keys(have)), " "); err != nil || got != want {
			t.Errorf("%s has the labels %s, not %s: %v", expr, got, want, err)
		}
	}
}

// A panel asks for series that there are, and its legend and columns for labels of the result.
func TestDashboards(t *testing.T) {
	all, err := grafana.ReadAll(root + "/deploy/grafana")
	if err != nil {
		t.Fatal(err)
	}
	q := query{metrics: metrics(t)}
	legends, columns := 0, 0
	for _, d := range all {
		queries, err := d.Queries(map[string]string{"__rate_interval": "2m", "__range": "6h", "node": "worker1", "namespace": "shop", "pod": "web-0"})
		if err != nil {
			t.Fatal(err)
		}
		// Their expressions, by panel, in the order of the panel's targets.
		have := map[string][]set{}
		for _, one := range queries {
			of, err := q.expr(one.Expr)
			if err != nil {
				t.Errorf("%s, %s: %v in %s", d.Title, one.Panel, err, one.Expr)
			}
			have[one.Panel] = append(have[one.Panel], of)
		}
		for _, p := range d.Panels {
			there := setOf("Value")
			for i, target := range p.Targets {
				maps.Copy(there, have[p.Title][i])
				there["Value #"+target.RefID] = true
				for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
					legends++
					if err := have[p.Title][i].has(m[1]); err != nil {
						t.Errorf("%s, %s, legend: %v", d.Title, p.Title, err)
					}
				}
			}
			for _, tr := range p.Transformations {
				for column := range tr.Options.IndexByName {
					columns++
					if err := there.has(column); err != nil {
						t.Errorf("%s, %s, columns: %v", d.Title, p.Title, err)
					}
				}
			}
		}
	}
	if legends == 0 || columns == 0 {
		t.Errorf("%d labels in legends, %d columns", legends, columns)
	}
}

var inLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)
