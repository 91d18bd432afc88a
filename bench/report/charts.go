package report

import (
	"fmt"
	"math"
	"slices"

	"penstock/bench/plot"
)

// Chart is a picture of a comparison, with a name for its file.
type Chart struct {
	Name    string // of a file: letters, digits, dashes
	Heading string
	Note    string // how to read it
	Canvas  *plot.Canvas
}

// chartWide is the width of a chart; a page shows two side by side.
const chartWide = 640.0

// Charts are all pictures of a comparison that its runs have data for.
func (c *Comparison) Charts() []Chart {
	var all []Chart
	add := func(name, heading, note string, canvas *plot.Canvas) {
		if canvas != nil {
			all = append(all, Chart{name, heading, note, canvas})
		}
	}
	add("differences", "How far behind the first", "Mean end-to-end latency more than that of the first, seed by seed; the bar is the 95 % interval. A bar that crosses the line at 0 is within chance.", c.differences())
	add("heatmap", "All measures", "Green is the best of its column; the deeper the red, the further from it.", c.heatmap())
	add("e2e", "End-to-end latency", "Share of answers that took no longer. Further left is better.", c.distribution("end to end, ms", func(r *Run) *Histogram { return r.E2E }))
	add("ttft", "Time to the first token", "Share of answers whose first token came no later.", c.distribution("time to the first token, ms", func(r *Run) *Histogram { return r.TTFT }))
	add("tbot", "Time between tokens", "Share of answers whose mean time between tokens was no longer.", c.distribution("mean time between tokens, ms", func(r *Run) *Histogram { return r.TBOT }))
	for _, name := range c.seriesNames() {
		add("series-"+fileName(name), upper(name)+" over time", "Mean over the seeds, by when requests were due.", c.series(name))
	}
	add("flows", "Where requests went", "From sources, left, to engines, right; as wide as there were requests.", c.flows())
	return all
}

