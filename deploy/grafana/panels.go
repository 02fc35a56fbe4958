package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/text"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The uids, which links and bookmarks hold on to.
const (
	fleetUID = "nodeagent-fleet"
	nodeUID  = "nodeagent-node"
	podUID   = "nodeagent-pod"
)

// The states in which a query has data. One that has none while all is well names its state; the panel's description ends with it, as
// "Empty until STATE.".
const (
	podIsLate       = "a pod is more than two minutes late"
	podHasVerdict   = "a pod has a verdict"
	taskIsBlocked   = "a pod is past its grace period and a task is in D state"
	eventIsReported = "an Event is reported"
	verdictIsHeld   = "a verdict is held back"
	sourceMissing   = "a source of evidence is missing"
)

// Colours that people who are colour-blind can tell apart (Okabe and Ito).
const (
	blue      = "#0072B2"
	orange    = "#E69F00"
	vermilion = "#D55E00"
	green     = "#009E73"
	purple    = "#CC79A7"
	grey      = "#7F7F7F"
)

// pages is where the pages about causes are.
const pages = "https://github.com/nodeagent-io/nodeagent/blob/main/docs"

// source is the data source that the viewer chooses.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

// A query is an expression of PromQL. Its series are named by the legend.
type query struct {
	expr, legend string
	// emptyUntil is the state in which the query has data, "" if it always has some.
	emptyUntil string
	// exemplars asks for the histogram's exemplars too.
	exemplars bool
	// every is the shortest step, as 5m; "" is the scrape interval.
	every string
}

// A panel is what panels of all kinds have. unit is one of Grafana's (s, short, reqps).
type panel struct {
	title, about, unit string
	width, height      uint32
	queries            []query
}

// A builder is a builder of one kind of panel.
type builder[B any] interface {
	cog.Builder[dashboard.Panel]
	RecordError(string, error) B
	Title(string) B
	Description(string) B
	Datasource(common.DataSourceRef) B
	Unit(string) B
	Span(uint32) B
	Height(uint32) B
	NoValue(string) B
	WithTarget(cog.Builder[variants.Dataquery]) B
}

// fill gives a builder what all kinds have. ask makes a query an instant or a range query.
func fill[B builder[B]](b B, p panel, ask func(*prometheus.DataqueryBuilder) *prometheus.DataqueryBuilder) B {
	about := p.about
	if state := p.queries[0].emptyUntil; state != "" {
		about += " Empty until " + state + "."
		b.NoValue("none")
	}
	for i, q := range p.queries {
		if q.emptyUntil != p.queries[0].emptyUntil {
			b.RecordError(p.title, fmt.Errorf("its queries have data in different states: %s", q.expr))
		}
		target := prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).EditorMode(prometheus.QueryEditorModeCode).
			Expr(q.expr).LegendFormat(q.legend)
		if q.exemplars {
			target.Exemplar(true)
		}
		if q.every != "" {
			target.Interval(q.every)
		}
		b.WithTarget(ask(target))
	}
	return b.Title(p.title).Description(about).Datasource(source).Unit(p.unit).Span(p.width).Height(p.height)
}

// lines is a panel of lines over time.
func lines(p panel) *timeseries.PanelBuilder {
	return fill(timeseries.NewPanelBuilder(), p, (*prometheus.DataqueryBuilder).Range).
		Min(0).LineWidth(2).FillOpacity(8).ShowPoints(common.VisibilityModeAuto).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementRight).Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
}

// stacked stacks the lines: their sum is what counts.
func stacked(b *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return b.FillOpacity(30).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// coloured gives series, by their names, colours of their own.
func coloured(b *timeseries.PanelBuilder, colours map[string]string, order ...string) *timeseries.PanelBuilder {
	for _, name := range order {
		b.OverrideByName(name, []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": colours[name]}}})
	}
	return b
}

// number is a panel with one large number. It stands out from bad on; 0 is never.
func number(p panel, bad float64) *stat.PanelBuilder {
	return fill(stat.NewPanelBuilder(), p, (*prometheus.DataqueryBuilder).Instant).
		ReduceOptions(last()).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).
		Thresholds(from(bad, vermilion)).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds))
}

// name is a panel with the names of the series instead of their numbers.
func name(p panel) *stat.PanelBuilder {
	return fill(stat.NewPanelBuilder(), p, (*prometheus.DataqueryBuilder).Instant).
		ReduceOptions(last()).GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone).
		TextMode(common.BigValueTextModeName)
}

// bars is a panel with a bar for each series.
func bars(p panel, colour string) *bargauge.PanelBuilder {
	return fill(bargauge.NewPanelBuilder(), p, (*prometheus.DataqueryBuilder).Instant).
		ReduceOptions(last()).Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic).
		NamePlacement(common.BarGaugeNamePlacementLeft).ValueMode(common.BarGaugeValueModeText).ShowUnfilled(false).
		Sizing(common.BarGaugeSizingManual).MinVizHeight(16).MaxVizHeight(28).Min(0).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(colour))
}

