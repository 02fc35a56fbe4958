// Package grafana reads the dashboards of deploy/grafana: the part of their JSON that the live check and test/dashboard use.
package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The states in which a query has data that has none while all is well. A panel's description names its state, as "Empty until STATE.".
const (
	PodIsLate       = "a pod is more than two minutes late"
	PodHasVerdict   = "a pod has a verdict"
	TaskIsBlocked   = "a pod is past its grace period and a task is in D state"
	EventIsReported = "an Event is reported"
	VerdictIsHeld   = "a verdict is held back"
	SourceMissing   = "a source of evidence is missing"
)

// A Dashboard is Grafana's classic model of one.
type Dashboard struct {
	UID, Title, Description string
	Panels                  []Panel
	Templating              struct{ List []Variable }
}

// A Variable is what the viewer chooses. Query is a string, and empty for the data source.
type Variable struct {
	Name, Type, Description string
	Query                   any
}

// A Panel has its place on a grid of 24 columns.
type Panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []Target
	FieldConfig              struct {
		Defaults  Field
		Overrides []Override
	}
	Options struct {
		Content, TextMode string
		SortBy            []struct {
			DisplayName string
			Desc        bool
		}
	}
	Transformations []Transformation
}

// A Target is a query with variables. Interval is the shortest step, as 1m.
type Target struct {
	RefID, Expr, LegendFormat, Interval string
	Instant                             bool
}

// A Field is how values look. The first threshold has no value: it holds from the smallest number on.
type Field struct {
	Unit, NoValue string
	Color         struct{ Mode, FixedColor string }
	Thresholds    struct {
		Steps []struct {
			Value *float64
			Color string
		}
	}
	Custom struct{ Stacking struct{ Mode string } }
}

// An Override changes properties of the field with a name.
type Override struct {
	Matcher    struct{ ID, Options string }
	Properties []struct {
		ID    string
		Value json.RawMessage
	}
}

// A Transformation is merge, or organize with the columns in their order.
type Transformation struct {
	ID      string
	Options struct {
		IndexByName  map[string]int
		RenameByName map[string]string
	}
}

// Read returns the dashboard in a file.
func Read(file string) (*Dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d Dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &d, nil
}

// ReadAll returns the dashboards in a directory, which is deploy/grafana, by the names of their files.
func ReadAll(dir string) ([]*Dashboard, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*Dashboard
	for _, file := range files {
		d, err := Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no dashboards in %s", dir)
	}
	return all, nil
}

// A Query is one query of a dashboard, without variables.
type Query struct {
	Dashboard string // its title
	Panel     string // its title, or "variable NAME": the values from which the viewer chooses
	Expr      string
	Instant   bool
	// EmptyUntil is the state in which the query has data, "" if it always has some.
	EmptyUntil string
}

// Queries returns all queries of the dashboard, with values for its variables: __rate_interval, __range, node, namespace, pod. An error
// names a variable without a value.
func (d *Dashboard) Queries(values map[string]string) ([]Query, error) {
	var all []Query
	add := func(panel, description, expr string, instant bool) error {
		expr, err := Replace(expr, values)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", d.Title, panel, err)
		}
		all = append(all, Query{Dashboard: d.Title, Panel: panel, Expr: expr, Instant: instant, EmptyUntil: emptyUntil(description)})
		return nil
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		text, _ := v.Query.(string)
		m := labelValues.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("%s: variable %s: %q is not label_values(SERIES, LABEL)", d.Title, v.Name, text)
		}
		if err := add("variable "+v.Name, v.Description, fmt.Sprintf("group by (%s) (%s)", m[2], m[1]), true); err != nil {
			return nil, err
		}
	}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			if err := add(p.Title, p.Description, t.Expr, t.Instant); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	variable    = regexp.MustCompile(`\$\{?([A-Za-z_]\w*)\}?`)
	state       = regexp.MustCompile(`Empty until ([^.]+)\.$`)
)

// Replace returns a query with values in the place of its variables, $NAME or ${NAME}.
func Replace(expr string, values map[string]string) (string, error) {
	var missing []string
	out := variable.ReplaceAllStringFunc(expr, func(of string) string {
		name := variable.FindStringSubmatch(of)[1]
		value, ok := values[name]
		if !ok {
			missing = append(missing, name)
		}
		return value
	})
	if missing != nil {
		return "", fmt.Errorf("no value for %s in %s", strings.Join(missing, ", "), expr)
	}
	return out, nil
}

// emptyUntil is the state that a description names.
func emptyUntil(description string) string {
	if m := state.FindStringSubmatch(description); m != nil {
		return m[1]
	}
	return ""
}

// About returns the description in two parts: what the panel shows, and the sentence that says until when it is empty.
func (p *Panel) About() (shows, empty string) {
	empty = state.FindString(p.Description)
	return strings.TrimSpace(strings.TrimSuffix(p.Description, empty)), empty
}
