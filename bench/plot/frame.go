package plot

import (
	"fmt"
	"math"
)

// Frame is where data are on a canvas: a rectangle with two axes.
type Frame struct {
	c                        *Canvas
	left, top, right, bottom float64
	xFrom, xTo, yFrom, yTo   float64
	log                      bool // of x
}

// NewFrame lays a frame between margins. A logarithmic x axis begins above 0.
func (c *Canvas) NewFrame(left, top, right, bottom float64, xFrom, xTo, yFrom, yTo float64, log bool) *Frame {
	if log {
		xFrom = math.Max(xFrom, 1e-9)
	}
	if !(xTo > xFrom) {
		xTo = xFrom + 1
	}
	if !(yTo > yFrom) {
		yTo = yFrom + 1
	}
	return &Frame{c, left, top, c.W - right, c.H - bottom, xFrom, xTo, yFrom, yTo, log}
}

// X is where a value is on the canvas.
func (f *Frame) X(v float64) float64 {
	t := (v - f.xFrom) / (f.xTo - f.xFrom)
	if f.log {
		t = math.Log(math.Max(v, f.xFrom)/f.xFrom) / math.Log(f.xTo/f.xFrom)
	}
	return f.left + t*(f.right-f.left)
}

// Y is where a value is on the canvas.
func (f *Frame) Y(v float64) float64 {
	return f.bottom - (v-f.yFrom)/(f.yTo-f.yFrom)*(f.bottom-f.top)
}

// At is the place of a pair of values, within the frame.
func (f *Frame) At(x, y float64) Point {
	return Point{math.Min(math.Max(f.X(x), f.left), f.right), math.Min(math.Max(f.Y(y), f.top), f.bottom)}
}

// Axes draws both axes with ticks and names. percent: y is a share.
func (f *Frame) Axes(xName, yName string, percent bool) {
	xs := Ticks(f.xFrom, f.xTo)
	if f.log {
		xs = logTicks(f.xFrom, f.xTo)
	}
	for _, v := range xs {
		f.c.Line([]Point{{f.X(v), f.top}, {f.X(v), f.bottom}}, Grid, 1, false)
		f.c.Text(f.X(v), f.bottom+16, Middle, 11, Ink, number(v))
	}
	for _, v := range Ticks(f.yFrom, f.yTo) {
		f.c.Line([]Point{{f.left, f.Y(v)}, {f.right, f.Y(v)}}, Grid, 1, false)
		text := number(v)
		if percent {
			text = fmt.Sprintf("%.0f %%", 100*v)
		}
		f.c.Text(f.left-7, f.Y(v)+4, End, 11, Ink, text)
	}
	f.c.Line([]Point{{f.left, f.top}, {f.left, f.bottom}, {f.right, f.bottom}}, Ink, 1, false)
	f.c.Text((f.left+f.right)/2, f.bottom+34, Middle, 11, Ink, xName)
	f.c.Text(f.left, f.top-8, Start, 11, Dim, yName)
}

// Ticks are round values, about five to eight of them.
func Ticks(from, to float64) []float64 {
	if !(to > from) || math.IsInf(to-from, 0) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10((to-from)/5)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (to-from)/(step*m) <= 8 {
			step *= m
			break
		}
	}
	var ticks []float64
	for i := math.Ceil(from/step - 1e-9); i*step <= to*(1+1e-9); i++ {
		ticks = append(ticks, i*step+0) // no negative zero
	}
	return ticks
}

// logTicks are 1, 2 and 5 of every power of ten, or powers alone where they are many.
func logTicks(from, to float64) []float64 {
	var ticks []float64
	factors := []float64{1, 2, 5}
	if to/from > 1000 {
		factors = []float64{1}
	}
	for p := math.Pow(10, math.Floor(math.Log10(from))); p <= to; p *= 10 {
		for _, m := range factors {
			if v := p * m; v >= from*(1-1e-9) && v <= to*(1+1e-9) {
				ticks = append(ticks, v)
			}
		}
	}
	return ticks
}

func number(v float64) string {
	if math.Abs(v) >= 10_000 {
		return fmt.Sprintf("%gk", math.Round(v/100)/10)
	}
	return fmt.Sprintf("%g", math.Round(v*1e6)/1e6)
}
