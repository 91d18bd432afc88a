package profile

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/balancer/problem"
)

// What has the form is found again, to many digits without noise and within it
// with.
func TestFitFindsTheForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := problem.Latency{Base: rapid.Float64Range(0, 1000).Draw(t, "a"), Slope: rapid.Float64Range(1, 1000).Draw(t, "b"), Limit: rapid.Float64Range(0.01, 1000).Draw(t, "Y")}
		noise := rapid.SampledFrom([]float64{0, 0.02}).Draw(t, "noise")
		if noise > 0 { // else it tells the limit
			want.Slope = max(want.Slope, want.Base/3)
		}
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.IntRange(8, 40).Draw(t, "n")
		var pairs []Measured
		for i := range n {
			y := want.Limit * 0.95 * float64(i) / float64(n-1)
			pairs = append(pairs, Measured{y, (want.Zero() + want.Congestion(y)) * (1 + noise*dice.NormFloat64())})
		}
		dice.Shuffle(n, func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		f, err := Fit(pairs)
		if err != nil || f.Why != "" {
			t.Fatalf("%v, %+v", err, f)
		}
		limit, zero := 1e-5, 1e-5
		if noise > 0 {
			limit, zero = 0.1, 0.2
		}
		if math.Abs(f.Limit/want.Limit-1) > limit || math.Abs(f.Zero()/want.Zero()-1) > zero || f.MAPE > 1.5*noise+1e-6 {
			t.Fatalf("%+v, want %+v", f, want)
		}
	})
}

// Errors are those of the relative least squares: no other curve near or far is
// better (found by another way, descent over all three parameters).
func TestFitIsTheBest(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 5))
	for round := range 60 {
		a, b, limit := 300*dice.Float64(), 10+300*dice.Float64(), 1+50*dice.Float64()
		var pairs []Measured
		largest := 0.0
		for range 4 + dice.IntN(20) {
			y := limit * 0.93 * dice.Float64()
			largest = max(largest, y)
			pairs = append(pairs, Measured{y, (a + b/(1-y/limit)) * math.Exp(0.1*dice.NormFloat64())})
		}
		off := func(a, b, limit float64) float64 {
			if a < 0 || b < 0 || limit <= largest {
				return math.Inf(1)
			}
			sum := 0.0
			for _, p := range pairs {
				e := (a+b/(1-p.Load/limit))/p.Latency - 1
				sum += e * e
			}
			return sum
		}
		sorted := append([]Measured(nil), pairs...)
		for i := range sorted {
			for j := range i {
				if sorted[i].Load < sorted[j].Load {
					sorted[i], sorted[j] = sorted[j], sorted[i]
				}
			}
		}
		curve, why := fitCurve(sorted)
		if why != "" || curve.Slope == 0 {
			continue
		}
		got := off(curve.Base, curve.Slope, curve.Limit)
		least := math.Inf(1)
		for range 6 {
			x := [3]float64{a * 2 * dice.Float64(), b * 2 * dice.Float64(), largest * (1 + dice.Float64())}
			value, size := off(x[0], x[1], x[2]), 0.3
			for rounds := 0; size > 1e-7 && rounds < 400; rounds++ {
				better := false
				for range 40 {
					z := [3]float64{x[0] + size*100*dice.NormFloat64(), x[1] + size*100*dice.NormFloat64(), x[2] + size*largest*dice.NormFloat64()}
					z[0] = max(z[0], 0)
					if v := off(z[0], z[1], z[2]); v < value {
						x, value, better = z, v, true
					}
				}
				if !better {
					size /= 2
				}
			}
			least = min(least, value)
		}
		if got > least*(1+1e-6)+1e-12 {
			t.Errorf("round %d: %+v is off by %v, another by %v", round, curve, got, least)
		}
	}
}

