package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/nodeagent-io/nodeagent/pkg/evidence"
	"github.com/nodeagent-io/nodeagent/pkg/terminal"
	"github.com/nodeagent-io/nodeagent/pkg/why"
)

// report is what -o json and yaml print; report.schema.json describes it.
type report struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Pods       []why.Answer `json:"pods"`
	Incomplete []why.Unread `json:"incomplete"`
}

type namespaceReport struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Namespace  why.NamespaceAnswer `json:"namespace"`
	Incomplete []why.Unread        `json:"incomplete"`
}

// encode prints a report as -o says.
func (o *options) encode(w io.Writer, report any) error {
	b, err := json.MarshalIndent(report, "", "  ")
	if err == nil && o.output == "yaml" {
		var values any
		if err = json.Unmarshal(b, &values); err == nil {
			b, err = yaml.Marshal(printable(values))
		}
	}
	if err != nil {
		return err
	}
	if o.output == "json" {
		b = evidence.ASCII(b)
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(string(b), "\n"))
	return err
}

// printable makes the strings of a value printable, as YAML has no escapes for all that a terminal acts upon.
func printable(value any) any {
	switch v := value.(type) {
	case string:
		return terminal.Printable(v)
	case []any:
		for i := range v {
			v[i] = printable(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = printable(v[key])
		}
	}
	return value
}

func (o *options) print(w io.Writer, answers []why.Answer, v *why.View, names []string) error {
	switch o.output {
	case "json", "yaml":
		return o.encode(w, report{"nodeagent.io/v1alpha1", "TerminationReport", answers, append([]why.Unread{}, v.Unread...)})
	case "name":
		for i := range answers {
			if _, err := fmt.Fprintln(w, "pod/"+answers[i].Name); err != nil {
				return err
			}
		}
		return nil
	}
	if o.script {
		o.status = nothingLate // it is a script, and not an answer
		why.Script(w, o.node, o.flags(), answers, v)
		return nil
	}
	s, err := o.style()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		s.Details(w, answers, v)
	} else {
		s.Table(w, answers, v)
	}
	return nil
}

func (o *options) terminal() bool {
	f, ok := o.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// style follows --color, NO_COLOR (https://no-color.org), and the terminal or COLUMNS.
func (o *options) style() (why.Style, error) {
	s := why.Style{Wide: o.output == "wide", Names: o.all, Flags: o.flags()}
	terminal := o.terminal()
	if terminal {
		s.Width, _, _ = term.GetSize(int(o.out.(*os.File).Fd()))
	}
	if s.Width == 0 {
		s.Width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	switch o.colors {
	case "always":
		s.Color = true
	case "never":
	case "auto":
		s.Color = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	default:
		return s, fmt.Errorf("unknown --color %q; use auto, always or never", o.colors)
	}
	return s, nil
}
