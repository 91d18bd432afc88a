package profile

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/route"
)

var began = time.Unix(1_700_000_000, 0)

func instant(ms float64) time.Time { return began.Add(duration(ms)) }

// lesson is a fleet whose learners are called once a second, as the control
// cycle does.
type lesson struct {
	engines []*enginetest.Batch
	rates   []float64 // requests/s
	seed    uint64
	span    float64 // ms

	sees   func(*answer) bool        // is of this gateway; nil: all are
	change func(*engine.Answer) bool // alters what is learned from, or drops it; nil: nothing
	second func(now float64)         // before learning; nil: nothing
	mute   bool                      // the engines tell no signals
	late   bool                      // their signals are those of the second before
}

const countsAll = engine.FieldRunning | engine.FieldWaiting | engine.FieldGeneratedTokens | engine.FieldPromptTokens | engine.FieldCachedTokens

func (l lesson) learn() []*Learner {
	c := &conversations{dice: rand.New(rand.NewPCG(l.seed, 3)), until: l.span, rate: l.rates, engines: l.engines}
	learners, batches, own := make([]*Learner, len(l.engines)), make([][]engine.Answer, len(l.engines)), make([]int32, len(l.engines))
	for i := range learners {
		learners[i] = new(Learner)
	}
	from := map[*answer]int32{}
	c.arrive = func(a *answer, _ float64) {
		if l.sees == nil || l.sees(a) {
			own[a.engine]++
			from[a] = own[a.engine]
		}
	}
	c.done = func(a *answer, now float64) {
		if from[a] == 0 {
			return
		}
		told := engine.Answer{
			At: instant(now), Total: duration(now - a.arrived), TTFT: duration(a.first - a.arrived),
			Prompt: int32(a.seq.Prompt), Cached: int32(a.seq.Cached), Output: int32(a.seq.Out), Counted: true,
			InFlightFrom: from[a], InFlightTo: own[a.engine],
		}
		own[a.engine]--
		delete(from, a)
		if a.seq.Out > 1 {
			told.TBOT = duration((a.last - a.first) / float64(a.seq.Out-1))
		}
		if l.change == nil || l.change(&told) {
			batches[a.engine] = append(batches[a.engine], told)
		}
	}
	before := make([]engine.Sample, len(l.engines))
	c.poll = func(now float64) {
		if l.second != nil {
			l.second(now)
		}
		for i, learner := range learners {
			b := c.engines[i]
			if !l.mute {
				told := engine.Sample{
					At: instant(now), Has: countsAll, Running: float64(b.Running()), Waiting: float64(b.Waiting()),
					GeneratedTokens: float64(b.Totals().Generated), PromptTokens: float64(b.Totals().Prompt), CachedTokens: float64(b.Totals().Cached),
				}
				if l.late {
					told, before[i] = before[i], told
				}
				learner.Sample(&told, float64(own[i]))
			}
			learner.Answers(batches[i], instant(now))
			batches[i] = batches[i][:0]
		}
	}
	c.run()
	return learners
}

var (
	truth = route.Speed{Step: 10, PerSeq: 0.35, PerToken: 0.06, Slots: 48}
	usual = Request{Prompt: 1100, Cached: 894, Output: 100}
)

// off is how far the capacity of a learned speed, with the slots of the true
// one, is from the true one.
func off(learned, right route.Speed) float64 {
	of := func(s route.Speed) float64 {
		s.Slots = right.Slots
		_, c, _ := Curve(s, usual, Known{})
		return c
	}
	return of(learned)/of(right) - 1
}

func scaled(s route.Speed, speed float64) route.Speed {
	s.Step, s.PerSeq, s.PerToken = s.Step/speed, s.PerSeq/speed, s.PerToken/speed
	return s
}

func peers(learners []*Learner) route.Speed {
	var speeds []route.Speed
	for _, l := range learners {
		speeds = append(speeds, l.Speed(route.Speed{}))
	}
	return Typical(speeds)
}

// The engines of scenario S2, after its first minute.
func TestLearnerTellsSpeedsApart(t *testing.T) {
	speeds := []float64{1, 1, 0.5, 0.25}
	for name, rates := range map[string][]float64{
		"proportional": {10.5, 10.5, 5.25, 2.625}, "equal": {7.2, 7.2, 7.2, 3.6}, "planned": {12, 12, 4.1, 0.73},
	} {
		for seed := range uint64(4) {
			var engines []*enginetest.Batch
			for _, s := range speeds {
				engines = append(engines, batchOf(s))
			}
			learners := lesson{engines: engines, rates: rates, seed: seed, span: 60_000}.learn()
			for i, l := range learners {
				s := l.Speed(peers(learners))
				wrong := off(s, scaled(truth, speeds[i]))
				allowed := 0.1
				if s.Answers < 30 {
					allowed = 0.15
				}
				t.Logf("%-12s seed %d speed %.2f: alpha %5.2f beta %.3f gamma %.4f (x speed), slots %v, answers %.0f: capacity %+.1f %%", name, seed, speeds[i],
					s.Step*speeds[i], s.PerSeq*speeds[i], s.PerToken*speeds[i], s.Slots, s.Answers, 100*wrong)
				if math.Abs(wrong) > allowed {
					t.Errorf("%s, seed %d, speed %v: capacity is %+.1f %% off", name, seed, speeds[i], 100*wrong)
				}
			}
		}
	}
}

