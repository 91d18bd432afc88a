package solve

import "math"

// simplex projects onto { sum x = total, 0 <= x <= most } in the norm sum L x^2:
// the x nearest to points c is clamp(c + mu/L, 0, most) for the one mu at which
// they sum to the total. The sum is piecewise linear and rising in mu, so that
// Newton's method between bounds ends at mu exactly, on its piece.
type simplex struct {
	x, c, inverse, most []float64
	spare               []float64
}

func (p *simplex) reset() {
	p.x, p.c, p.inverse, p.most = p.x[:0], p.c[:0], p.inverse[:0], p.most[:0]
}

// add takes in a variable near c of scale L.
func (p *simplex) add(c, scale, most float64) {
	p.x = append(p.x, 0)
	p.c = append(p.c, c)
	p.inverse = append(p.inverse, 1/scale)
	p.most = append(p.most, most)
}

// project sets x, from a guess of mu, and returns mu. The variables without
// their bounds must be able to sum to total.
func (p *simplex) project(total, mu float64) float64 {
	low, high := math.Inf(-1), math.Inf(1)
	for range 100 {
		sum, slope := 0.0, 0.0
		for k, c := range p.c {
			switch v := c + mu*p.inverse[k]; {
			case v <= 0:
				p.x[k] = 0
			case v >= p.most[k]:
				p.x[k] = p.most[k]
				sum += p.most[k]
			default:
				p.x[k] = v
				sum += v
				slope += p.inverse[k]
			}
		}
		missing := total - sum
		if math.Abs(missing) <= roundOff*total {
			break
		}
		if missing > 0 {
			low = mu
		} else {
			high = mu
		}
		next := math.NaN()
		if slope > 0 {
			if next = mu + missing/slope; next == mu {
				break
			}
		}
		if !(next > low && next < high) {
			next = p.beyond(mu, low, high, missing)
		}
		if next == mu || !(next >= low && next <= high) {
			break
		}
		mu = next
	}
	return mu
}

// beyond is a next guess where Newton's has none: the nearest mu at which
// another variable starts to move, or the middle of the bounds.
func (p *simplex) beyond(mu, low, high, missing float64) float64 {
	if !math.IsInf(low, 0) && !math.IsInf(high, 0) {
		return low + (high-low)/2
	}
	best := math.Inf(1)
	if missing < 0 {
		best = math.Inf(-1)
	}
	for k, c := range p.c {
		v, scale := c+mu*p.inverse[k], 1/p.inverse[k]
		switch {
		case missing > 0 && v <= 0:
			// The first to leave 0, pushed on by what is missing.
			best = min(best, max(mu, -c*scale)+missing*scale)
		case missing < 0 && v >= p.most[k]:
			best = max(best, min(mu, (p.most[k]-c)*scale)+missing*scale)
		}
	}
	return best
}

// scratch is n zeros until the next use.
func (p *simplex) scratch(n int) []float64 {
	p.spare = zeroed(p.spare, n)
	return p.spare
}
