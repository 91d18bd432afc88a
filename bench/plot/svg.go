package plot

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// SVG is the canvas as a document without any reference to another.
func (c *Canvas) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="system-ui, sans-serif">`+"\n", c.W, c.H)
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(c.Title))
	for i := range c.shapes {
		c.shapes[i].svg(&b)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (s *shape) svg(b *strings.Builder) {
	at := s.points[0]
	switch s.kind {
	case stroked:
		dash := ""
		if s.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round"%s/>`+"\n", coordinates(s.points), s.colour, s.width, dash)
	case filled:
		opacity := ""
		if s.opacity < 1 {
			opacity = fmt.Sprintf(` fill-opacity="%g"`, s.opacity)
		}
		fmt.Fprintf(b, `<polygon points="%s" fill="%s"%s/>`+"\n", coordinates(s.points), s.colour, opacity)
	case disc:
		edge := ""
		if s.edge != "" {
			edge = fmt.Sprintf(` stroke="%s" stroke-width="1.5"`, s.edge)
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%g" fill="%s"%s/>`+"\n", at.X, at.Y, s.width, s.colour, edge)
	case words:
		anchor := [...]string{"start", "middle", "end"}[s.anchor]
		bold := ""
		if s.bold {
			bold = ` font-weight="600"`
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%g" fill="%s" text-anchor="%s"%s>%s</text>`+"\n", at.X, at.Y, s.width, s.colour, anchor, bold, escaped(s.text))
	}
}

func coordinates(points []Point) string {
	var b strings.Builder
	for i, p := range points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.1f,%.1f", p.X, p.Y)
	}
	return b.String()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}
