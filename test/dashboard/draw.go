package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
)

// A page is what the template shows.
type page struct {
	Title, About, From, To string
	Panels                 []view
}

// A view is a drawn panel. Of Text, Numbers, Bars, Table and Chart it has one, or None or Failed instead.
type view struct {
	X, Y, W, H   int // on the grid of 24 columns, from 1
	Title, About string
	None, Failed string
	Text         [][]span
	Numbers      []number
	Bars         []bar
	Table        *table
	Chart        *chart
}

// A span of text is code or not.
type span struct {
	Text string
	Code bool
}

// A number is large, a name is not.
type number struct {
	Text, Color string
	Name        bool
}

type bar struct {
	Name, Text, Color string
	Percent           float64
}

type table struct {
	Heads []cell
	Rows  [][]cell
	More  int // rows that are not shown
}

type cell struct {
	Text  string
	Right bool
}

// The grid in pixels: a column, a row, and the gap that is in both.
const (
	gridColumn = 51.8
	gridRow    = 32
	gridGap    = 12
)

// mostRows is how many rows of a table, or bars, fit in a panel of a height.
func mostRows(height int) int { return max(2, (gridRow*height-66)/24) }

// draw returns the page, and an error with all queries that have failed.
func draw(d *grafana.Dashboard, s *source) (page, error) {
	clock := "2006-01-02 15:04 UTC"
	p := page{Title: d.Title, About: d.Description, From: s.end.Add(-s.span).UTC().Format(clock), To: s.end.UTC().Format(clock)}
	for _, v := range d.Templating.List {
		if value := s.values[v.Name]; value != "" {
			p.Title += fmt.Sprintf(", %s %s", v.Name, value)
		}
	}
	var failed []error
	for _, panel := range d.Panels {
		v := view{
			X: panel.GridPos.X + 1, Y: panel.GridPos.Y + 1, W: panel.GridPos.W, H: panel.GridPos.H,
			Title: panel.Title,
		}
		v.About, _ = panel.About()
		if err := fill(&v, panel, s); err != nil {
			v.Failed = err.Error()
			failed = append(failed, err)
		}
		p.Panels = append(p.Panels, v)
	}
	return p, errors.Join(failed...)
}

// fill asks the panel's queries and draws their answers.
func fill(v *view, p grafana.Panel, s *source) error {
	if p.Type == "text" {
		v.Text = list(p.Options.Content)
		return nil
	}
	answers := make([][]series, len(p.Targets))
	var all []series
	for i, t := range p.Targets {
		var err error
		if answers[i], err = s.ask(t); err != nil {
			return err
		}
		all = append(all, answers[i]...)
	}
	if len(all) == 0 {
		_, empty := p.About()
		v.None = cmp.Or(empty, "No data.")
		return nil
	}
	switch p.Type {
	case "stat":
		v.Numbers = numbers(p, all)
	case "bargauge":
		v.Bars = bars(p, all)
	case "table":
		v.Table = rows(p, answers)
	case "timeseries":
		v.Chart = lines(p, all, s)
	case "state-timeline":
		v.Chart = states(p, all, s)
	default:
		return fmt.Errorf("panel %q: no drawing of a %s", p.Title, p.Type)
	}
	return nil
}

// list returns the items of a list in Markdown, with `code`.
func list(content string) (items [][]span) {
	for line := range strings.Lines(content) {
		var item []span
		for i, text := range strings.Split(strings.TrimPrefix(strings.TrimSpace(line), "- "), "`") {
			item = append(item, span{text, i%2 == 1})
		}
		items = append(items, item)
	}
	return items
}

func numbers(p grafana.Panel, all []series) (out []number) {
	for _, s := range all {
		value := float64(s.at[0].Value)
		if p.Options.TextMode == "name" {
			out = append(out, number{s.name, ink, true})
			continue
		}
		color := ink
		for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
			if step.Value == nil || value >= *step.Value {
				color = step.Color
			}
		}
		out = append(out, number{inUnit(value, p.FieldConfig.Defaults.Unit), color, false})
	}
	return out
}

func bars(p grafana.Panel, all []series) (out []bar) {
	var most float64
	for _, s := range all {
		most = max(most, float64(s.at[0].Value))
	}
	for i, s := range all {
		if n := mostRows(p.GridPos.H); i == n-1 && len(all) > n {
			return append(out, bar{Name: fmt.Sprintf("and %d more", len(all)-i)})
		}
		value := float64(s.at[0].Value)
		out = append(out, bar{
			Name: s.name, Text: inUnit(value, p.FieldConfig.Defaults.Unit), Color: p.FieldConfig.Defaults.Color.FixedColor,
			Percent: 85 * value / max(most, 1e-9), // the rest is the number's
		})
	}
	return out
}

