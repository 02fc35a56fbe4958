package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/nodeagent-io/nodeagent/test/dashboard/grafana"
)

// A chart is a drawing in SVG over the time range.
type chart struct {
	Width, Height            int
	Left, Right, Top, Bottom float64 // of the plot
	Times, Values            []tick
	Lines                    []line
	Bands                    []band
	Below                    bool // the legend is
}

type tick struct {
	At   float64
	Text string
}

// A line is one series. Those that are stacked have an area below them.
type line struct {
	Name, Color, Dash, Path, Area string
	Dots                          []dot // samples without a neighbour
	Last, Most                    string
}

type dot struct{ X, Y float64 }

// A band is a row of a state timeline, with a rectangle for each time that its series was there.
type band struct {
	Name, Color   string
	Y, Text, High float64
	Spans         []extent
}

type extent struct{ X, W float64 }

const ink = "#1F2933"

// The colours and dashes of series that have none of their own: nobody needs to tell colours apart.
var (
	colors = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"}
	dashes = []string{"", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 4"}
)

// Of a legend in pixels: its width beside a chart, beside one that is as wide as the page, and the height of a row.
const (
	legendWidth = 250
	legendWide  = 350
	legendRow   = 18
)

// plot returns a chart of a panel's size without lines. beside and below are the pixels for what else is in the panel.
func plot(p grafana.Panel, left, beside, below int, s *source) *chart {
	c := &chart{Width: int(float64(p.GridPos.W)*gridColumn) - gridGap - 14 - beside, Height: p.GridPos.H*gridRow - 64 - below, Left: float64(left), Top: 8}
	c.Right, c.Bottom = float64(c.Width)-20, float64(c.Height)-20
	step := stepOf(s.span.Seconds(), min(10, max(2, c.Width/60)), []float64{1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600, 6 * 3600, 24 * 3600})
	layout := "15:04"
	if step < 60 {
		layout = "15:04:05"
	}
	first := s.end.Add(-s.span).Truncate(time.Duration(step) * time.Second)
	for at := first; !at.After(s.end); at = at.Add(time.Duration(step) * time.Second) {
		if x := c.x(model.TimeFromUnixNano(at.UnixNano()), s); x >= c.Left {
			c.Times = append(c.Times, tick{x, at.UTC().Format(layout)})
		}
	}
	return c
}

// stepOf is the smallest of some steps of which at most so many fit, or the largest.
func stepOf(span float64, most int, steps []float64) float64 {
	for _, step := range steps {
		if span/step <= float64(most) {
			return step
		}
	}
	return steps[len(steps)-1]
}

func (c *chart) x(at model.Time, s *source) float64 {
	since := at.Time().Sub(s.end.Add(-s.span)).Seconds() / s.span.Seconds()
	return math.Round(10*(c.Left+since*(c.Right-c.Left))) / 10
}

// scale sets the marks of the values from 0 to the largest, and returns where a value is.
func (c *chart) scale(most float64, unit string) func(float64) float64 {
	steps := []float64{}
	for e := -6.0; e < 12; e++ {
		steps = append(steps, math.Pow(10, e), 2*math.Pow(10, e), 5*math.Pow(10, e))
	}
	if unit == "s" && most > 10 {
		steps = []float64{5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600}
	}
	if unit == "short" {
		steps = slices.DeleteFunc(steps, func(s float64) bool { return s < 1 })
	}
	step := stepOf(most, 4, steps)
	top := step * max(1, math.Ceil(most/step))
	y := func(v float64) float64 { return math.Round(10*(c.Bottom-v/top*(c.Bottom-c.Top))) / 10 }
	for v := 0.0; v <= top*1.0001; v += step {
		c.Values = append(c.Values, tick{y(v), inUnit(v, unit)})
	}
	return y
}

// lines draws the series of a panel of lines, stacked if the panel says so.
func lines(p grafana.Panel, all []series, s *source) *chart {
	beside, below := legendWidth, 0
	switch {
	case p.GridPos.W < 12:
		beside, below = 0, legendRow*(len(all)+1)
	case p.GridPos.W > 16:
		beside = legendWide
	}
	c := plot(p, 50, beside, below, s)
	c.Below = below > 0
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(order(p, a.name), order(p, b.name)) })
	unit := p.FieldConfig.Defaults.Unit
	stack := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	floors, tops, most := levels(all, stack)
	y := c.scale(most, unit)
	for i, one := range all {
		l := line{Name: strings.ReplaceAll(one.name, "/", "/\u200b"), Color: colors[i%len(colors)], Dash: dashes[i%len(dashes)]}
		l.Color = cmp.Or(colorOf(p, one.name), l.Color)
		var largest float64
		for _, run := range runs(one.at) {
			var up, down []string
			for _, at := range run {
				largest = max(largest, float64(at.Value))
				x := c.x(at.Timestamp, s)
				up = append(up, fmt.Sprintf("%g %g", x, y(tops[i][at.Timestamp])))
				down = append(down, fmt.Sprintf("%g %g", x, y(floors[i][at.Timestamp])))
			}
			if len(run) == 1 {
				l.Dots = append(l.Dots, dot{c.x(run[0].Timestamp, s), y(tops[i][run[0].Timestamp])})
			}
			l.Path += "M" + strings.Join(up, "L")
			if stack {
				slices.Reverse(down)
				l.Area += "M" + strings.Join(up, "L") + "L" + strings.Join(down, "L") + "Z"
			}
			l.Last, l.Most = inUnit(float64(run[len(run)-1].Value), unit), inUnit(largest, unit)
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

// levels returns between which values each series is drawn, by time, and the largest of them. What is stacked begins on the series before.
func levels(all []series, stack bool) (floors, tops []map[model.Time]float64, most float64) {
	filled := map[model.Time]float64{}
	for _, one := range all {
		floor, top := map[model.Time]float64{}, map[model.Time]float64{}
		for _, at := range one.at {
			v := float64(at.Value)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			if stack {
				floor[at.Timestamp] = filled[at.Timestamp]
				filled[at.Timestamp] += v
			}
			top[at.Timestamp] = floor[at.Timestamp] + v
			most = max(most, top[at.Timestamp])
		}
		floors, tops = append(floors, floor), append(tops, top)
	}
	return floors, tops, most
}

// order is a series' place: first those that the panel gives a colour, in its order.
func order(p grafana.Panel, name string) int {
	if i := slices.IndexFunc(p.FieldConfig.Overrides, func(o grafana.Override) bool { return o.Matcher.Options == name }); i >= 0 {
		return i
	}
	return len(p.FieldConfig.Overrides)
}

// colorOf is the colour that the panel gives a series, "" for none.
func colorOf(p grafana.Panel, name string) string {
	_, color, _ := strings.Cut(property(p, name, "color"), `"fixedColor": "`)
	color, _, _ = strings.Cut(color, `"`)
	return color
}

// states draws a row for each series.
func states(p grafana.Panel, all []series, s *source) *chart {
	c := plot(p, 300, 0, 0, s)
	high := min(32, (c.Bottom-c.Top)/float64(len(all)))
	for i, one := range all {
		b := band{Name: one.name, Color: p.FieldConfig.Defaults.Color.FixedColor, Y: c.Top + float64(i)*high + 3, High: high - 6}
		b.Text = b.Y + b.High/2 + 4
		for _, run := range runs(one.at) {
			from, to := c.x(run[0].Timestamp, s), c.x(run[len(run)-1].Timestamp, s)
			b.Spans = append(b.Spans, extent{from, max(2, to-from)})
		}
		c.Bands = append(c.Bands, b)
	}
	return c
}

// runs cuts samples where one is missing, or is no number.
func runs(all []model.SamplePair) (out [][]model.SamplePair) {
	step := int64(math.MaxInt64)
	for i := 1; i < len(all); i++ {
		step = min(step, int64(all[i].Timestamp-all[i-1].Timestamp))
	}
	var last model.Time
	for _, at := range all {
		v := float64(at.Value)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if len(out) == 0 || int64(at.Timestamp-last) > step {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], at)
		last = at.Timestamp
	}
	return out
}
