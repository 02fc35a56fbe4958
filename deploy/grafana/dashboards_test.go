package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

var update = flag.Bool("update", false, "write the dashboards")

// columns is the width of Grafana's grid.
const columns = 24

// The files are what the program writes.
func TestFilesAreWhatIsWritten(t *testing.T) {
	if *update {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for file, b := range dashboards() {
		want, err := encode(b)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the program writes (%v): make dashboards", file, err)
		}
	}
}

// strictly decodes a dashboard: a field that Grafana's schema does not have is an error, and so is one that it wants.
func strictly(text []byte) (d dashboard.Dashboard, err error) {
	plugins.RegisterDefaultPlugins()
	var list cog.BuildErrors
	// Without an error it returns an empty list of them, which is not nil, and leaves the panels out.
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &list) || len(list) > 0) {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}

// read returns the dashboards in the files.
func read(t *testing.T) map[string]dashboard.Dashboard {
	t.Helper()
	all := map[string]dashboard.Dashboard{}
	for file := range dashboards() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all[file], err = strictly(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

func TestSchema(t *testing.T) {
	for file, d := range read(t) {
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	text, err := os.ReadFile("fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, typo := range [][2]string{{`"legendFormat"`, `"legendFormats"`}, {`"graphMode"`, `"graphmode"`}, {`"tags"`, `"tag"`}} {
		broken := strings.Replace(string(text), typo[0], typo[1], 1)
		if _, err := strictly([]byte(broken)); err == nil || broken == string(text) {
			t.Errorf("%s is not refused", typo[1])
		}
	}
}

// Panels are within the grid, and none lies over another.
func TestGrid(t *testing.T) {
	for file, d := range read(t) {
		for i, p := range d.Panels {
			g := p.Panel.GridPos
			if g.W == 0 || g.H == 0 || g.X+g.W > columns {
				t.Errorf("%s, %s: %+v is not within %d columns", file, *p.Panel.Title, *g, columns)
			}
			for _, other := range d.Panels[:i] {
				o := other.Panel.GridPos
				if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
					t.Errorf("%s: %s lies over %s", file, *p.Panel.Title, *other.Panel.Title)
				}
			}
		}
	}
}

// Each panel says what it shows and in which unit, and names its series.
func TestPanelsExplainThemselves(t *testing.T) {
	for file, d := range read(t) {
		texts := 0
		for _, p := range d.Panels {
			if p.Panel.Title == nil || *p.Panel.Title == "" {
				t.Fatalf("%s: a panel without a title", file)
			}
			if p.Panel.Type == "text" {
				texts++
				continue
			}
			if p.Panel.Description == nil || !strings.HasSuffix(*p.Panel.Description, ".") {
				t.Errorf("%s, %s: no description", file, *p.Panel.Title)
			}
			if c := p.Panel.FieldConfig; c == nil || c.Defaults.Unit == nil || *c.Defaults.Unit == "" {
				t.Errorf("%s, %s: no unit", file, *p.Panel.Title)
			}
			if len(p.Panel.Targets) == 0 {
				t.Errorf("%s, %s: no query", file, *p.Panel.Title)
			}
			for _, q := range p.Panel.Targets {
				if q := q.(*prometheus.Dataquery); q.LegendFormat == nil || *q.LegendFormat == "" || *q.LegendFormat == "__auto" {
					t.Errorf("%s, %s: no legend for %s", file, *p.Panel.Title, q.Expr)
				}
			}
		}
		if last := d.Panels[len(d.Panels)-1].Panel; texts != 1 || *last.Title != "What these panels do not show" {
			t.Errorf("%s: the last of %d texts is %s", file, texts, *last.Title)
		}
	}
}

// What asks a Prometheus asks the one that the viewer has chosen.
func TestDataSourceIsTheVariable(t *testing.T) {
	uid := regexp.MustCompile(`"datasource": \{[^}]*"uid": "([^"]*)"`)
	for file, d := range read(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range uid.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "${datasource}" {
				t.Errorf("%s: data source %s", file, m[1])
			}
		}
		if v := d.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" {
			t.Errorf("%s: the first variable is %s, a %s", file, v.Name, v.Type)
		}
		for _, v := range d.Templating.List[1:] {
			if v.Datasource == nil || *v.Datasource.Uid != "${datasource}" {
				t.Errorf("%s: variable %s has another data source", file, v.Name)
			}
		}
		for _, p := range d.Panels {
			if p.Panel.Type != "text" && p.Panel.Datasource == nil {
				t.Errorf("%s, %s: no data source", file, *p.Panel.Title)
			}
			for _, q := range p.Panel.Targets {
				if q.(*prometheus.Dataquery).Datasource == nil {
					t.Errorf("%s, %s: a query without a data source", file, *p.Panel.Title)
				}
			}
		}
	}
}

