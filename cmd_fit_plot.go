package main

import (
	"fmt"
	"math"

	"penstock/bench/plot"
)

const (
	plotWide, plotHigh = 720.0, 440.0
	plotSteps          = 240 // of the curve
	plotHue            = "#0072b2"
)

// plotFit draws measurements and the fitted curve as an SVG.
func plotFit(r fitReport) string {
	f := r.fitted
	wide, high := 0.0, 0.0
	for _, c := range r.Table {
		wide, high = math.Max(wide, c.Load), math.Max(high, math.Max(c.Measured, c.Fitted))
	}
	if len(f.Points) == 0 && f.Slope > 0 && f.Limit < 2*wide {
		wide = f.Limit
	}
	wide, high = math.Max(wide*1.03, 1e-9), high*1.15
	canvas := plot.New(plotWide, plotHigh, "Latency over load: "+plainText(r.Input))
	frame := canvas.NewFrame(70, 62, 20, 54, 0, wide, 0, high, false)
	frame.Axes("load, requests/s", "latency, ms", false)
	legend := fmt.Sprintf("%d points", len(f.Points))
	if r.Form == "curve" {
		legend = fmt.Sprintf("%.4g + %.4g/(1 - load/%.4g)", f.Base, f.Slope, f.Limit)
	}
	canvas.Bold(70, 20, plot.Start, 13, plot.Ink, plainText(r.Input))
	canvas.Text(70, 37, plot.Start, 12, plot.Ink, fmt.Sprintf("fitted: %s, off by %.1f %%", legend, 100*r.MAPE))
	if f.Slope > 0 && f.Limit < wide {
		canvas.Line([]plot.Point{frame.At(f.Limit, 0), frame.At(f.Limit, high)}, plot.Dim, 1, true)
		canvas.Text(frame.X(f.Limit)-6, frame.Y(high)+12, plot.End, 11, plot.Ink, "limit")
	}
	var curve []plot.Point
	for i := range plotSteps + 1 {
		load := wide * float64(i) / plotSteps
		if n := len(f.Points); n > 0 {
			load = math.Min(load, f.Points[n-1].Load)
		}
		if ms := f.Zero() + f.Congestion(load); ms <= high {
			curve = append(curve, frame.At(load, ms))
		}
	}
	canvas.Line(curve, plotHue, 2, false)
	for _, c := range r.Table {
		canvas.Disc(frame.At(c.Load, c.Measured), 4, plot.Paper, plot.Ink)
	}
	return canvas.SVG()
}
