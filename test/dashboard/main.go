// Command dashboard draws a dashboard of deploy/grafana as a page of HTML, from a Prometheus:
//
//	go run ./test/dashboard -prometheus http://127.0.0.1:9090 -dashboard deploy/grafana/fleet.json -out fleet.html
//
// It shows that the dashboard's queries give what the panels promise. It is not Grafana, and does not look like it.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"html/template"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
)

//go:embed page.html.tmpl
var pageText string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	server := flags.String("prometheus", "http://127.0.0.1:9090", "`URL` of the Prometheus")
	file := flags.String("dashboard", "deploy/grafana/fleet.json", "the dashboard's `file`")
	out := flags.String("out", "dashboard.html", "`file` to write")
	span := flags.Duration("range", 6*time.Hour, "the time range, which ends now")
	scrape := flags.Duration("scrape", 15*time.Second, "the scrape interval, as the data source in Grafana has it")
	values := map[string]string{}
	for _, name := range []string{"node", "namespace", "pod"} {
		flags.Func(name, "value of the dashboard's variable "+name, func(v string) error { values[name] = v; return nil })
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	d, err := grafana.Read(*file)
	if err != nil {
		return err
	}
	client, err := api.NewClient(api.Config{Address: *server})
	if err != nil {
		return err
	}
	source := &source{api: promapi.NewAPI(client), end: time.Now(), span: *span, scrape: *scrape, values: values}
	drawn, failed := draw(d, source)
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := template.Must(template.New("page").Parse(pageText)).Execute(f, drawn); err != nil {
		return err
	}
	return failed
}

// A source answers the queries of one dashboard, for one time range.
type source struct {
	api          promapi.API
	end          time.Time
	span, scrape time.Duration
	values       map[string]string // of the dashboard's variables
}

// A series is the answer's part about one set of labels. Instant queries give one sample.
type series struct {
	name   string // by the query's legend
	labels model.Metric
	at     []model.SamplePair
}

// ask returns the series of a query. It takes the step, and with it $__rate_interval, as Grafana does for a panel of 300 points.
func (s *source) ask(t grafana.Target) ([]series, error) {
	step := max(s.span/300, s.scrape)
	if d, err := model.ParseDuration(t.Interval); err == nil {
		step = max(step, time.Duration(d))
	}
	step = step.Round(time.Second)
	values := maps.Clone(s.values)
	values["__rate_interval"] = model.Duration(max(step+s.scrape, 4*s.scrape)).String()
	values["__range"] = model.Duration(s.span).String()
	expr, err := grafana.Replace(t.Expr, values)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var value model.Value
	if t.Instant {
		value, _, _, err = s.api.Query(ctx, expr, s.end)
	} else {
		value, _, _, err = s.api.QueryRange(ctx, expr, promapi.Range{Start: s.end.Add(-s.span), End: s.end, Step: step})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var all []series
	switch value := value.(type) {
	case model.Vector:
		for _, v := range value {
			all = append(all, series{legend(t.LegendFormat, v.Metric), v.Metric, []model.SamplePair{{Timestamp: v.Timestamp, Value: v.Value}}})
		}
	case model.Matrix:
		for _, v := range value {
			all = append(all, series{legend(t.LegendFormat, v.Metric), v.Metric, v.Values})
		}
	default:
		return nil, fmt.Errorf("%s: the answer is a %s", expr, value.Type())
	}
	return all, nil
}

// legend puts labels into a legend's format, {{LABEL}}.
func legend(format string, labels model.Metric) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+string(name)+"}}", string(value))
	}
	return format
}
