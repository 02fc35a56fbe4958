package main

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
)

// prometheus answers each query with series: their labels and values as JSON. A range query has each value twice, at both ends of the range.
func prometheus(t *testing.T, answer func(query string) []string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, field := "vector", `"value":[1795858745,"%s"]`
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			kind, field = "matrix", `"values":[[%[2]s,"%[1]s"],[%[3]s,"%[1]s"]]`
		}
		all := answer(r.FormValue("query"))
		if all == nil {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"no <i>such</i> query"}`)
			return
		}
		var series []string
		for _, s := range all {
			value, labels, _ := strings.Cut(s, " ")
			args := []any{value, r.FormValue("start"), r.FormValue("end")}
			if kind == "vector" {
				args = args[:1]
			}
			series = append(series, `{"metric":{`+labels+`},`+fmt.Sprintf(field, args...)+`}`)
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"%s","result":[%s]}}`, kind, strings.Join(series, ","))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// drawn is the page that the program writes.
func drawn(t *testing.T, url, file string, more ...string) (string, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.html")
	failed := run(append([]string{"-prometheus", url, "-dashboard", file, "-out", out}, more...))
	page, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err, failed)
	}
	return string(page), failed
}

var all = []string{"fleet", "node", "pod"}

func file(name string) string { return "../../deploy/grafana/" + name + ".json" }

// Each panel is drawn with what the Prometheus answers, as text: a label is no markup.
func TestEachPanelIsDrawn(t *testing.T) {
	const hostile = `<script>alert(1)</script>`
	labels := []string{}
	for _, name := range []string{"node", "reason", "namespace", "pod", "workload", "workload_type", "phase", "kind", "ending", "source", "owner", "family", "method"} {
		labels = append(labels, fmt.Sprintf("%q:%q", name, hostile+name))
	}
	url := prometheus(t, func(string) []string { return []string{"200 " + strings.Join(labels, ",")} })
	for _, name := range all {
		page, err := drawn(t, url, file(name), "-node", "n1", "-namespace", "ns", "-pod", "p1")
		if err != nil {
			t.Error(err)
		}
		d, err := grafana.Read(file(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Drawn from the dashboard's own queries by test/dashboard, not by Grafana.", "&lt;script&gt;alert(1)", "3m 20s"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %s", name, want)
			}
		}
		for _, never := range []string{"<script", "No data.", "Empty until", "NaN", "ZgotmplZ", "{{"} {
			if strings.Contains(page, never) {
				t.Errorf("%s: the page has %s", name, never)
			}
		}
		drawings := map[string]string{"stat": `class="number`, "bargauge": `class="bar"`, "table": "<td", "timeseries": "<path", "state-timeline": "<rect", "text": "<li"}
		sections := strings.Split(page, "<section")[1:]
		if len(sections) != len(d.Panels) {
			t.Fatalf("%s: %d of %d panels", name, len(sections), len(d.Panels))
		}
		for i, p := range d.Panels {
			if want := drawings[p.Type]; want == "" || !strings.Contains(sections[i], want) {
				t.Errorf("%s, %s: no %s in the drawing of a %s", name, p.Title, want, p.Type)
			}
		}
	}
}

func TestNothingToShow(t *testing.T) {
	url := prometheus(t, func(string) []string { return []string{} })
	page, err := drawn(t, url, file("fleet"))
	if err != nil || !strings.Contains(page, "Empty until a pod is more than two minutes late.") || !strings.Contains(page, "No data.") {
		t.Errorf("%v, %.500s", err, page)
	}
}

