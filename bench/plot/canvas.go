// Package plot draws charts: lines, areas, marks and text on a canvas that
// becomes an SVG or a PNG of the same look. A Frame is the part of a canvas
// where data are, with its axes.
package plot

import "math"

// Colours of what is not data.
const (
	Ink   = "#1b2733"
	Dim   = "#8a97a3"
	Grid  = "#e4e9ed"
	Paper = "#ffffff"
)

// Hues tell series apart, also for eyes that see fewer colours (Okabe and Ito,
// "Color Universal Design", 2008, without yellow). More than these repeat, with
// dashes.
var Hues = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b7785"}

// Hue is the colour of the i-th series, and whether its line is dashed.
func Hue(i int) (colour string, dashed bool) { return Hues[i%len(Hues)], i/len(Hues)%2 == 1 }

// Anchor is where a text is held.
type Anchor uint8

const (
	Start Anchor = iota
	Middle
	End
)

// Point is in the units of the canvas; y grows downwards.
type Point struct{ X, Y float64 }

// Canvas collects shapes; what is drawn later lies above.
type Canvas struct {
	W, H   float64
	Title  string // for who cannot see it
	shapes []shape
}

// New is an empty canvas, white.
func New(w, h float64, title string) *Canvas {
	c := &Canvas{W: w, H: h, Title: title}
	c.Area(box(0, 0, w, h), Paper, 1)
	return c
}

type kind uint8

const (
	stroked kind = iota
	filled
	disc
	words
)

type shape struct {
	kind    kind
	points  []Point
	colour  string
	opacity float64
	width   float64 // of a line; radius of a disc; size of text
	dashed  bool
	edge    string // of a disc; empty: none
	anchor  Anchor
	bold    bool
	text    string
}

func box(x, y, w, h float64) []Point {
	return []Point{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}
}

// Line draws a line through points. Points that are not numbers part it.
func (c *Canvas) Line(points []Point, colour string, width float64, dashed bool) {
	from := 0
	for i := range len(points) + 1 {
		if i == len(points) || math.IsNaN(points[i].X) || math.IsNaN(points[i].Y) {
			if i-from > 1 {
				c.shapes = append(c.shapes, shape{kind: stroked, points: points[from:i], colour: colour, width: width, dashed: dashed, opacity: 1})
			}
			from = i + 1
		}
	}
}

// Area fills a polygon.
func (c *Canvas) Area(points []Point, colour string, opacity float64) {
	c.shapes = append(c.shapes, shape{kind: filled, points: points, colour: colour, opacity: opacity})
}

// Rect fills a rectangle.
func (c *Canvas) Rect(x, y, w, h float64, colour string) { c.Area(box(x, y, w, h), colour, 1) }

// Disc draws a circle of a radius, with an edge unless that is empty.
func (c *Canvas) Disc(at Point, radius float64, colour, edge string) {
	c.shapes = append(c.shapes, shape{kind: disc, points: []Point{at}, width: radius, colour: colour, edge: edge, opacity: 1})
}

// Text writes a line of text; y is its baseline.
func (c *Canvas) Text(x, y float64, anchor Anchor, size float64, colour string, text string) {
	c.shapes = append(c.shapes, shape{kind: words, points: []Point{{x, y}}, anchor: anchor, width: size, colour: colour, text: text, opacity: 1})
}

// Bold writes a line of bold text.
func (c *Canvas) Bold(x, y float64, anchor Anchor, size float64, colour string, text string) {
	c.Text(x, y, anchor, size, colour, text)
	c.shapes[len(c.shapes)-1].bold = true
}
