package balancer

import (
	"cmp"
	"log/slog"
	"math"
	"slices"
	"time"

	"penstock/engine"
	"penstock/route"
)

// Observer turns what the request path has counted into this gateway's demand.
// One goroutine owns it, the control cycle's; the zero value but for the
// exported fields is ready.
type Observer struct {
	Gateway  string
	Replicas int // of this gateway, itself included; 0 counts as 1

	Log *slog.Logger // nil: silent

	at         time.Time // of the last look
	sharedTill time.Time
	classes    map[route.ClassKey]*classFlow
	engines    map[*engine.Live]*sighted
	seen       []engine.Answer // of the engine at hand
	shown      sightings
}

// classFlow is what was seen of one class.
type classFlow struct {
	traffic    *route.Traffic // that the counts below are of
	priorities [route.Priorities]priorityFlow
	asks       asks
	answers    lengths
}

type priorityFlow struct {
	counts  route.TrafficCounts // at the last look
	offered flow
	retries ewma
	answers lengths
	active  bool // requests came lately: the rates run
	known   bool // requests have come
}

// idleRate is the rate below which a class counts as without demand, in
// requests/s: one request in an hour and its echo.
const idleRate = 1e-4

// Demand looks at the counters and tells what is asked for here, and what is
// seen of engines from here. others are what the gateways told last, this one
// included.
func (o *Observer) Demand(set *engine.Set, t *route.Table, others []*route.Demand, now time.Time) *route.Demand {
	if o.classes == nil {
		o.classes, o.engines = make(map[route.ClassKey]*classFlow), make(map[*engine.Live]*sighted)
	}
	dt := now.Sub(o.at)
	if o.at.IsZero() {
		dt = rateLeast
	}
	d := &route.Demand{Gateway: o.Gateway, Source: t.Source, Replicas: max(1, o.Replicas), At: now}
	d.Engines = o.lookAtEngines(set, t, others, dt, now)
	if dt > 0 {
		o.lookAtClasses(t.Ledger, dt, now)
		o.at = now
	}
	for k, c := range o.classes {
		d.Rows = c.rows(d.Rows, k, o.cachedShare(t.Models[k.Model]))
	}
	slices.SortFunc(d.Rows, func(a, b route.DemandRow) int {
		return cmp.Or(compareClasses(a.Class, b.Class), cmp.Compare(a.Priority, b.Priority))
	})
	return d
}

func (o *Observer) lookAtClasses(ledger *route.Ledger, dt time.Duration, now time.Time) {
	found := make(map[route.ClassKey]bool, len(o.classes))
	ledger.All(now, func(k route.ClassKey, t *route.Traffic) {
		found[k] = true
		c := o.classes[k]
		if c == nil {
			c = &classFlow{traffic: t}
			o.classes[k] = c
		}
		c.look(t, dt)
	})
	for k := range o.classes {
		if !found[k] {
			delete(o.classes, k)
		}
	}
}

// look takes what the counters show since the last look, dt ago. Counters of
// another Traffic begin anew.
func (c *classFlow) look(t *route.Traffic, dt time.Duration) {
	anew := t != c.traffic
	c.traffic = t
	var asked asks
	var answered lengths
	for p := range c.priorities {
		f := &c.priorities[p]
		if anew {
			f.counts = route.TrafficCounts{}
		}
		now := t.Counts(uint8(p))
		was := f.counts
		f.counts = now
		more := func(now, was uint64) float64 { return float64(now - min(was, now)) }
		offered, retries := more(now.Offered, was.Offered), more(now.Retries, was.Retries)
		f.look(offered, retries, dt)
		asked.offered += offered
		asked.prompt += more(now.Asked, was.Asked)
		asked.limited += more(now.Limited, was.Limited)
		asked.limit += more(now.Limit, was.Limit)
		came := lengths{answers: more(now.Answers, was.Answers), prompt: more(now.Prompt, was.Prompt),
			cached: more(now.Cached, was.Cached), output: more(now.Output, was.Output)}
		f.answers.add(came, dt)
		answered.answers += came.answers
		answered.prompt += came.prompt
		answered.cached += came.cached
		answered.output += came.output
	}
	c.asks.add(asked, dt)
	c.answers.add(answered, dt)
}

// look takes what came within dt. A pause so long that nothing is left of the
// rate is an end: what comes after it is a new beginning, with a rate from its
// first second and not from the pause.
func (f *priorityFlow) look(offered, retries float64, dt time.Duration) {
	if offered+retries > 0 {
		f.active, f.known = true, true
	}
	if !f.active {
		return
	}
	f.offered.add(offered, dt)
	f.retries.add(retries, dt, rateMemory)
	if f.offered.rate() < idleRate && f.retries.rate() < idleRate {
		f.active, f.offered, f.retries = false, flow{}, ewma{}
	}
}

// rows appends a row for each priority that has had requests. enginesHit is
// the share of prompt tokens that the engines say they had, NaN where they do
// not say.
func (c *classFlow) rows(rows []route.DemandRow, k route.ClassKey, enginesHit float64) []route.DemandRow {
	class := c.answers.with(c.asks.guess(), guessCounts)
	// Engines that tell no cached tokens in their answers tell 0.
	if c.answers.cached == 0 && enginesHit > 0 {
		class.cached = enginesHit * class.prompt
	}
	for p := range c.priorities {
		f := &c.priorities[p]
		if !f.known {
			continue
		}
		mean := f.answers.with(class, classCounts)
		if c.answers.cached == 0 {
			mean.cached = class.cached / class.prompt * mean.prompt
		}
		row := route.DemandRow{Class: k, Priority: uint8(p), Rate: f.offered.rate(), Retries: f.retries.rate(), Lately: f.offered.lately(),
			Prompt: mean.prompt, Cached: min(mean.cached, mean.prompt), Output: min(mean.output, c.asks.bound())}
		rows = append(rows, row)
	}
	return rows
}

// cachedShare is the share of prompt tokens that the engines of a model had
// cached, as their own counters tell; NaN where none does.
func (o *Observer) cachedShare(m *route.Model) float64 {
	if m == nil {
		return math.NaN()
	}
	cached, prompt := 0.0, 0.0
	for _, e := range m.Engines {
		if s := o.engines[e.Live]; s != nil {
			cached += s.track.cached.rate()
			prompt += s.track.prompt.rate()
		}
	}
	if !(prompt > 0) {
		return math.NaN()
	}
	return min(1, cached/prompt)
}