// A query that fails is on the page, and the program fails.
func TestFailure(t *testing.T) {
	page, err := drawn(t, prometheus(t, func(query string) []string {
		if strings.Contains(query, "nodeagent_orphaned") {
			return nil
		}
		return []string{`1`}
	}), file("fleet"))
	if err == nil || !strings.Contains(err.Error(), "nodeagent_orphaned") || !strings.Contains(page, "The query failed: ") ||
		!strings.Contains(page, "no &lt;i&gt;such&lt;/i&gt; query") {
		t.Errorf("%v, %.500s", err, page)
	}
	if page, err := drawn(t, "http://127.0.0.1:1", file("node")); err == nil || !strings.Contains(page, "no value for node") {
		t.Errorf("without -node: %v", err)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  string
	}{
		{200, "s", "3m 20s"}, {180, "s", "3m"}, {3599.6, "s", "1h"}, {7500, "s", "2h 5m"}, {90000, "s", "1d 1h"}, {0, "s", "0s"}, {0.0421, "s", "42ms"},
		{2.04, "s", "2s"}, {59.7, "s", "1m"}, {-200, "s", "-3m 20s"}, {14, "short", "14"}, {0, "short", "0"}, {1.34, "short", "1.3"}, {12345, "short", "12k"}, {1234567, "short", "1.2M"},
		{9999, "short", "9999"}, {999600, "short", "1M"}, {0.667, "reqps", "0.67/s"},
	} {
		if got := inUnit(c.value, c.unit); got != c.want {
			t.Errorf("%g in %s is %q, not %q", c.value, c.unit, got, c.want)
		}
	}
}

// Answers with the same labels are one row, in the order of the last column; what does not fit is counted.
func TestTable(t *testing.T) {
	url := prometheus(t, func(query string) []string {
		switch {
		case strings.HasPrefix(query, "topk(50, sum by (node)"):
			return []string{`2 "node":"few"`, `9 "node":"many"`}
		case strings.HasPrefix(query, "max by (node)"):
			return []string{`3600 "node":"many"`}
		case strings.Contains(query, "workload_type"):
			var many []string
			for i := range 29 {
				many = append(many, fmt.Sprintf(`1 "workload":"w","namespace":"n%d"`, i))
			}
			return append(many, `77 "workload":"last"`)
		}
		return []string{}
	})
	page, err := drawn(t, url, file("fleet"))
	if err != nil {
		t.Fatal(err)
	}
	many := `<td>many</td><td class="right"></td><td class="right">1h</td><td class="right">9</td>`
	few := `<td>few</td><td class="right"></td><td class="right"></td><td class="right">2</td>`
	if at, then := strings.Index(page, many), strings.Index(page, few); at < 0 || then < at {
		t.Errorf("rows at %d and %d", at, then)
	}
	rows := strings.Count(page, "<td>w</td>")
	if want := fmt.Sprintf("and %d more", 29-rows); rows == 0 || !strings.Contains(page, want) {
		t.Errorf("%d rows, and not %s", rows, want)
	}
	if !strings.Contains(page, "<td>last</td>") {
		t.Error("the row with the most is not shown")
	}
}

// A line ends where a sample is missing or is no number.
func TestRuns(t *testing.T) {
	var samples []model.SamplePair
	for _, s := range [][2]float64{{0, 1}, {10, 2}, {20, math.NaN()}, {30, 4}, {60, 7}, {70, 8}} {
		samples = append(samples, model.SamplePair{Timestamp: model.Time(s[0] * 1000), Value: model.SampleValue(s[1])})
	}
	var got [][]float64
	for _, run := range runs(samples) {
		var values []float64
		for _, at := range run {
			values = append(values, float64(at.Value))
		}
		got = append(got, values)
	}
	if diff := cmp.Diff([][]float64{{1, 2}, {4}, {7, 8}}, got); diff != "" {
		t.Errorf("runs differ (-want +got):\n%s", diff)
	}
}

func TestStack(t *testing.T) {
	one := func(values ...float64) series {
		var s series
		for i, v := range values {
			s.at = append(s.at, model.SamplePair{Timestamp: model.Time(i), Value: model.SampleValue(v)})
		}
		return s
	}
	floors, tops, most := levels([]series{one(1, 2), one(3, math.NaN()), one(5, 5)}, true)
	if most != 9 || floors[2][0] != 4 || floors[2][1] != 2 || tops[2][0] != 9 || tops[2][1] != 7 {
		t.Errorf("stacked between %v and %v, up to %g", floors, tops, most)
	}
	if floors, tops, most := levels([]series{one(1, 2), one(5, 5)}, false); most != 5 || floors[1][0] != 0 || tops[1][1] != 5 {
		t.Errorf("side by side between %v and %v, up to %g", floors, tops, most)
	}
}
