package profile

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"penstock/balancer/problem"
	"penstock/route"
)

// brute is the chain added up state by state to 20,000 sequences, without a
// formula for anything.
func brute(s stepping, y float64) (mean, variance float64) {
	d := 1 - s.gamma*s.u*y
	logs := make([]float64, 20001)
	most := 0.0
	for n := 1; n < len(logs); n++ {
		m := float64(n)
		if s.slots > 0 {
			m = math.Min(m, math.Floor(s.slots))
		}
		logs[n] = logs[n-1] + math.Log(y) - math.Log(m*d/(s.steps()*(s.alpha+s.beta*m)))
		most = math.Max(most, logs[n])
	}
	total, first, second := 0.0, 0.0, 0.0
	for n, l := range logs {
		p := math.Exp(l - most)
		total += p
		first += float64(n) * p
		second += float64(n) * float64(n) * p
	}
	mean = first / total
	return mean, second/total - mean*mean
}

func drawStepping(t *rapid.T) stepping {
	s := stepping{alpha: rapid.Float64Range(1, 100).Draw(t, "alpha"), o: rapid.Float64Range(1, 800).Draw(t, "o"), u: rapid.Float64Range(1, 4000).Draw(t, "u")}
	s.beta = s.alpha * rapid.Float64Range(0.005, 0.2).Draw(t, "beta")
	s.gamma = s.alpha * rapid.Float64Range(0.0001, 0.02).Draw(t, "gamma")
	if rapid.Bool().Draw(t, "bounded") {
		s.slots = float64(rapid.IntRange(1, 400).Draw(t, "slots"))
	}
	return s
}

func TestOccupancy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStepping(t)
		y := s.limit() * rapid.Float64Range(0.02, 0.95).Draw(t, "rho")
		// Where a slot is never short the closed form has L where the limit has o.
		if 1-s.gamma*s.u*y <= 0 || y*s.steps()*s.beta/(1-s.gamma*s.u*y) > 0.97 || s.slots > 0 && y*s.steps()*(s.alpha/s.slots+s.beta)/(1-s.gamma*s.u*y) > 0.97 {
			t.Skip()
		}
		mean, variance := s.occupancy(y)
		wantMean, wantVariance := brute(s, y)
		if math.Abs(mean-wantMean) > 1e-6*wantMean || math.Abs(variance-wantVariance) > 1e-6*wantVariance {
			t.Fatalf("occupancy of %+v at %v: mean %v, variance %v; added up %v, %v", s, y, mean, variance, wantMean, wantVariance)
		}
	})
}

// A curve is one that a problem can have, whatever is put in.
func TestCurveIsAdmissible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speed := route.Speed{
			Step: rapid.Float64Range(0, 200).Draw(t, "step"), PerSeq: rapid.Float64Range(0, 20).Draw(t, "perSeq"),
			PerToken: rapid.Float64Range(0, 2).Draw(t, "perToken"), Slots: float64(rapid.IntRange(0, 512).Draw(t, "slots")),
			Answers: rapid.Float64Range(0, 1000).Draw(t, "answers"),
		}
		mean := Request{Prompt: rapid.Float64Range(0, 1e5).Draw(t, "prompt"), Output: rapid.Float64Range(0, 1e4).Draw(t, "output")}
		mean.Cached = mean.Prompt * rapid.Float64Range(0, 1.2).Draw(t, "cached")
		known := Known{KVTokens: rapid.SampledFrom([]float64{0, 100, 1e5}).Draw(t, "kv"), Slots: rapid.SampledFrom([]float64{0, 1, 37, 294.4}).Draw(t, "cap")}
		if rapid.Bool().Draw(t, "configured") {
			c := rapid.Float64Range(0, 100).Draw(t, "capacity")
			known.Capacity = &c
		}
		curve, capacity, calibrated := Curve(speed, mean, known)
		if calibrated != (known.Capacity != nil || speed.Answers >= Calibrating) {
			t.Fatalf("calibrated %v", calibrated)
		}
		if known.Capacity != nil && *known.Capacity < 1e-9 {
			if capacity != 0 {
				t.Fatalf("capacity %v of an engine that takes nothing", capacity)
			}
			return
		}
		for _, v := range []float64{curve.Base, curve.Slope, curve.Limit, capacity} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("curve %+v, capacity %v", curve, capacity)
			}
		}
		if !(capacity > 0) || curve.Limit < capacity || curve.Base+curve.Slope <= 0 {
			t.Fatalf("curve %+v, capacity %v", curve, capacity)
		}
	})
}

