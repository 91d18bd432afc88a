package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/route"
)

// doubted is a speed whose parts may each be off by a share of themselves.
func doubted(s route.Speed, off float64) route.Speed {
	s.Doubt = [6]float64{0: off * off * s.Step * s.Step, 3: off * off * s.PerSeq * s.PerSeq, 5: off * off * s.PerToken * s.PerToken}
	if s.Answers == 0 {
		s.Answers = 100
	}
	return s
}

// guessed is a speed as it may be learned with that doubt.
func guessed(dice *rand.Rand, s route.Speed, off float64) route.Speed {
	g := s
	g.Step *= math.Exp(off * dice.NormFloat64())
	g.PerSeq *= math.Exp(off * dice.NormFloat64())
	g.PerToken *= math.Exp(off * dice.NormFloat64())
	return doubted(g, off)
}

func speedsOf(t *rapid.T) []route.Speed {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) route.Speed {
		s := scaled(truth, rapid.SampledFrom([]float64{1, 1.1, 1.3, 2, 4, 30}).Draw(t, "speed")*(1+0.01*rapid.Float64Range(-1, 1).Draw(t, "little")))
		s.Slots = rapid.SampledFrom([]float64{0, 0, 40, 44, 48, 256}).Draw(t, "slots")
		s.Held = rapid.SampledFrom([]float64{0, 3, 60}).Draw(t, "held")
		s.Answers = rapid.SampledFrom([]float64{0, 1, 20, 500}).Draw(t, "answers")
		if rapid.IntRange(0, 20).Draw(t, "odd") == 0 {
			s.PerSeq, s.PerToken = 1e-12, 1e12
		}
		if s.Answers == 0 {
			return s
		}
		return doubted(s, rapid.SampledFrom([]float64{0, 0.02, 0.1, 0.5, 10, 1e12}).Draw(t, "off"))
	}), 0, 40).Draw(t, "speeds")
}

// What engines are taken for lies between what was learned of them, does not
// depend on their order or on the unit of time, and nobody's slots get fewer.
func TestAlikeIsAMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		speeds := speedsOf(t)
		out := Alike(speeds, usual)
		lowest, highest := math.Inf(1), 0.0
		for _, s := range speeds {
			if s.Answers > 0 {
				lowest, highest = min(lowest, s.Step), max(highest, s.Step)
			}
		}
		slower := slices.Clone(speeds)
		for i := range slower {
			d := slower[i].Doubt
			slower[i] = scaled(slower[i], 1.0/8)
			for k := range d {
				slower[i].Doubt[k] = 64 * d[k]
			}
		}
		slower = Alike(slower, usual)
		for i, s := range out {
			switch {
			case speeds[i].Answers == 0:
				if s != speeds[i] {
					t.Fatalf("nothing is known of %d: %+v", i, s)
				}
			case !(s.Step >= lowest*(1-1e-9) && s.Step <= highest*(1+1e-9)) || s.Slots < speeds[i].Slots || s.Answers != speeds[i].Answers:
				t.Fatalf("%d was %+v and is %+v", i, speeds[i], s)
			case s.Slots > 0 && speeds[i].Slots == 0 && s.Slots < s.Held:
				t.Fatalf("%d had %v at work and is given %v slots", i, s.Held, s.Slots)
			case math.Abs(slower[i].Step-8*s.Step) > 1e-6*s.Step:
				t.Fatalf("in another unit %v is %v", s.Step, slower[i].Step)
			}
		}
	})
}

// Equals have one speed, those of another make keep theirs, and little known
// ones are taken for what is well known and could be theirs.
func TestAlikeTellsMakesApart(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 7))
	for range 200 {
		var speeds []route.Speed
		for _, v := range []float64{1, 1, 1, 0.5, 0.25} {
			speeds = append(speeds, guessed(dice, scaled(truth, v), 0.03))
		}
		speeds = append(speeds, guessed(dice, truth, 0.15))
		out := Alike(speeds, usual)
		if out[0].Step != out[1].Step || out[0].Step != out[2].Step || out[0].PerSeq != out[1].PerSeq || math.Abs(out[5].Step/out[0].Step-1) > 0.35 {
			t.Fatalf("equals: %+v", out)
		}
		for _, i := range []int{3, 4} {
			if math.Abs(out[i].Step/speeds[i].Step-1) > 1e-9 || math.Abs(out[i].PerToken/speeds[i].PerToken-1) > 1e-9 {
				t.Fatalf("%+v became %+v", speeds[i], out[i])
			}
		}
	}
}