// One engine under what else can happen.
func TestLearnerUnderTrouble(t *testing.T) {
	few := route.Speed{Step: 10, PerSeq: 1.5, PerToken: 0.2, Slots: 16}
	many := route.Speed{Step: 30, PerSeq: 0.25, PerToken: 0.01, Slots: 256}
	for _, c := range []struct {
		name    string
		speed   route.Speed
		rate    float64
		within  float64
		prepare func(*lesson)
	}{
		{"as it should be", truth, 8, 0.06, func(*lesson) {}},
		{"little load", truth, 1, 0.2, func(*lesson) {}},
		{"much load", truth, 12.5, 0.06, func(*lesson) {}},
		{"overload", truth, 18, 0.15, func(*lesson) {}},
		{"another shape: few slots", few, 2, 0.1, func(*lesson) {}},
		{"another shape: many slots", many, 12, 0.1, func(*lesson) {}},
		{"no signals", truth, 8, 0.06, func(l *lesson) { l.mute = true }},
		{"late signals", truth, 8, 0.06, func(l *lesson) { l.late = true }},
		{"late signals, little load", truth, 2, 0.12, func(l *lesson) { l.late = true }},
		{"no streams", truth, 8, 0.1, func(l *lesson) {
			l.change = func(a *engine.Answer) bool { a.TTFT, a.TBOT = 0, 0; return true }
		}},
		{"half of them no streams", truth, 8, 0.1, func(l *lesson) {
			n := 0
			l.change = func(a *engine.Answer) bool {
				if n++; n%2 == 0 {
					a.TTFT, a.TBOT = 0, 0
				}
				return true
			}
		}},
		{"half of the load is another gateway's", truth, 10, 0.15, func(l *lesson) {
			l.sees = func(a *answer) bool { return a.seq.Chain[0]%2 == 0 }
		}},
		{"slow readers", truth, 8, 0.2, func(l *lesson) {
			n := 0
			l.change = func(a *engine.Answer) bool {
				if n++; n%12 == 0 {
					a.Total, a.TBOT = a.TTFT+3*(a.Total-a.TTFT), 3*a.TBOT
				}
				return true
			}
		}},
		{"answers get lost", truth, 8, 0.15, func(l *lesson) {
			n := 0
			l.change = func(*engine.Answer) bool { n++; return n%4 != 0 }
		}},
		{"clients leave early", truth, 8, 0.1, func(l *lesson) {
			n := 0
			l.change = func(a *engine.Answer) bool {
				if n++; n%4 == 0 {
					a.How, a.Counted = engine.EndedElse, false
				}
				return true
			}
		}},
		{"signals only", truth, 8, 0.15, func(l *lesson) {
			l.change = func(*engine.Answer) bool { return false }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(3) {
				blocks := 8192
				if c.speed.Slots > 100 {
					blocks *= 8
				}
				l := lesson{engines: []*enginetest.Batch{batchWith(c.speed, blocks)}, rates: []float64{c.rate}, seed: seed, span: 60_000}
				c.prepare(&l)
				s := l.learn()[0].Speed(route.Speed{})
				wrong := off(s, c.speed)
				t.Logf("seed %d: alpha %.2f beta %.3f gamma %.4f, slots %v, answers %.0f: capacity %+.1f %%", seed, s.Step, s.PerSeq, s.PerToken, s.Slots, s.Answers, 100*wrong)
				if math.Abs(wrong) > c.within {
					t.Errorf("seed %d: capacity is %+.1f %% off, want within %.0f %%", seed, 100*wrong, 100*c.within)
				}
			}
		})
	}
}

// An engine that becomes half as fast is known as that a minute later, and one
// that recovers too.
func TestLearnerFollowsAChange(t *testing.T) {
	for _, c := range []struct{ before, after float64 }{{1, 0.5}, {0.5, 1}, {1, 0.8}} {
		b := batchOf(1)
		setSpeed(b, scaled(truth, c.before))
		l := lesson{engines: []*enginetest.Batch{b}, rates: []float64{5}, span: 240_000, second: func(now float64) {
			if now == 180_000 {
				setSpeed(b, scaled(truth, c.after))
			}
		}}
		s := l.learn()[0].Speed(route.Speed{})
		wrong := off(s, scaled(truth, c.after))
		t.Logf("from speed %v to %v: %+v, %+.1f %% off", c.before, c.after, s, 100*wrong)
		if math.Abs(wrong) > 0.1 {
			t.Errorf("from speed %v to %v: %+v is %+.1f %% off after a minute", c.before, c.after, s, 100*wrong)
		}
	}
}