// An engine of half the speed is the same engine in slow motion.
func TestCurveScales(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speed := route.Speed{Step: 10, PerSeq: rapid.Float64Range(0.05, 2).Draw(t, "perSeq"), PerToken: rapid.Float64Range(0.001, 0.2).Draw(t, "perToken"),
			Slots: rapid.SampledFrom([]float64{0, 4, 48, 256}).Draw(t, "slots"), Answers: 100}
		mean := Request{Prompt: 1100, Cached: rapid.Float64Range(0, 1099).Draw(t, "cached"), Output: rapid.Float64Range(1, 1000).Draw(t, "output")}
		factor := rapid.Float64Range(0.05, 20).Draw(t, "factor")
		slow := route.Speed{Step: speed.Step * factor, PerSeq: speed.PerSeq * factor, PerToken: speed.PerToken * factor, Slots: speed.Slots, Answers: 100}
		a, capacity, _ := Curve(speed, mean, Known{})
		b, slower, _ := Curve(slow, mean, Known{})
		for _, pair := range [][2]float64{{capacity, slower * factor}, {a.Limit, b.Limit * factor}, {a.Zero() * factor, b.Zero()}, {a.Slope * factor, b.Slope}} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*(pair[0]+1e-9) {
				t.Fatalf("%+v and %+v: %+v, %v against %+v, %v", speed, slow, a, capacity, b, slower)
			}
		}
	})
}

// More slots, faster steps and shorter prompts never lower what an engine carries.
func TestCurveIsMonotone(t *testing.T) {
	base := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 100}
	mean := Request{Prompt: 1100, Cached: 894, Output: 100}
	_, capacity, _ := Curve(base, mean, Known{})
	for name, change := range map[string]func(*route.Speed, *Request){
		"slots":   func(s *route.Speed, _ *Request) { s.Slots = 40 },
		"step":    func(s *route.Speed, _ *Request) { s.Step = 11 },
		"perSeq":  func(s *route.Speed, _ *Request) { s.PerSeq = 0.4 },
		"prompts": func(_ *route.Speed, r *Request) { r.Cached = 700 },
		"answers": func(_ *route.Speed, r *Request) { r.Output = 110 },
	} {
		s, r := base, mean
		change(&s, &r)
		if _, less, _ := Curve(s, r, Known{}); less >= capacity {
			t.Errorf("%s: capacity %v, not below %v", name, less, capacity)
		}
	}
}

func TestCurveOfWhatIsTold(t *testing.T) {
	mean := Request{Prompt: 1100, Cached: 894, Output: 100}
	learned := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 500}
	forty, twenty := 40.0, 20.0

	c, capacity, calibrated := Curve(route.Speed{}, mean, Known{Profile: &problem.Latency{Slope: 50, Limit: 100}})
	if !calibrated || capacity != 95 || c.Slope != 50 || c.Limit != 100 {
		t.Errorf("a profile: %+v, %v, %v", c, capacity, calibrated)
	}
	c, capacity, _ = Curve(learned, mean, Known{Profile: &problem.Latency{Slope: 50, Limit: 100}, Capacity: &forty, Correction: 0.75})
	if capacity != 30 || c.Limit != 75 || c.Slope != 50 {
		t.Errorf("a profile, a capacity and a correction: %+v, %v", c, capacity)
	}
	_, capacity, _ = Curve(route.Speed{}, mean, Known{Profile: &problem.Latency{Points: []problem.Point{{Load: 0, Time: 1}, {Load: 7, Time: 2}}}})
	if capacity != 7 {
		t.Errorf("points: capacity %v", capacity)
	}

	// Of two engines of which only the capacity is told, twice that is twice the speed.
	a, _, _ := Curve(route.Speed{}, mean, Known{Capacity: &forty})
	b, capacity, calibrated := Curve(route.Speed{}, mean, Known{Capacity: &twenty})
	if capacity != 20 || !calibrated || math.Abs(b.Zero()/a.Zero()-2) > 1e-9 || math.Abs(a.Limit/b.Limit-2) > 1e-9 {
		t.Errorf("capacities 40 and 20: %+v and %+v, %v", a, b, capacity)
	}
	// What was learned has its own latency.
	free, carries, _ := Curve(learned, mean, Known{})
	told, capacity, _ := Curve(learned, mean, Known{Capacity: &forty})
	if capacity != 40 || told.Zero() != free.Zero() || math.Abs(told.Limit/40-free.Limit/carries) > 1e-9 {
		t.Errorf("learned and told: %+v, %v; learned %+v, %v", told, capacity, free, carries)
	}
	if _, _, calibrated := Curve(route.Speed{Step: 10, PerSeq: 1, Answers: Calibrating - 1}, mean, Known{}); calibrated {
		t.Error("a few answers calibrate")
	}
}

