package report

import (
	"fmt"
	"math"
	"slices"

	"penstock/bench/plot"
)

// flows draws a small picture for each name: sources at the left, engines at the
// right, bands between them as wide as the requests are many.
func (c *Comparison) flows() *plot.Canvas {
	var sources, engines []string
	totals := make([]map[[2]string]float64, len(c.Names))
	any := false
	for i, name := range c.Names {
		totals[i] = map[[2]string]float64{}
		for _, r := range c.runs[name] {
			for _, f := range r.Flows {
				if f.Requests <= 0 {
					continue
				}
				any = true
				totals[i][[2]string{f.Source, f.Engine}] += float64(f.Requests)
				if !slices.Contains(sources, f.Source) {
					sources = append(sources, f.Source)
				}
				if !slices.Contains(engines, f.Engine) {
					engines = append(engines, f.Engine)
				}
			}
		}
	}
	if !any {
		return nil
	}
	slices.Sort(sources)
	slices.Sort(engines)
	shown := 0 // names that have flows: a target that does not say its engine has none
	for i := range totals {
		if len(totals[i]) > 0 {
			shown++
		}
	}
	across := min(3, shown)
	const wide = 320.0
	high := math.Max(130, math.Min(360, 34+15*float64(max(len(engines), len(sources)))))
	canvas := plot.New(math.Max(chartWide, wide*float64(across)+20), (high+14)*math.Ceil(float64(shown)/float64(across))+10, "Requests from sources to engines")
	at := 0
	for i, name := range c.Names {
		if len(totals[i]) == 0 {
			continue
		}
		x, y := 10+wide*float64(at%across), 8+(high+14)*float64(at/across)
		colour, _ := plot.Hue(i)
		canvas.Bold(x+wide/2, y+12, plot.Middle, 12, colour, cut(name, 32))
		sankey(canvas, x+80, y+22, wide-156, high-26, sources, engines, totals[i])
		at++
	}
	return canvas
}

// sankey draws one picture of bands.
func sankey(c *plot.Canvas, x, y, w, h float64, sources, engines []string, flows map[[2]string]float64) {
	from, to, total := map[string]float64{}, map[string]float64{}, 0.0
	for k, v := range flows {
		from[k[0]] += v
		to[k[1]] += v
		total += v
	}
	const gap = 4.0
	unit := (h - gap*float64(max(len(sources), len(engines))-1)) / total
	place := func(names []string, sums map[string]float64) map[string]float64 {
		at, places := y, map[string]float64{}
		for _, n := range names {
			places[n] = at
			at += sums[n]*unit + gap
		}
		return places
	}
	lefts, rights := place(sources, from), place(engines, to)
	for s, name := range sources {
		colour := plot.Hues[s%len(plot.Hues)]
		top, size := lefts[name], from[name]*unit
		c.Rect(x, top, 6, math.Max(size, 0.5), colour)
		c.Text(x-5, top+size/2+4, plot.End, 10, plot.Ink, cut(name, 13))
		at := top
		for _, engine := range engines {
			v := flows[[2]string{name, engine}] * unit
			if v == 0 {
				continue
			}
			c.Area(band(x+6, at, x+w-6, rights[engine]+taken(flows, sources[:s], engine)*unit, v), colour, 0.42)
			at += v
		}
	}
	for _, name := range engines {
		size := to[name] * unit
		c.Rect(x+w-6, rights[name], 6, math.Max(size, 0.5), plot.Ink)
		c.Text(x+w+5, rights[name]+size/2+4, plot.Start, 10, plot.Ink, fmt.Sprintf("%s %.0f%%", cut(name, 10), 100*to[name]/total))
	}
}

// taken is what sources before this one put on an engine.
func taken(flows map[[2]string]float64, before []string, engine string) (sum float64) {
	for _, s := range before {
		sum += flows[[2]string{s, engine}]
	}
	return sum
}

// band is an area between two bars, of the same height at both, that bends.
func band(x1, y1, x2, y2, height float64) []plot.Point {
	const steps = 16
	var upper, lower []plot.Point
	for i := range steps + 1 {
		t := float64(i) / steps
		s := t * t * (3 - 2*t)
		p := plot.Point{X: x1 + (x2-x1)*t, Y: y1 + (y2-y1)*s}
		upper = append(upper, p)
		lower = append(lower, plot.Point{X: p.X, Y: p.Y + height})
	}
	slices.Reverse(lower)
	return append(upper, lower...)
}