// A few answers of an engine with little to do are enough for its pace.
func TestLearnerOfFewAnswers(t *testing.T) {
	for seed := range uint64(5) {
		n := 0
		l := lesson{engines: []*enginetest.Batch{batchOf(0.25)}, rates: []float64{2}, seed: seed, span: 30_000}
		l.change = func(*engine.Answer) bool { n++; return n <= 5 }
		s := l.learn()[0].Speed(route.Speed{Step: 11, PerSeq: 0.4, PerToken: 0.05, Answers: 400})
		if wrong := off(s, scaled(truth, 0.25)); math.Abs(wrong) > 0.3 || s.Answers > Calibrating {
			t.Errorf("seed %d: %+v is %+.1f %% off", seed, s, 100*wrong)
		}
	}
}

func TestLearnerSlots(t *testing.T) {
	for _, c := range []struct{ rate, want float64 }{{20, 48}, {6, 0}, {10.5, 0}} {
		l := lesson{engines: []*enginetest.Batch{batchOf(1)}, rates: []float64{c.rate}, span: 60_000}
		if got := l.learn()[0].Speed(route.Speed{}).Slots; got != c.want {
			t.Errorf("at %v/s: %v slots, want %v", c.rate, got, c.want)
		}
	}
	var l Learner
	l.Sample(&engine.Sample{At: began, Has: engine.FieldSlots, Slots: 4}, 0)
	if got := l.Speed(route.Speed{}).Slots; got != 4 {
		t.Errorf("told 4 slots: %v", got)
	}
}

// Whatever an engine claims, what is learned can be computed with.
func TestLearnerBelievesNothingImpossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Learner
		now := began
		for range rapid.IntRange(1, 30).Draw(t, "cycles") {
			var batch []engine.Answer
			for range rapid.IntRange(0, 5).Draw(t, "answers") {
				now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e10).Draw(t, "passed")))
				any32 := func(name string) int32 { return rapid.Int32Range(-2, math.MaxInt32).Draw(t, name) }
				span := func(name string) time.Duration { return time.Duration(rapid.Int64Range(-5, 1e12).Draw(t, name)) }
				batch = append(batch, engine.Answer{At: now, Total: span("total"), TTFT: span("ttft"), TBOT: span("tbot"), Prompt: any32("prompt"), Cached: any32("cached"),
					Output: any32("output"), Counted: rapid.Bool().Draw(t, "counted"), InFlightFrom: any32("from"), InFlightTo: any32("to"),
					How: engine.Ended(rapid.IntRange(0, 3).Draw(t, "how"))})
			}
			l.Answers(batch, now)
			l.Sample(&engine.Sample{At: now, Has: countsAll, Running: rapid.Float64Range(0, 1e9).Draw(t, "running"), Waiting: rapid.Float64Range(0, 1e9).Draw(t, "waiting"),
				GeneratedTokens: rapid.Float64Range(0, 1e15).Draw(t, "generated")}, rapid.Float64Range(0, 1e4).Draw(t, "own"))
			s := l.Speed(route.Speed{})
			for _, v := range []float64{s.Step, s.PerSeq, s.PerToken, s.Slots, s.Answers} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("%+v", s)
				}
			}
			if curve, capacity, _ := Curve(s, usual, Known{}); !(capacity > 0) || curve.Limit < capacity || math.IsInf(capacity, 0) {
				t.Fatalf("%+v: %+v, %v", s, curve, capacity)
			}
		}
	})
}

func TestCorrection(t *testing.T) {
	var c Correction
	if c.Factor() != 1 {
		t.Errorf("before anything: %v", c.Factor())
	}
	c.Observe(0.5, 0.9, time.Hour)
	c.Observe(math.NaN(), 0.5, time.Hour)
	c.Observe(0, 0.5, time.Hour)
	c.Observe(math.Inf(1), 0.5, time.Hour)
	if c.Factor() != 1 {
		t.Errorf("near saturation, or of nothing: %v", c.Factor())
	}
	c.Observe(0.5, 0.5, time.Second)
	if f := c.Factor(); f >= 1 || f < 0.99 {
		t.Errorf("after a second: %v", f)
	}
	for range 3600 {
		c.Observe(0.5, 0.5, time.Second)
	}
	if f := c.Factor(); math.Abs(f-0.75) > 1e-6 {
		t.Errorf("after an hour at half: %v", f)
	}
	for range 3600 {
		c.Observe(1.1, 0.5, time.Second)
	}
	if f := c.Factor(); math.Abs(f-1.1) > 1e-6 {
		t.Errorf("after an hour at a tenth more: %v", f)
	}
}

// The cost of a second of an engine at 12 answers/s with 30 at once.
func BenchmarkLearner(b *testing.B) {
	var l Learner
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		now := began.Add(time.Duration(n) * time.Second)
		var batch [12]engine.Answer
		for i := range batch {
			batch[i] = engine.Answer{At: now.Add(time.Duration(i) * 80 * time.Millisecond), Total: 2500 * time.Millisecond, TTFT: 50 * time.Millisecond, TBOT: time.Duration(17+i%3) * time.Millisecond,
				Prompt: 1100, Cached: 900, Output: 100, Counted: true, InFlightFrom: 30, InFlightTo: 30}
		}
		l.Answers(batch[:], now.Add(time.Second))
		l.Speed(route.Speed{})
	}
}