// Engines of a fleet are nearer to their true speeds together than each for
// itself: far nearer where they are equal, and hardly less near where they are
// not, whatever the difference is.
func TestAlikeIsNearer(t *testing.T) {
	dice := rand.New(rand.NewPCG(2, 7))
	idle := func(s route.Speed) float64 { return math.Log(100*(s.Step+s.PerSeq) + 206*s.PerToken) }
	for _, c := range []struct{ other, atMost float64 }{{1, 0.5}, {1.1, 0.8}, {1.3, 1.15}, {1.6, 0.8}, {2, 0.7}, {4, 0.65}} {
		alone, together := 0.0, 0.0
		for range 2000 {
			var right, speeds []route.Speed
			for i := range 6 {
				s := truth
				if i%2 == 1 {
					s = scaled(truth, 1/c.other)
				}
				right, speeds = append(right, s), append(speeds, guessed(dice, s, 0.1))
			}
			for i, s := range Alike(speeds, usual) {
				alone += math.Pow(idle(speeds[i])-idle(right[i]), 2)
				together += math.Pow(idle(s)-idle(right[i]), 2)
			}
		}
		ratio := math.Sqrt(together / alone)
		t.Logf("half of them slower by %v: %.2f of the error", c.other, ratio)
		if ratio > c.atMost {
			t.Errorf("half of them slower by %v: %.2f of the error, want at most %v", c.other, ratio, c.atMost)
		}
	}
}

// A thousand engines take no time to compare.
func TestAlikeManyEngines(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 7))
	var speeds []route.Speed
	for i := range 5000 {
		speeds = append(speeds, guessed(dice, scaled(truth, []float64{1, 2.5, 7}[i%3]), 0.1))
	}
	kins := make([]*kin, len(speeds))
	for i := range speeds {
		kins[i] = kinOf(i, &speeds[i], usual)
	}
	if n := len(cells(kins)); n > mostCells {
		t.Errorf("%d are compared", n)
	}
	first := Alike(speeds, usual)
	for i := range 3 {
		if first[i].Step != first[i+3].Step {
			t.Errorf("equals at %v and %v", first[i].Step, first[i+3].Step)
		}
	}
}

// Slots that nobody has seen are those of peers of that speed.
func TestAlikeSlots(t *testing.T) {
	speeds := []route.Speed{doubted(truth, 0.02), doubted(truth, 0.02), doubted(truth, 0.02), doubted(scaled(truth, 0.25), 0.02), doubted(truth, 0.02)}
	for i, slots := range []float64{48, 46, 0, 16, 0} {
		speeds[i].Slots = slots
	}
	speeds[4].Held = 60
	for i, s := range Alike(speeds, usual) {
		if want := []float64{48, 48, 48, 16, 60}[i]; s.Slots != want {
			t.Errorf("engine %d has %v slots, want %v", i, s.Slots, want)
		}
	}
}

// What a learner says of its own doubt covers how far it is off, for engines
// whose pace wanders too, and grows while nothing comes.
func TestDoubtCoversTheError(t *testing.T) {
	for wander, least := range map[float64]float64{0: 0.9, 0.15: 0.75} {
		within, all := 0, 0
		for seed := range uint64(12) {
			dice := rand.New(rand.NewPCG(seed, 11))
			b, off := batchOf(1), 0.0
			l := lesson{engines: []*enginetest.Batch{b}, rates: []float64{4}, seed: seed, span: 120_000}
			l.second = func(float64) {
				off = 0.9*off + wander*math.Sqrt(1-0.81)*dice.NormFloat64()
				setSpeed(b, scaled(truth, math.Exp(off)))
			}
			learner := l.learn()[0]
			s := learner.Speed(route.Speed{})
			k := kinOf(0, &s, usual)
			right := kinOf(0, &truth, usual)
			for f := range figures {
				all++
				if math.Abs(k.log[f]-right.log[f])*math.Sqrt(k.sure[f]) < 2 {
					within++
				}
			}
			learner.Answers([]engine.Answer(nil), learner.now.Add(20*time.Minute))
			if s = learner.Speed(route.Speed{}); kinOf(0, &s, usual).sure[0] > 1/(0.4*0.4) {
				t.Errorf("after 20 minutes of nothing the latency is certain to %v", 1/math.Sqrt(kinOf(0, &s, usual).sure[0]))
			}
		}
		t.Logf("pace wanders by %v: %d of %d within two standard errors", wander, within, all)
		if float64(within) < least*float64(all) {
			t.Errorf("pace wanders by %v: %d of %d within two standard errors", wander, within, all)
		}
	}
}

func BenchmarkAlike(b *testing.B) {
	for _, n := range []int{4, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dice := rand.New(rand.NewPCG(5, 7))
			var speeds []route.Speed
			for i := range n {
				speeds = append(speeds, guessed(dice, scaled(truth, []float64{1, 2, 5}[i%3]), 0.1))
			}
			b.ReportAllocs()
			for b.Loop() {
				Alike(speeds, usual)
			}
		})
	}
}
