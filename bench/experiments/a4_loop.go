package experiments

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/balancer"
	"penstock/balancer/solve"
	"penstock/engine"
	"penstock/route"
)

// loop is one closed loop.
type loop struct {
	*fluid
	at       time.Time
	dice     *rand.Rand
	plan     func(*balancer.Situation) *route.Plan
	gateways []gatewayEyes
	demand   float64 // requests/s of all sources
	weights  plan    // by source and engine, in use
	admitted []float64
	last     *route.Plan
	signals  [][]balancer.Signals // by second
	delay    int
	counted  bool
}

const standard = 1 // of route's priorities

// gatewayEyes is how a source's gateway comes to know its demand.
type gatewayEyes struct {
	observer *balancer.Observer
	table    *route.Table
	traffic  *route.Traffic
}

func newLoop(f *fluid, policy func(*balancer.Situation) *route.Plan, c a4Case, seed uint64) *loop {
	l := &loop{fluid: f, at: time.Unix(1_000_000, 0), dice: rand.New(rand.NewPCG(seed, 0xa4a4)), plan: policy, delay: c.delay, counted: c.counted,
		admitted: make([]float64, len(f.sources))}
	for i, source := range f.sources {
		ledger := route.NewLedger()
		l.gateways = append(l.gateways, gatewayEyes{observer: &balancer.Observer{Gateway: source},
			table: &route.Table{Source: source, Ledger: ledger}, traffic: ledger.Of(classKey, l.at)})
		l.weights = append(l.weights, make([]float64, len(f.engines)))
		l.admitted[i] = 1
	}
	return l
}

// cycle is one control cycle; before it a second has passed.
func (l *loop) cycle() {
	s := &balancer.Situation{At: l.at, Sources: l.sources, RTT: l.rtt, Last: l.last}
	l.signals = append(l.signals, l.measured())
	seen := l.signals[max(0, len(l.signals)-1-l.delay)]
	all := make([]int, len(l.engines))
	for j := range l.engines {
		all[j] = j
		e := &l.engines[j]
		s.Engines = append(s.Engines, balancer.EngineView{Name: e.name, Cluster: e.cluster, Ready: !e.out, Slots: e.slots, Capacity: e.carries() / effective,
			Curve: e.curve, Calibrated: true, Left: 1, Signals: seen[j]})
	}
	var lately [][route.LatelyWindows]route.Lately
	for i, g := range l.gateways {
		row := balancer.Row{Source: i, Class: classKey, DistanceWeight: 1, Work: 1, Candidates: all}
		row.Rate[standard] = l.demand * l.share[i]
		if l.counted {
			row.Rate[standard] = 0
			for _, d := range g.observer.Demand(&engine.Set{}, g.table, nil, l.at).Rows {
				row.Rate[standard] += d.Rate
				lately = append(lately, d.Lately)
			}
		}
		s.Rows = append(s.Rows, row)
	}
	for i, factor := 0, balancer.Surge(lately...); i < len(s.Rows); i++ {
		s.Rows[i].Rate[standard] *= factor
	}
	p := l.plan(s)
	l.last = p
	for i := range p.Rows {
		clear(l.weights[i])
		for _, w := range p.Rows[i].Weights {
			l.weights[i][slices.IndexFunc(l.engines, func(e fluidEngine) bool { return e.name == w.Engine })] = w.Weight
		}
		l.admitted[i] = 1 - p.Rows[i].Shed[standard]
	}
}

// measured is what engines show now: as much of the latency as they have.
func (l *loop) measured() []balancer.Signals {
	list := make([]balancer.Signals, len(l.engines))
	for j := range l.engines {
		e := &l.engines[j]
		t := e.latency()
		list[j] = balancer.Signals{TTFT: 0.2 * t, TBOT: 0.8 * t / 200, Utilisation: min(1, e.n/e.slots), Errors: 0, Waiting: max(0, e.n-e.slots)}
		if e.out {
			list[j] = balancer.Signals{TTFT: math.NaN(), TBOT: math.NaN(), Utilisation: math.NaN(), Errors: math.NaN(), Waiting: math.NaN()}
		}
	}
	return list
}

// flows is requests/s by source and engine now. What a table gives to an
// engine that is out goes to the others.
func (l *loop) flows() plan {
	p := make(plan, len(l.sources))
	for i := range p {
		p[i] = make([]float64, len(l.engines))
		in := 0.0
		for j, w := range l.weights[i] {
			if !l.engines[j].out {
				in += w
			}
		}
		for j, w := range l.weights[i] {
			if !l.engines[j].out && in > 0 {
				p[i][j] = l.demand * l.share[i] * l.admitted[i] * w / in
			}
		}
	}
	return p
}

// second lets a second pass and reports the mean latency of what arrived in it
// and whether an engine was offered more than it carries.
func (l *loop) second() (mean float64, overload bool) {
	flows := l.flows()
	arrivals := make([]float64, len(l.engines))
	for i := range flows {
		for j, y := range flows[i] {
			arrivals[j] += y
		}
	}
	for j := range arrivals {
		overload = overload || arrivals[j] > l.engines[j].curve.Limit
	}
	mean = l.mean(flows)
	for range a4Steps {
		for j := range l.engines {
			l.engines[j].flow(arrivals[j], 1.0/a4Steps)
		}
	}
	for i, g := range l.gateways {
		for range poisson(l.dice, l.demand*l.share[i]) {
			g.traffic.Offer(standard, 100, 0)
		}
	}
	l.at = l.at.Add(time.Second)
	return mean, overload
}

// poisson draws a count: the sum of exponential gaps within one second.
func poisson(dice *rand.Rand, rate float64) (n int) {
	for at := dice.ExpFloat64() / rate; at < 1; at += dice.ExpFloat64() / rate {
		n++
	}
	return n
}

// feasible reports whether the weights in use leave every engine within what
// it carries, to a hundredth, at the true demand.
func (l *loop) feasible() bool {
	for j := range l.engines {
		load := 0.0
		for i := range l.weights {
			load += l.demand * l.share[i] * l.admitted[i] * l.weights[i][j]
		}
		if load > l.engines[j].carries()*1.01 {
			return false
		}
	}
	return true
}

// runLoop runs one policy through one case.
func runLoop(c a4Case, policy func(*balancer.Situation) *route.Plan, seed uint64) a4Row {
	f := newFluid(seed, c.sources, c.each)
	lost := 0.0
	if c.event == a4Lost {
		f.evened()
		lost = 0.2
	}
	l := newLoop(f, policy, c, seed)
	end := c.utilisation * f.total * (1 - lost)
	l.demand = end
	if c.event == a4Rises {
		l.demand = end / 1.5
	}
	w := watch{}
	for range a4Settle {
		l.cycle()
		l.second()
	}
	for now := range a4Window {
		if c.event != a4Stays && now == 0 {
			if l.demand = end; lost > 0 {
				l.engines[2].out, l.engines[2].n = true, 0
			}
			w.begin(l)
		}
		if c.event != a4Stays && now == a4After {
			break
		}
		// A count has a second of the new demand to go by when the cycle comes.
		if c.event != a4Rises || now > 0 || !c.counted {
			l.cycle()
			w.cycle(l)
		}
		w.second(l)
	}
	return w.row(f.optimum(new(solve.Solver), end), c.event != a4Stays)
}