// Latency that is not of the form becomes points, which a problem takes.
func TestFitPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 60).Draw(t, "n")
		var pairs []Measured
		for range n {
			pairs = append(pairs, Measured{rapid.Float64Range(0, 50).Draw(t, "load"), rapid.Float64Range(1, 5000).Draw(t, "latency")})
		}
		f, err := Fit(pairs)
		if err != nil {
			t.Skip(err)
		}
		checkAdmissible(t, f)
	})
}

type fataler interface{ Fatalf(string, ...any) }

func checkAdmissible(t fataler, f *Fitted) {
	latency := map[string]any{"base_ms": f.Base, "slope_ms": f.Slope, "limit": f.Limit}
	capacity := f.Limit
	if len(f.Points) > 0 {
		var points [][2]float64
		for _, p := range f.Points {
			points = append(points, [2]float64{p.Load, p.Time})
		}
		latency = map[string]any{"points": points}
		capacity = f.Points[len(f.Points)-1].Load
	}
	text, err := json.Marshal(map[string]any{
		"sources": []string{"A"}, "engines": []any{map[string]any{"name": "a", "cluster": "A", "capacity": capacity, "latency": latency}},
		"classes": []any{map[string]any{"name": "c"}}, "demand": []any{map[string]any{"source": "A", "class": "c", "rate": 1}},
		"rtt_ms": map[string]any{"A": map[string]any{"A": 1}},
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := problem.Parse(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestFitOfOtherForms(t *testing.T) {
	var hockey, flat, line []Measured
	for i := range 21 {
		y := float64(i)
		hockey = append(hockey, Measured{y, 100 + 200*max(0, y-15)})
		flat = append(flat, Measured{y, 70})
		line = append(line, Measured{y, 100 + 50*y})
	}
	f, err := Fit(hockey)
	if err != nil || f.Why == "" || f.MAPE > 0.01 || len(f.Points) < 3 {
		t.Errorf("a bend: %+v, %v", f, err)
	}
	checkAdmissible(t, f)
	if f, err = Fit(flat); err != nil || f.Slope != 0 || math.Abs(f.Base-70) > 1e-6 || f.Limit != 20 {
		t.Errorf("flat: %+v, %v", f, err)
	}
	if f, err = Fit(line); err != nil || f.Why == "" || len(f.Points) != 2 || math.Abs(f.Points[1].Time-1100) > 1e-6 {
		t.Errorf("a line: %+v, %v", f, err)
	}
	for _, c := range []struct {
		pairs []Measured
		want  string
	}{
		{nil, "needs 3"},
		{[]Measured{{1, 2}, {1, 3}, {2, 3}}, "2 different loads"},
		{[]Measured{{1, 2}, {-1, 3}, {2, 3}}, "pair 2"},
		{[]Measured{{1, 2}, {3, 3}, {2, 0}}, "pair 3"},
		{[]Measured{{1, 2}, {3, math.Inf(1)}, {2, 1}}, "pair 2"},
	} {
		if _, err := Fit(c.pairs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.pairs, err, c.want)
		}
	}
}

// The regression on knots is the best of all that are convex: its residuals
// leave nothing to gain along any of its directions.
func TestLeastSquaresIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 15).Draw(t, "m"), rapid.IntRange(1, 8).Draw(t, "n")
		rows, want := make([][]float64, m), make([]float64, m)
		for i := range rows {
			want[i] = rapid.Float64Range(-5, 5).Draw(t, "want")
			for range n {
				rows[i] = append(rows[i], rapid.Float64Range(-3, 3).Draw(t, "row"))
			}
		}
		x := leastSquares(rows, want)
		for j := range n {
			push := 0.0
			for i, r := range rows {
				residual := want[i]
				for k := range x {
					residual -= r[k] * x[k]
				}
				push += r[j] * residual
			}
			if x[j] < 0 || push > 1e-6 || x[j] > 1e-9 && math.Abs(push) > 1e-6 {
				t.Fatalf("x %v, column %d: push %v", x, j, push)
			}
		}
	})
}