// rows merges the answers of a table's queries: what has the same labels is one row.
func rows(p grafana.Panel, answers [][]series) *table {
	type row struct {
		labels model.Metric
		values map[string]float64
	}
	var merged []row
	for i, answer := range answers {
		field := "Value"
		if len(answers) > 1 {
			field = "Value #" + p.Targets[i].RefID
		}
		for _, s := range answer {
			at := slices.IndexFunc(merged, func(r row) bool { return r.labels.Equal(s.labels) })
			if at < 0 {
				at = len(merged)
				merged = append(merged, row{s.labels, map[string]float64{}})
			}
			merged[at].values[field] = float64(s.at[0].Value)
		}
	}
	columns, titles := organized(p)
	for _, by := range slices.Backward(p.Options.SortBy) {
		field := ""
		for of, title := range titles {
			if title == by.DisplayName {
				field = of
			}
		}
		slices.SortStableFunc(merged, func(a, b row) int { return cmp.Compare(b.values[field], a.values[field]) })
	}
	out := &table{}
	for _, c := range columns {
		out.Heads = append(out.Heads, cell{cmp.Or(titles[c], c), strings.HasPrefix(c, "Value")})
	}
	for i, r := range merged {
		if n := mostRows(p.GridPos.H) - 1; i == n-1 && len(merged) > n {
			out.More = len(merged) - i
			break
		}
		var cells []cell
		for _, c := range columns {
			value, ok := r.values[c]
			switch {
			case ok:
				cells = append(cells, cell{inUnit(value, unitOf(p, titles[c])), true})
			case strings.HasPrefix(c, "Value"):
				cells = append(cells, cell{"", true})
			default:
				cells = append(cells, cell{string(r.labels[model.LabelName(c)]), false})
			}
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// organized returns the columns of a table in their order, and their titles.
func organized(p grafana.Panel) (columns []string, titles map[string]string) {
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			for c := range t.Options.IndexByName {
				columns = append(columns, c)
			}
			slices.SortFunc(columns, func(a, b string) int { return cmp.Compare(t.Options.IndexByName[a], t.Options.IndexByName[b]) })
			titles = t.Options.RenameByName
		}
	}
	return columns, titles
}

// unitOf is the unit of the column with a title.
func unitOf(p grafana.Panel, title string) string {
	if unit := property(p, title, "unit"); unit != "" {
		return strings.Trim(unit, `"`)
	}
	return p.FieldConfig.Defaults.Unit
}

// property is a field's own property, as JSON.
func property(p grafana.Panel, field, id string) string {
	for _, o := range p.FieldConfig.Overrides {
		for _, prop := range o.Properties {
			if o.Matcher.ID == "byName" && o.Matcher.Options == field && prop.ID == id {
				return string(prop.Value)
			}
		}
	}
	return ""
}

// inUnit writes a value in one of the units that the dashboards use.
func inUnit(value float64, unit string) string {
	switch unit {
	case "s":
		return duration(value)
	case "reqps":
		return short(value) + "/s"
	}
	return short(value)
}

// duration writes seconds in the two largest units.
func duration(seconds float64) string {
	d := time.Duration(math.Round(seconds)) * time.Second
	two := func(big, small time.Duration, names string) string {
		out := fmt.Sprintf("%d%c", d/big, names[0])
		if rest := d % big / small; rest > 0 {
			out += fmt.Sprintf(" %d%c", rest, names[1])
		}
		return out
	}
	switch {
	case seconds < 0:
		return "-" + duration(-seconds)
	case seconds == 0:
		return "0s"
	case seconds < 1:
		return short(seconds*1000) + "ms"
	case seconds < 10:
		return short(seconds) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, time.Second, "ms")
	case d < 24*time.Hour:
		return two(time.Hour, time.Minute, "hm")
	}
	return two(24*time.Hour, time.Hour, "dh")
}

// short writes a number with two digits, or four if it is whole, or with a k or M.
func short(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 999_500:
		return digits(v/1e6) + "M"
	case abs >= 9_999.5:
		return digits(v/1e3) + "k"
	}
	return digits(v)
}

func digits(v float64) string {
	decimals := 0
	switch abs := math.Abs(v); {
	case abs < 1:
		decimals = 2
	case abs < 10:
		decimals = 1
	}
	out := fmt.Sprintf("%.*f", decimals, v)
	if strings.Contains(out, ".") {
		out = strings.TrimRight(strings.TrimRight(out, "0"), ".")
	}
	return out
}
