package balancer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/engine/enginetest"
	"penstock/route"
)

// quiet is a fleet under little load on virtual time, planned once a second by
// what has been learned of it, as a gateway does that was told nothing.
type quiet struct {
	speeds []float64 // of the engines of measured.md 9
	rate   float64   // requests/s in all
	wander float64   // standard deviation of an engine's pace around its own, relative
	keeps  float64   // of which so much is left after a second

	dice     *rand.Rand
	now      float64 // ms
	engines  []*enginetest.Batch
	free     []float64 // ms: when the engine's step is over
	steps    []enginetest.Step
	off      []float64 // an engine's pace now, log
	open     map[*enginetest.Seq]*request
	flight   []int32
	learners []*profile.Learner
	came     [][]engine.Answer
	in       *Inputs
}

type request struct {
	engine      int
	sent, first float64
	from        int32
}

func (q *quiet) ms(v float64) time.Duration { return time.Duration(v * 1e6) }

// begin sets the fleet up with names a, b, c...
func (q *quiet) begin(t *testing.T, seed uint64) {
	q.dice = rand.New(rand.NewPCG(seed, 0xa11ce))
	q.open = make(map[*enginetest.Seq]*request)
	models := make(map[string][]string)
	for i := range q.speeds {
		models[string(rune('a'+i))] = []string{"m"}
		q.engines = append(q.engines, enginetest.NewBatch(enginetest.Model{Slots: 48, Blocks: 8192, ChunkTokens: 512}))
		q.learners = append(q.learners, new(profile.Learner))
		q.off = append(q.off, q.wander*q.dice.NormFloat64())
	}
	q.free, q.steps = make([]float64, len(q.speeds)), make([]enginetest.Step, len(q.speeds))
	q.flight, q.came = make([]int32, len(q.speeds)), make([][]engine.Answer, len(q.speeds))
	q.in = inputsOf(t, models)
}

// pace is the factor on all times of engine i.
func (q *quiet) pace() {
	for i, b := range q.engines {
		q.off[i] = q.keeps*q.off[i] + q.wander*math.Sqrt(1-q.keeps*q.keeps)*q.dice.NormFloat64()
		f := math.Exp(q.off[i]) / q.speeds[i]
		b.Base, b.PrefillBase, b.PerSeq, b.PerPrefill = q.ms(10*f), q.ms(10*f), q.ms(0.35*f), q.ms(0.06*f)
	}
}

// second lets one pass under weights; nil: evenly.
func (q *quiet) second(weights []float64) {
	q.pace()
	next := q.now + q.dice.ExpFloat64()*1000/q.rate
	for end := q.now + 1000; q.now < end; {
		at, engine := min(next, end), -1
		for i := range q.engines {
			if len(q.steps[i].Events)+int(q.steps[i].Elapsed) > 0 && q.free[i] <= at {
				at, engine = q.free[i], i
			}
		}
		q.now = at
		switch {
		case engine >= 0:
			q.stepped(engine)
		case at == next && at < end:
			q.send(q.draw(weights))
			next = q.now + q.dice.ExpFloat64()*1000/q.rate
		}
	}
}

func (q *quiet) draw(weights []float64) int {
	r := q.dice.Float64()
	for i := range weights {
		if r -= weights[i]; r < 0 {
			return i
		}
	}
	return q.dice.IntN(len(q.engines))
}

func (q *quiet) send(i int) {
	q.flight[i]++
	s := &enginetest.Seq{Prompt: 150 + q.dice.IntN(300), Out: 20 + int(q.dice.ExpFloat64()*80)}
	q.open[s] = &request{engine: i, sent: q.now, from: q.flight[i]}
	for range (s.Prompt + s.Out) / enginetest.BlockTokens {
		s.Chain = append(s.Chain, q.dice.Uint64())
	}
	if err := q.engines[i].Add(s); err != nil {
		panic(err)
	}
	if q.steps[i].Elapsed == 0 {
		q.step(i)
	}
}

func (q *quiet) step(i int) {
	q.steps[i] = enginetest.Step{}
	if q.engines[i].Busy() {
		q.steps[i] = q.engines[i].Step()
		q.steps[i].Events = append([]enginetest.Event(nil), q.steps[i].Events...)
		q.free[i] = q.now + float64(q.steps[i].Elapsed)/1e6
	}
}

func (q *quiet) stepped(i int) {
	for _, e := range q.steps[i].Events {
		r := q.open[e.Seq]
		if e.Seq.Generated == 1 && r.first == 0 {
			r.first = q.now
		}
		if !e.Finished {
			continue
		}
		q.came[i] = append(q.came[i], engine.Answer{At: q.at(), Total: q.ms(q.now - r.sent), TTFT: q.ms(r.first - r.sent),
			TBOT: q.ms((q.now - r.first) / float64(e.Seq.Out-1)), Prompt: int32(e.Seq.Prompt), Output: int32(e.Seq.Out), Counted: true,
			InFlightFrom: r.from, InFlightTo: q.flight[i]})
		q.flight[i]--
		delete(q.open, e.Seq)
	}
	q.step(i)
}

func (q *quiet) at() time.Time { return time.Unix(1_000_000, 0).Add(q.ms(q.now)) }

// plan is one control cycle.
func (q *quiet) plan() *Situation {
	d := told("g", "here", 1, route.DemandRow{Class: route.ClassKey{Model: "m"}, Priority: 1, Rate: q.rate, Prompt: 300, Output: 100})
	var known []route.Speed
	for i, l := range q.learners {
		l.Answers(q.came[i], q.at())
		q.came[i] = nil
		known = append(known, l.Speed(route.Speed{}))
	}
	for i, l := range q.learners {
		d.Engines = append(d.Engines, route.Sighting{Engine: string(rune('a' + i)), RTT: 1, Factor: 1, Speed: l.Speed(profile.Typical(known))})
	}
	d.At = q.at()
	q.in.At, q.in.Demands = q.at(), []*route.Demand{d}
	s := Assemble(q.in)
	q.in.Last = decideOptimal(s, solveOnce).Plan
	return s
}