func upper(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// fileName is a name with letters, digits and dashes only.
func fileName(s string) string {
	b := []byte(s)
	for i, x := range b {
		switch {
		case x >= 'A' && x <= 'Z':
			b[i] = x - 'A' + 'a'
		case x >= 'a' && x <= 'z' || x >= '0' && x <= '9':
		default:
			b[i] = '-'
		}
	}
	return string(b)
}

// legend writes the names in their colours at the right of a chart.
func (c *Comparison) legend(canvas *plot.Canvas, top float64) {
	x := canvas.W - 148
	for i, name := range c.Names {
		colour, dashed := plot.Hue(i)
		y := top + 17*float64(i)
		canvas.Line([]plot.Point{{X: x, Y: y}, {X: x + 18, Y: y}}, colour, 2.5, dashed)
		canvas.Text(x+24, y+4, plot.Start, 11, plot.Ink, cut(name, 19))
	}
}

func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// legendHigh is how high a chart must be for its legend.
func (c *Comparison) legendHigh(least float64) float64 {
	return math.Max(least, 60+17*float64(len(c.Names)))
}

// distribution draws cumulative distributions, all seeds of a name together.
func (c *Comparison) distribution(xName string, of func(*Run) *Histogram) *plot.Canvas {
	merged := make([]*Histogram, len(c.Names))
	from, to := math.Inf(1), 0.0
	for i, name := range c.Names {
		merged[i] = &Histogram{}
		for _, r := range c.runs[name] {
			if h := of(r); h.Count() > 0 {
				merged[i].Merge(h)
			}
		}
		if merged[i].Count() > 0 {
			from, to = math.Min(from, merged[i].Quantile(0.001)), math.Max(to, merged[i].Quantile(0.9995))
		}
	}
	if to == 0 {
		return nil
	}
	from = math.Max(from, to/1e5)
	canvas := plot.New(chartWide, c.legendHigh(320), "Cumulative distribution of "+xName)
	f := canvas.NewFrame(52, 26, 164, 48, from*0.95, to*1.05, 0, 1, true)
	f.Axes(xName, "share of answers", true)
	for i := len(c.Names) - 1; i >= 0; i-- { // the first lies above
		steps := merged[i].cdf()
		if len(steps) == 0 {
			continue
		}
		points := []plot.Point{f.At(steps[0].ms, 0)}
		before := 0.0
		for _, s := range steps {
			points = append(points, f.At(s.ms, before), f.At(s.ms, s.share))
			before = s.share
		}
		colour, dashed := plot.Hue(i)
		canvas.Line(thinned(points), colour, 2, dashed)
	}
	c.legend(canvas, 34)
	return canvas
}

// thinned leaves out points that no eye tells from the one before.
func thinned(points []plot.Point) []plot.Point {
	kept := points[:1:1]
	for i, p := range points[1:] {
		last := kept[len(kept)-1]
		if math.Abs(p.X-last.X)+math.Abs(p.Y-last.Y) >= 0.7 || i == len(points)-2 {
			kept = append(kept, p)
		}
	}
	return kept
}

// seriesNames are the series that runs have, in their order.
func (c *Comparison) seriesNames() (names []string) {
	for _, name := range c.Names {
		for _, r := range c.runs[name] {
			for _, s := range r.Series {
				if !slices.Contains(names, s.Name) && s.Name != "requests" {
					names = append(names, s.Name)
				}
			}
		}
	}
	return names
}

// series draws a figure over time, the mean over the seeds.
func (c *Comparison) series(name string) *plot.Canvas {
	lines := make([]Series, len(c.Names))
	from, to, low, high := math.Inf(1), math.Inf(-1), 0.0, 0.0
	unit := ""
	for i, n := range c.Names {
		lines[i] = meanSeries(c.runs[n], name).coarse()
		for k, v := range lines[i].Values {
			at := lines[i].Start + lines[i].Step*(float64(k)+0.5)
			if unit = lines[i].Unit; !math.IsNaN(v) {
				from, to, low, high = math.Min(from, at), math.Max(to, at), math.Min(low, v), math.Max(high, v)
			}
		}
	}
	if !(to > from) || high == low {
		return nil
	}
	canvas := plot.New(chartWide, c.legendHigh(280), name+" over time")
	f := canvas.NewFrame(60, 26, 164, 48, from, to, low, high*1.05, false)
	f.Axes("time, s", name+", "+unit, false)
	if len(lines) > 1 && !slices.ContainsFunc(lines[1:], func(s Series) bool { return !slices.EqualFunc(s.Values, lines[0].Values, sameValue) }) {
		lines = lines[:1] // the same for all: what came in, for instance
		canvas.Text(canvas.W-148, 38, plot.Start, 11, plot.Dim, "the same for all")
	} else {
		c.legend(canvas, 34)
	}
	for i := len(lines) - 1; i >= 0; i-- {
		var points []plot.Point
		for k, v := range lines[i].Values {
			if math.IsNaN(v) {
				points = append(points, plot.Point{X: math.NaN(), Y: math.NaN()})
				continue
			}
			points = append(points, f.At(lines[i].Start+lines[i].Step*(float64(k)+0.5), v))
		}
		colour, dashed := plot.Hue(i)
		canvas.Line(points, colour, 1.8, dashed)
		for k := range points { // a line of one point is none
			if alone(points, k) {
				canvas.Disc(points[k], 2.4, colour, "")
			}
		}
	}
	return canvas
}

// alone is whether point k is there and has no neighbour to draw a line to.
func alone(points []plot.Point, k int) bool {
	missing := func(i int) bool { return i < 0 || i >= len(points) || math.IsNaN(points[i].X) }
	return !missing(k) && missing(k-1) && missing(k+1)
}

func sameValue(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// coarse is the series with no more values than a chart of many lines can show,
// each the mean of those that it stands for.
func (s Series) coarse() Series {
	const most = 48
	k := (len(s.Values) + most - 1) / most
	if k <= 1 {
		return s
	}
	out := Series{Name: s.Name, Unit: s.Unit, Start: s.Start, Step: s.Step * float64(k)}
	for part := range slices.Chunk(s.Values, k) {
		sum, n := 0.0, 0.0
		for _, v := range part {
			if !math.IsNaN(v) {
				sum, n = sum+v, n+1
			}
		}
		out.Values = append(out.Values, sum/n) // 0/0: nothing there
	}
	return out
}

// meanSeries is the mean of the runs' series of a name, where their steps agree.
func meanSeries(runs []*Run, name string) (mean Series) {
	var n []int
	for _, r := range runs {
		for _, s := range r.Series {
			if s.Name != name {
				continue
			}
			if mean.Step == 0 {
				mean = Series{Name: name, Unit: s.Unit, Start: s.Start, Step: s.Step}
			}
			if s.Step != mean.Step || s.Start != mean.Start {
				continue // of another length: it has no common clock with the others
			}
			for k, v := range s.Values {
				if k == len(n) {
					n, mean.Values = append(n, 0), append(mean.Values, 0)
				}
				if !math.IsNaN(v) {
					n[k]++
					mean.Values[k] += v
				}
			}
		}
	}
	for k := range mean.Values {
		mean.Values[k] /= float64(n[k]) // 0/0: nobody has it
	}
	return mean
}

// differences draws how far the others are behind the first, with intervals.
func (c *Comparison) differences() *plot.Canvas {
	pairs := c.Winner.Pairs
	if len(pairs) == 0 {
		return nil
	}
	low, high := 0.0, 0.0
	type bar struct {
		name           string
		at, half       float64
		sure, interval bool
	}
	var bars []bar
	for i, p := range pairs {
		base := p.Base + p.Diff.Mean // the first's mean
		if p.N == 0 || base <= 0 {
			continue
		}
		b := bar{name: c.Names[i+1], at: 0 - 100*p.Diff.Mean/base, half: 100 * p.Diff.Half / base, sure: p.Diff.sure(), interval: !math.IsNaN(p.Diff.Half)}
		if !b.interval {
			b.half = 0
		}
		low, high = math.Min(low, b.at-b.half), math.Max(high, b.at+b.half)
		bars = append(bars, b)
	}
	if len(bars) == 0 {
		return nil
	}
	pad := 0.06 * math.Max(high-low, 1)
	canvas := plot.New(chartWide, 74+26*float64(len(bars)), "Differences of the mean end-to-end latency")
	f := canvas.NewFrame(150, 26, 84, 46, low-pad, high+pad, 0, float64(len(bars)), false)
	for _, v := range plot.Ticks(low-pad, high+pad) {
		canvas.Line([]plot.Point{f.At(v, 0), f.At(v, float64(len(bars)))}, plot.Grid, 1, false)
		canvas.Text(f.X(v), f.Y(0)+16, plot.Middle, 11, plot.Ink, fmt.Sprintf("%g %%", v))
	}
	canvas.Line([]plot.Point{f.At(0, 0), f.At(0, float64(len(bars)))}, plot.Ink, 1.4, false)
	canvas.Text((f.X(low)+f.X(high))/2, f.Y(0)+36, plot.Middle, 11, plot.Ink, "mean end-to-end latency more than "+cut(c.Names[0], 24)+"'s")
	for i, b := range bars {
		y := float64(len(bars)) - float64(i) - 0.5
		colour, _ := plot.Hue(i + 1)
		if !b.sure {
			colour = plot.Dim
		}
		if b.interval {
			canvas.Line([]plot.Point{f.At(b.at-b.half, y), f.At(b.at+b.half, y)}, colour, 3, false)
		}
		canvas.Disc(f.At(b.at, y), 5, colour, plot.Paper)
		canvas.Text(142, f.Y(y)+4, plot.End, 12, plot.Ink, cut(b.name, 20))
		verdict := fmt.Sprintf("%+.1f %%", b.at)
		switch {
		case b.at == 0 && b.half == 0:
			verdict = "the same"
		case !b.sure:
			verdict += " ?"
		}
		canvas.Bold(canvas.W-8, f.Y(y)+4, plot.End, 11, colour, verdict)
	}
	return canvas
}