// A rate over a fixed time shows nothing where Prometheus scrapes less often.
func TestRatesFollowTheScrapeInterval(t *testing.T) {
	window := regexp.MustCompile(`\[([^\]]*)\]`)
	for file, d := range read(t) {
		for _, p := range d.Panels {
			for _, q := range p.Panel.Targets {
				for _, m := range window.FindAllStringSubmatch(q.(*prometheus.Dataquery).Expr, -1) {
					if m[1] != "$__rate_interval" && m[1] != "$__range" && !strings.HasPrefix(m[1], "^") && m[1] != "." {
						t.Errorf("%s, %s: a window of %s", file, *p.Panel.Title, m[1])
					}
				}
			}
		}
	}
}

// Links lead to dashboards that are there, with variables that they have.
func TestLinksLeadSomewhere(t *testing.T) {
	variables := map[string][]string{}
	for file, d := range read(t) {
		if d.Uid == nil || variables[*d.Uid] != nil {
			t.Fatalf("%s: uid %v is missing, or another's", file, d.Uid)
		}
		for _, v := range d.Templating.List {
			variables[*d.Uid] = append(variables[*d.Uid], v.Name)
		}
		if !slices.Contains(d.Tags, "nodeagent") {
			t.Errorf("%s: tags %s", file, d.Tags)
		}
		if l := d.Links[0]; l.Type != dashboard.DashboardLinkTypeDashboards || !slices.Equal(l.Tags, []string{"nodeagent"}) {
			t.Errorf("%s: the first link does not lead to the others: %+v", file, l)
		}
	}
	url := regexp.MustCompile(`"url": ("/d/[^"]*")`)
	seen := map[string]bool{}
	for file := range dashboards() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range url.FindAllStringSubmatch(string(text), -1) {
			var link string
			if err := json.Unmarshal([]byte(m[1]), &link); err != nil {
				t.Fatal(err)
			}
			uid, query, _ := strings.Cut(strings.TrimPrefix(link, "/d/"), "?")
			seen[uid] = true
			if !strings.Contains(query, "${datasource:queryparam}") {
				t.Errorf("%s: %s loses the data source", file, link)
			}
			for _, v := range regexp.MustCompile(`var-(\w+)=`).FindAllStringSubmatch(query, -1) {
				if !slices.Contains(variables[uid], v[1]) {
					t.Errorf("%s: %s has no variable %s", file, link, v[1])
				}
			}
		}
	}
	if !seen[nodeUID] || !seen[podUID] {
		t.Errorf("links to %v only", seen)
	}
}

// A description that ends with a state is one of a panel whose queries all have it.
func TestStatesAreOfAllQueries(t *testing.T) {
	p := panel{title: "x", about: "X.", unit: "s", width: 4, height: 4, queries: []query{{expr: "a", emptyUntil: podIsLate}, {expr: "b"}}}
	if _, err := lines(p).Build(); err == nil {
		t.Error("a panel with a query that has data, and one that has none, is built")
	}
	p.queries[1].emptyUntil = podIsLate
	if b, err := lines(p).Build(); err != nil || !strings.HasSuffix(*b.Description, " Empty until "+podIsLate+".") {
		t.Errorf("description %v, %v", b.Description, err)
	}
}