func (q *quiet) weights() []float64 {
	w := make([]float64, len(q.speeds))
	for i := range w {
		w[i] = weightOf(q.in.Last, 0, string(rune('a'+i)))
	}
	return w
}

// cost is the mean latency that weights come to at the engines' true speeds,
// over that of the best weights.
func (q *quiet) cost(weights []float64) float64 {
	of := func(w float64) float64 {
		sum := 0.0
		for i, share := range []float64{w, 1 - w} {
			v := q.speeds[i]
			curve, _, _ := profile.Curve(route.Speed{Step: 10 / v, PerSeq: 0.35 / v, PerToken: 0.06 / v, Slots: 48, Answers: 1000},
				profile.Request{Prompt: 300, Output: 100}, profile.Known{})
			sum += share * (curve.Zero() + curve.Congestion(share*q.rate))
		}
		return sum
	}
	best := math.Inf(1)
	for w := range 101 {
		best = min(best, of(float64(w)/100))
	}
	return of(weights[0]) / best
}

// littleLoads are ways in which engines differ by chance: their pace wanders.
var littleLoads = []struct {
	name   string
	strays int // s of 300 in which equals may have other shares
	quiet
}{
	{"steady", 0, quiet{rate: 1}},
	{"noise of a second", 0, quiet{rate: 1, wander: 0.15}},
	{"noise of ten seconds", 0, quiet{rate: 1, wander: 0.15, keeps: 0.9}},
	{"noise of a minute", 120, quiet{rate: 1, wander: 0.15, keeps: 0.983}}, // then one is faster for that time
	{"more load", 0, quiet{rate: 5, wander: 0.15, keeps: 0.9}},
}

// Of two equal engines neither gets more than 60 % of a little load because it
// seems a little faster.
func TestEqualEnginesShareLittleLoad(t *testing.T) {
	for _, c := range littleLoads {
		for seed := range uint64(6) {
			q := c.quiet
			q.speeds = []float64{1, 1}
			q.begin(t, seed)
			var weights []float64
			strays, mean := 0, 0.0
			for range 300 {
				q.second(weights)
				q.plan()
				if weights = q.weights(); weights[0] < 0.4 || weights[0] > 0.6 {
					strays++
				}
				mean += q.cost(weights) / 300
			}
			if strays > c.strays || mean > 1.01 {
				t.Errorf("%s, seed %d: other weights for %d s, %.3f of the best latency", c.name, seed, strays, mean)
			}
		}
	}
}

// Of two engines of which one is twice as fast that one gets a little load,
// and most of more, within half a minute. What doubt costs is bounded.
func TestUnequalEnginesSplitLittleLoad(t *testing.T) {
	for _, c := range littleLoads {
		for seed := range uint64(6) {
			q := c.quiet
			q.speeds = []float64{1, 0.5}
			q.begin(t, seed)
			var weights []float64
			mean := 0.0
			for second := range 300 {
				q.second(weights)
				q.plan()
				weights = q.weights()
				if second >= 30 {
					mean += q.cost(weights) / 270
				}
			}
			t.Logf("%-21s seed %d: %.3f of the best latency, weights %.2f", c.name, seed, mean, weights)
			if mean > 1.05 {
				t.Errorf("%s, seed %d: %.3f of the best latency", c.name, seed, mean)
			}
		}
	}
}

// An engine that gets nothing for being slow is tried again within half an
// hour: then it has its share, if it is slow no more, and nothing if it is.
func TestSlowEngineIsTriedAgain(t *testing.T) {
	for _, later := range []float64{0.5, 1} {
		q := quiet{rate: 1, speeds: []float64{1, 0.5}}
		q.begin(t, 1)
		var weights []float64
		tried := 0
		for second := range 40 * 60 {
			if second == 120 {
				q.speeds[1] = later
			}
			q.second(weights)
			q.plan()
			weights = q.weights()
			if weights[1] > 0.05 && second > 120 {
				tried++
			}
			if second == 100 && weights[1] > 0 {
				t.Errorf("the slow engine has %.2f", weights[1])
			}
		}
		t.Logf("speed %v later: with a share for %d s, at last %.2f", later, tried, weights)
		if tried == 0 || later == 1 && math.Abs(weights[1]-0.5) > 0.1 || later < 1 && tried > 120 {
			t.Errorf("speed %v later: with a share for %d s, at last %.2f", later, tried, weights)
		}
	}
}

// Engines of speeds 1, 1, 0.5 and 0.25 that nobody has told apart have their
// shares after a minute, and the slowest has not drowned before.
func TestUnequalFleetIsLearned(t *testing.T) {
	for _, rate := range []float64{26, 31} { // of about 37
		for seed := range uint64(6) {
			q := quiet{rate: rate, speeds: []float64{1, 1, 0.5, 0.25}}
			q.begin(t, seed)
			var weights []float64
			for second := range 60 {
				q.second(weights)
				q.plan()
				weights = q.weights()
				if second == 20 && q.flight[3] > 110 {
					t.Errorf("rate %v, seed %d: the slowest engine has %d in flight after 20 s", rate, seed, q.flight[3])
				}
			}
			for i, right := range []float64{0.41, 0.41, 0.15, 0.03} {
				if math.Abs(weights[i]-right) > 0.03 {
					t.Errorf("rate %v, seed %d: the weights are %.3f", rate, seed, weights)
					break
				}
			}
		}
	}
}
