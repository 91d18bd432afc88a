package report

import (
	"fmt"
	"math"

	"penstock/bench/plot"
)

// heatmap draws names x measures: how far each is from the best of its column.
func (c *Comparison) heatmap() *plot.Canvas {
	if len(c.Names) < 2 || len(c.Rows) == 0 {
		return nil
	}
	const left, top, wide, high = 150.0, 84.0, 66.0, 24.0
	canvas := plot.New(math.Max(chartWide, left+wide*float64(len(c.Rows))+46), top+high*float64(len(c.Names))+14, "All measures of all names")
	for i, name := range c.Names {
		canvas.Text(left-8, top+high*float64(i)+16, plot.End, 12, plot.Ink, cut(name, 20))
	}
	for k, row := range c.Rows {
		x := left + wide*float64(k)
		label, unit := row.Label, row.Unit
		canvas.Text(x+wide/2, top-26-float64(k%2)*26, plot.Middle, 11, plot.Ink, cut(label, 19))
		canvas.Text(x+wide/2, top-14-float64(k%2)*26, plot.Middle, 10, plot.Dim, unit)
		if k%2 == 1 {
			canvas.Line([]plot.Point{{X: x + wide/2, Y: top - 36}, {X: x + wide/2, Y: top - 4}}, plot.Grid, 1, false)
		}
		for i, e := range row.Cells {
			y := top + high*float64(i)
			canvas.Rect(x+1, y+1, wide-2, high-2, heat(row, e))
			text := figure(e.Mean)
			if i == row.Best {
				canvas.Bold(x+wide/2, y+16, plot.Middle, 11, plot.Ink, text)
			} else {
				canvas.Text(x+wide/2, y+16, plot.Middle, 11, plot.Ink, text)
			}
		}
	}
	return canvas
}

// heat is the colour of a cell: from green (the best) over white to red (twice
// as far or more). Shares in percent go by points, 20 of them are the full red.
func heat(row Row, e Estimate) string {
	if row.Best < 0 || e.N == 0 {
		return "#f3f5f7"
	}
	best := row.Cells[row.Best].Mean
	worse := 0.0
	switch {
	case row.Unit == "%":
		worse = math.Abs(e.Mean-best) / 20
	case row.Better == Lower:
		worse = ratio(e.Mean, best) - 1
	default:
		worse = ratio(best, e.Mean) - 1
	}
	worse = math.Min(math.Max(worse, 0), 1)
	const near = 0.15
	if worse < near { // green to nearly white
		return blend([3]float64{178, 223, 190}, [3]float64{250, 247, 233}, worse/near)
	}
	return blend([3]float64{250, 240, 215}, [3]float64{236, 132, 110}, (worse-near)/(1-near))
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		if a <= 0 {
			return 1
		}
		return math.Inf(1)
	}
	return a / b
}

func blend(a, b [3]float64, t float64) string {
	mix := func(i int) int { return int(math.Round(a[i] + (b[i]-a[i])*t)) }
	return fmt.Sprintf("#%02x%02x%02x", mix(0), mix(1), mix(2))
}