// TestCurveAgainstEngines compares with simulated engines of measured.md 9:
// the chain itself, and the curve that is made of it.
func TestCurveAgainstEngines(t *testing.T) {
	speed := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48, Answers: 100}
	for _, c := range []struct{ rho, chain, curve float64 }{
		{0.3, 0.02, 0.05}, {0.5, 0.02, 0.05}, {0.7, 0.03, 0.06}, {0.8, 0.05, 0.15}, {0.85, 0.12, 0.15},
	} {
		m := simulate(1, c.rho*14.66, 7, 1_500_000)
		s := stepping{alpha: speed.Step, beta: speed.PerSeq, gamma: speed.PerToken, o: m.output.value(), u: m.prompt.value() - m.cached.value(), slots: 48}
		chain := s.latency(m.rate()/1000)/m.total.value() - 1
		curve, capacity, _ := Curve(speed, Request{Prompt: m.prompt.value(), Cached: m.cached.value(), Output: m.output.value()}, Known{})
		made := (curve.Zero()+curve.Congestion(m.rate()))/m.total.value() - 1
		t.Logf("rho %.2f of %.2f/s: %.2f/s, measured %.0f ms, chain %+.1f %%, curve %+.1f %%", c.rho, capacity, m.rate(), m.total.value(), 100*chain, 100*made)
		if math.Abs(chain) > c.chain || math.Abs(made) > c.curve {
			t.Errorf("rho %.2f: chain %+.3f, curve %+.3f off", c.rho, chain, made)
		}
	}
}

func TestTypicalAndMerge(t *testing.T) {
	a := route.Speed{Step: 10, PerSeq: 0.3, PerToken: 0.05, Slots: 40, Answers: 100}
	b := route.Speed{Step: 20, PerSeq: 0.6, PerToken: 0.10, Slots: 48, Answers: 300}
	c := route.Speed{Step: 90, PerSeq: 9, PerToken: 1, Answers: 50}
	if got := Typical([]route.Speed{c, a, {}, b}); got.Step != 20 || got.PerSeq != 0.6 || got.Answers != 0 || got.Slots == 0 {
		t.Errorf("typical: %+v", got)
	}
	if got := Typical([]route.Speed{{}, {Slots: 9}}); got != (route.Speed{}) {
		t.Errorf("typical of nothing: %+v", got)
	}
	got := Merge([]route.Speed{a, b, {Slots: 50}})
	if got.Step != 17.5 || math.Abs(got.PerSeq-0.525) > 1e-12 || got.Slots != 50 || got.Answers != 400 {
		t.Errorf("merged: %+v", got)
	}
	if got := Merge(nil); got != (route.Speed{}) {
		t.Errorf("merged of nothing: %+v", got)
	}
}

func BenchmarkCurve(b *testing.B) {
	speed := route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 256, Answers: 100}
	mean := Request{Prompt: 1100, Cached: 894, Output: 100}
	b.ReportAllocs()
	for b.Loop() {
		Curve(speed, mean, Known{})
	}
}
