package experiments

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// tabled is engines with a published table of given weights: the gateway's own
// types, without the parts that would watch engines or compute weights.
type tabled struct {
	engines []*engine.Engine
	tables  *route.Published
	model   *route.Model
	counter *route.Component
}

const tabledModel = "m"

var classKey = route.ClassKey{Model: tabledModel}

func newTabled(n int) *tabled {
	f := &tabled{tables: route.NewPublished("here"), counter: route.NewComponent("all", 0), model: &route.Model{Name: tabledModel, Unlimited: true}}
	for i := range n {
		e := engine.New(engine.Config{Name: fmt.Sprintf("e%03d", i), URL: "http://127.0.0.1:1", Models: []string{tabledModel}, MaxInFlight: 1 << 20}, engine.NewLive(uint16(i)))
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
		f.engines = append(f.engines, e)
	}
	f.model.Engines = f.engines
	return f
}

// publish makes the next table of the weights, as a control cycle does: slots
// move from the last table's as little as the weights need.
func (f *tabled) publish(weights []float64, now int64) *route.Pool {
	last := f.tables.Load()
	cands := make([]route.Candidate, len(f.engines))
	for i, e := range f.engines {
		cands[i] = route.Candidate{Engine: e, Live: e.Live, Weight: weights[i], Share: weights[i], Cap: e.Cap()}
	}
	var before *route.Pool
	if was := last.Classes[classKey]; was != nil {
		before = was.Pool
	}
	pool := route.NewPool(cands, f.counter, before, now)
	f.tables.Publish(&route.Table{Version: last.Version + 1, Built: time.Unix(now, 0), Source: last.Source, Wants: last.Wants, Ledger: last.Ledger,
		Engines: f.engines, Models: map[string]*route.Model{tabledModel: f.model},
		Classes: map[route.ClassKey]*route.Class{classKey: {Pool: pool, Traffic: last.Ledger.Of(classKey, time.Unix(now, 0))}}})
	return pool
}

// class is what requests of the model resolve to.
func (f *tabled) class(s *selector.Selector, now int64) selector.Class {
	c, refusal := s.Resolve(tabledModel, selector.Need{}, time.Unix(now, 0))
	if refusal != nil {
		panic("the class of the only model has no engine")
	}
	return c
}

// drawWeights are log-normal shares.
func drawWeights(dice *rand.Rand, n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Exp(dice.NormFloat64())
	}
	return normalise(w)
}

func normalise(w []float64) []float64 {
	sum := 0.0
	for _, x := range w {
		sum += x
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// variation is the total-variation distance of two sets of shares.
func variation(a, b []float64) (tv float64) {
	for i := range a {
		tv += max(0, b[i]-a[i])
	}
	return tv
}

// sharesOf are counts as parts of one.
func sharesOf(counts []int) []float64 {
	s := make([]float64, len(counts))
	for i, n := range counts {
		s[i] = float64(n)
	}
	return normalise(s)
}
