package plot

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// PNG is the canvas as an image, scale pixels for each of its units.
func (c *Canvas) PNG(scale float64) ([]byte, error) {
	p := &painter{scale: scale, img: image.NewRGBA(image.Rect(0, 0, int(math.Ceil(c.W*scale)), int(math.Ceil(c.H*scale))))}
	for i := range c.shapes {
		if err := p.paint(&c.shapes[i]); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p.img); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

type painter struct {
	scale float64
	img   *image.RGBA
	faces map[faceKey]font.Face
}

type faceKey struct {
	size float64
	bold bool
}

func (p *painter) paint(s *shape) error {
	colour, err := parseColour(s.colour, s.opacity)
	if err != nil {
		return err
	}
	switch s.kind {
	case stroked:
		p.stroke(s.points, s.width, s.dashed, colour)
	case filled:
		p.fill(s.points, colour)
	case disc:
		if s.edge != "" {
			edge, err := parseColour(s.edge, 1)
			if err != nil {
				return err
			}
			p.fill(circle(s.points[0], s.width+0.75), edge)
			p.fill(circle(s.points[0], s.width-0.75), colour)
			return nil
		}
		p.fill(circle(s.points[0], s.width), colour)
	case words:
		return p.write(s, colour)
	}
	return nil
}

func circle(at Point, r float64) []Point {
	const corners = 32
	all := make([]Point, corners)
	for i := range all {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		all[i] = Point{at.X + r*cos, at.Y + r*sin}
	}
	return all
}

func (p *painter) fill(points []Point, colour color.Color) {
	size := p.img.Bounds().Size()
	r := vector.NewRasterizer(size.X, size.Y)
	p.add(r, points)
	r.Draw(p.img, p.img.Bounds(), image.NewUniform(colour), image.Point{})
}

func (p *painter) add(r *vector.Rasterizer, points []Point) {
	for i, q := range points {
		x, y := float32(q.X*p.scale), float32(q.Y*p.scale)
		if i == 0 {
			r.MoveTo(x, y)
		} else {
			r.LineTo(x, y)
		}
	}
	r.ClosePath()
}

// stroke fills what a line covers: a quadrangle for each segment, joints filled
// where it turns.
func (p *painter) stroke(points []Point, width float64, dashed bool, colour color.Color) {
	size := p.img.Bounds().Size()
	r := vector.NewRasterizer(size.X, size.Y)
	along := 0.0
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		length := math.Hypot(b.X-a.X, b.Y-a.Y)
		if length == 0 {
			continue
		}
		for at := 0.0; at < length; {
			step, on := length-at, true
			if dashed {
				phase := math.Mod(along+at, 9) // 5 on, 4 off
				if on = phase < 5; on {
					step = min(step, 5-phase)
				} else {
					step = min(step, 9-phase)
				}
				step = max(step, 1e-6)
			}
			if on {
				p.segment(r, lerp(a, b, at/length), lerp(a, b, (at+step)/length), width)
			}
			at += step
		}
		along += length
		if !dashed && i < len(points)-1 && width > 1.2 {
			p.add(r, circle(b, width/2))
		}
	}
	r.Draw(p.img, p.img.Bounds(), image.NewUniform(colour), image.Point{})
}

func lerp(a, b Point, t float64) Point { return Point{a.X + (b.X-a.X)*t, a.Y + (b.Y-a.Y)*t} }

// segment has the orientation of circle, so that what overlaps does not cancel.
func (p *painter) segment(r *vector.Rasterizer, a, b Point, width float64) {
	length := math.Hypot(b.X-a.X, b.Y-a.Y)
	if length == 0 {
		return
	}
	nx, ny := (b.Y-a.Y)/length*width/2, -(b.X-a.X)/length*width/2
	p.add(r, []Point{{a.X + nx, a.Y + ny}, {b.X + nx, b.Y + ny}, {b.X - nx, b.Y - ny}, {a.X - nx, a.Y - ny}})
}

func (p *painter) write(s *shape, colour color.Color) error {
	face, err := p.face(s.width, s.bold)
	if err != nil {
		return err
	}
	d := &font.Drawer{Dst: p.img, Src: image.NewUniform(colour), Face: face}
	x := s.points[0].X * p.scale
	switch wide := float64(d.MeasureString(s.text)) / 64; s.anchor {
	case Middle:
		x -= wide / 2
	case End:
		x -= wide
	}
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(x * 64), Y: fixed.Int26_6(s.points[0].Y * p.scale * 64)}
	d.DrawString(s.text)
	return nil
}

func (p *painter) face(size float64, bold bool) (font.Face, error) {
	key := faceKey{size, bold}
	if f := p.faces[key]; f != nil {
		return f, nil
	}
	data := goregular.TTF
	if bold {
		data = gobold.TTF
	}
	parsed, err := opentype.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("the font for images: %w", err)
	}
	f, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size * p.scale, DPI: 72})
	if err != nil {
		return nil, fmt.Errorf("the font for images: %w", err)
	}
	if p.faces == nil {
		p.faces = map[faceKey]font.Face{}
	}
	p.faces[key] = f
	return f, nil
}

// parseColour reads #rrggbb.
func parseColour(text string, opacity float64) (color.Color, error) {
	if len(text) != 7 || text[0] != '#' {
		return nil, fmt.Errorf("colour %q: want #rrggbb", text)
	}
	v, err := strconv.ParseUint(text[1:], 16, 32)
	if err != nil {
		return nil, fmt.Errorf("colour %q: want #rrggbb", text)
	}
	return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), uint8(math.Round(255 * opacity))}, nil
}
