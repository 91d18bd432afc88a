package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Lengths is a distribution of numbers of tokens.
type Lengths struct {
	kind string // fixed, exp, uniform, lognormal
	a, b float64
}

// mostTokens bounds a length: a prompt of it is 4 MB of text.
const mostTokens = 1_000_000

// Fixed is always n tokens.
func Fixed(n int) Lengths { return Lengths{kind: "fixed", a: float64(n)} }

// ParseLengths reads 400, fixed:400, exp:400 (mean), uniform:100:800 or
// lognormal:300:0.8 (median, sigma).
func ParseLengths(text string) (Lengths, error) {
	kind, rest, has := strings.Cut(text, ":")
	if !has {
		kind, rest = "fixed", text
	}
	parts := strings.Split(rest, ":")
	want := map[string]int{"fixed": 1, "exp": 1, "uniform": 2, "lognormal": 2}[kind]
	if want == 0 || len(parts) != want {
		return Lengths{}, fmt.Errorf("%q: want a number, exp:MEAN, uniform:FROM:TO or lognormal:MEDIAN:SIGMA", text)
	}
	var v [2]float64
	for i, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || !(n >= 0) || n > mostTokens {
			return Lengths{}, fmt.Errorf("%q: want a number from 0 to %d, not %q", text, mostTokens, p)
		}
		v[i] = n
	}
	l := Lengths{kind, v[0], v[1]}
	switch {
	case l.a < 1:
		return Lengths{}, fmt.Errorf("%q: want at least one token", text)
	case kind == "uniform" && l.b < l.a:
		return Lengths{}, fmt.Errorf("%q: ends before it begins", text)
	case kind == "lognormal" && l.b > 4:
		return Lengths{}, fmt.Errorf("%q: want a sigma up to 4", text)
	}
	return l, nil
}

func (l Lengths) String() string {
	switch l.kind {
	case "fixed":
		return strconv.FormatFloat(l.a, 'g', -1, 64)
	case "exp":
		return fmt.Sprintf("exp:%g", l.a)
	}
	return fmt.Sprintf("%s:%g:%g", l.kind, l.a, l.b)
}

// draw is at least 1.
func (l Lengths) draw(dice *rand.Rand) int {
	v := l.a
	switch l.kind {
	case "exp":
		v = 1 + (l.a-1)*dice.ExpFloat64()
	case "uniform":
		v = l.a + (l.b-l.a)*dice.Float64()
	case "lognormal":
		v = l.a * math.Exp(l.b*dice.NormFloat64())
	}
	return int(math.Round(min(max(v, 1), mostTokens)))
}