// states is a panel with a row for each series, filled while the series is there.
func states(p panel, colour string) *statetimeline.PanelBuilder {
	return fill(statetimeline.NewPanelBuilder(), p, (*prometheus.DataqueryBuilder).Range).
		ShowValue(common.VisibilityModeNever).RowHeight(0.7).NeverSpanNulls().MergeValues(true).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(false).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(colour))
}

// A column of a table is a label, or the values of a query: "Value" if it is the only one, "Value #A" otherwise.
type column struct {
	of, title string
	unit      string // of values
	link      string // where a click leads, "" for nowhere
	width     int    // pixels, 0 for the rest
}

// rows is a table with these columns; the rows with the largest values in the last one come first.
func rows(p panel, columns ...column) *table.PanelBuilder {
	b := fill(table.NewPanelBuilder(), p, func(q *prometheus.DataqueryBuilder) *prometheus.DataqueryBuilder {
		return q.Instant().Format(prometheus.PromQueryFormatTable)
	})
	index, titles := map[string]int{}, map[string]string{}
	for i, c := range columns {
		index[c.of], titles[c.of] = i, c.title
		var set []dashboard.DynamicConfigValue
		if c.unit != "" {
			set = append(set, dashboard.DynamicConfigValue{Id: "unit", Value: c.unit})
		}
		if c.width != 0 {
			set = append(set, dashboard.DynamicConfigValue{Id: "custom.width", Value: c.width})
		}
		if c.link != "" {
			set = append(set, dashboard.DynamicConfigValue{Id: "links", Value: []any{map[string]any{"title": "open", "url": c.link}}})
		}
		if set != nil {
			b.OverrideByName(c.title, set)
		}
	}
	return b.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true}, "indexByName": index, "renameByName": titles,
		}}).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"sum"})). // the schema wants one
		SortBy([]cog.Builder[common.TableSortByFieldState]{
			common.NewTableSortByFieldStateBuilder().DisplayName(columns[len(columns)-1].title).Desc(true),
		})
}

// notShown is a panel with what the others leave out.
func notShown(width, height uint32, items string) *text.PanelBuilder {
	return text.NewPanelBuilder().Title("What these panels do not show").Span(width).Height(height).Mode(text.TextModeMarkdown).Content(items)
}

func last() *common.ReduceDataOptionsBuilder {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Values(false)
}

func from(bad float64, colour string) *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: blue}}
	if bad != 0 {
		steps = append(steps, dashboard.Threshold{Value: &bad, Color: colour})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// to is a link to a dashboard, with the cell's value, or another, as its variable.
func to(uid, variables string) string {
	return "/d/" + uid + "?${datasource:queryparam}&" + variables + "&${__url_time_range}"
}

// causePage is a link to the page about the cause that is the cell's value.
const causePage = pages + "/reasons/${__value.raw}.md"

// start is a dashboard with what all three have.
func start(uid, title, about string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).Uid(uid).Description(about).Tags([]string{"nodeagent"}).
		Time("now-6h", "now").Refresh("1m").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("nodeagent").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"nodeagent"}).
			KeepTime(true).IncludeVars(true)).
		Link(dashboard.NewDashboardLinkBuilder("On call").Type(dashboard.DashboardLinkTypeLink).Icon("doc").Url(pages + "/on-call.md").TargetBlank(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"))
}

// choice is a variable with the values of a label.
func choice(name, label, values, emptyUntil string) *dashboard.QueryVariableBuilder {
	b := dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).Definition(values).
		Query(dashboard.StringOrMap{String: &values}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
	if emptyUntil != "" {
		b.Description("Empty until " + emptyUntil + ".")
	}
	return b
}

// phases are the parts of a termination that the histogram knows, in their order, with their colours.
var (
	phases       = []string{"GracePeriod", "Overdue", "Sandbox", "Volumes", "Finalizers"}
	phaseColours = map[string]string{"GracePeriod": grey, "Overdue": vermilion, "Sandbox": blue, "Volumes": green, "Finalizers": purple}
)

// quantile asks for a quantile of the phases' durations: of the classic histogram, or of the native one where only that is scraped.
func quantile(q string) query {
	const h = "nodeagent_termination_phase_seconds"
	return query{
		expr: fmt.Sprintf("histogram_quantile(%[1]s, sum by (phase, le) (rate(%[2]s_bucket[$__rate_interval]))) or "+
			"histogram_quantile(%[1]s, sum by (phase) (rate(%[2]s[$__rate_interval])))", q, h),
		legend: "{{phase}}", exemplars: true, every: "1m",
	}
}

// counted asks how much a counter has grown in the time range. A counter that has begun in it counts from 0: increase() would start at
// its first sample.
func counted(metric, selector, by, legend, emptyUntil string) query {
	m := metric + selector
	return query{
		expr:   fmt.Sprintf("sort_desc(round(sum by (%s) ((%s unless %s offset $__range) or increase(%s[$__range]))) > 0)", by, m, m, m),
		legend: legend, emptyUntil: emptyUntil,
	}
}
