package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestTicks: round values within the range, four to ten of them.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		want     []float64
	}{
		{0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{0, 97, []float64{0, 20, 40, 60, 80}},
		{-12, 30, []float64{-10, 0, 10, 20, 30}},
		{3, 3, nil},
		{0, math.Inf(1), nil},
	} {
		got := Ticks(c.from, c.to)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 && math.Signbit(a) == math.Signbit(b) }) {
			t.Errorf("%g to %g: %v, want %v", c.from, c.to, got, c.want)
		}
	}
	for to := 1e-6; to < 1e9; to *= 1.7 {
		if n := len(Ticks(0, to)); n < 3 || n > 10 {
			t.Errorf("0 to %g: %d ticks", to, n)
		}
	}
}

// TestBothLookAlike: a shape is at the same place in the SVG and in the PNG.
func TestBothLookAlike(t *testing.T) {
	c := New(100, 60, "a < b")
	c.Rect(10, 10, 20, 20, "#d55e00")
	c.Line([]Point{{50, 5}, {50, 55}, {math.NaN(), 0}, {70, 5}, {70, 55}}, "#0072b2", 4, false)
	c.Line([]Point{{85, 0}, {85, 60}}, "#009e73", 4, true)
	c.Text(5, 50, Start, 10, Ink, "x & y")
	svg := c.SVG()
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(svg, "<polyline"); n != 3 || !strings.Contains(svg, "x &amp; y") || strings.Contains(svg, "NaN") {
		t.Errorf("%d lines in\n%s", n, svg)
	}
	text, err := c.PNG(2)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		x, y int
		want color.RGBA
	}{{40, 40, color.RGBA{0xd5, 0x5e, 0, 255}}, {100, 60, color.RGBA{0, 0x72, 0xb2, 255}}, {140, 60, color.RGBA{0, 0x72, 0xb2, 255}}, {120, 60, color.RGBA{255, 255, 255, 255}},
		{170, 4, color.RGBA{0, 0x9e, 0x73, 255}}, {170, 14, color.RGBA{255, 255, 255, 255}}} {
		r, g, b, a := img.At(p.x, p.y).RGBA()
		if got := (color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}); got != p.want {
			t.Errorf("at %d, %d: %v, want %v", p.x, p.y, got, p.want)
		}
	}
}

func TestFrame(t *testing.T) {
	c := New(120, 120, "")
	f := c.NewFrame(10, 10, 10, 10, 1, 100, 0, 1, true)
	if got := f.At(10, 0.5); math.Abs(got.X-60) > 1e-9 || math.Abs(got.Y-60) > 1e-9 {
		t.Errorf("10 of 1 to 100, logarithmic, is at %v, want the middle", got)
	}
	if got := f.At(1e6, 7); got != (Point{110, 10}) {
		t.Errorf("what lies outside is at %v, want the edge", got)
	}
}

func TestColours(t *testing.T) {
	for _, bad := range []string{"", "red", "#12", "#gggggg"} {
		if _, err := parseColour(bad, 1); err == nil {
			t.Errorf("%q is taken for a colour", bad)
		}
	}
	seen := map[string]bool{}
	for i := range 2 * len(Hues) {
		colour, dashed := Hue(i)
		key := colour
		if dashed {
			key += " dashed"
		}
		if seen[key] {
			t.Errorf("line %d looks like another", i)
		}
		seen[key] = true
	}
}
