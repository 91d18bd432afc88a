package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"penstock/balancer/problem"
	"penstock/balancer/profile"
	"penstock/balancer/solve"
	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// planned is what the gateway does once it has learned every speed exactly: its
// curves, its solver, its slots and its picks, on virtual time. What a real
// gateway falls short of it is for learning, not for deciding.
type planned struct {
	engines []engineFacts
	gap     float64 // certified
	cost    []route.Cost
	shed    float64 // share of conversations that are refused, all turns of each

	pick   *selector.Selector
	class  selector.Class
	keyer  selector.Keyer
	leases map[*flight]*selector.Lease
	why    map[selector.Why]int
}

// engineFacts is what is to be known of an engine: as it is, or as a gateway has learned it.
type engineFacts struct {
	Weight   float64 `json:"weight"`
	Zero     float64 `json:"zero_load_ms"`   // latency of the mean request, alone on the engine
	Capacity float64 `json:"capacity"`       // requests/s of the mean request that it may be given
	Load     float64 `json:"load,omitempty"` // requests/s planned
}

// leftFree is the part of a capacity that plans leave free, as the balancer does.
const leftFree = 0.05

// newPlanned solves for the scenario's load and the mean of its requests.
func newPlanned(s *scenario, convs []conversation) (*planned, error) {
	p := &planned{keyer: selector.NewKeyer("", ""), leases: make(map[*flight]*selector.Lease), why: make(map[selector.Why]int)}
	share, err := p.solve(s, meanRequest(convs))
	if err != nil {
		return nil, err
	}
	p.publish(s, share)
	return p, nil
}

// meanRequest is the mean of all turns, where conversations stay on their engine.
func meanRequest(convs []conversation) (m profile.Request) {
	n := 0.0
	for i := range convs {
		c := &convs[i]
		for k, t := range c.turns {
			n++
			m.Prompt += float64(c.promptTokens(k))
			m.Output += float64(t.out)
			if k > 0 {
				m.Cached += float64(c.promptTokens(k-1) + c.turns[k-1].out)
			} else if c.hot {
				m.Cached += hotTokens
			}
		}
	}
	return profile.Request{Prompt: m.Prompt / n, Cached: m.Cached / n, Output: m.Output / n}
}

// solve sets the weights and returns what each engine should have in flight, as
// parts of the whole.
func (p *planned) solve(s *scenario, mean profile.Request) (share []float64, err error) {
	q := &problem.Problem{Name: s.name, Sources: []string{"here"}, RTT: make([][]float64, 1), Demand: []problem.Demand{{Rate: s.rate()}},
		Classes:   []problem.Class{{Name: modelName, Priority: problem.Standard, DistanceWeight: 1, Work: 1, All: true}},
		ShedPrice: [problem.Priorities]float64{1e9, 1e9, 1e9}, ShedCurvature: 0.5}
	for i := range s.speeds {
		m := s.model(i, 1)
		speed := route.Speed{Step: msOf(m.Base), PerSeq: msOf(m.PerSeq), PerToken: msOf(m.PerPrefill), Slots: float64(m.Slots), Answers: 1000}
		curve, capacity, _ := profile.Curve(speed, mean, profile.Known{})
		p.cost = append(p.cost, profile.Cost(speed, mean, profile.Known{Speed: speed})) // this one knows them
		p.cost[i].Alone += float32(msOf(s.rtt(i)))
		q.Engines = append(q.Engines, problem.Engine{Name: s.engineName(i), Place: i, Capacity: (1 - leftFree) * capacity, Latency: curve})
		q.RTT[0] = append(q.RTT[0], msOf(s.rtt(i)))
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	r := new(solve.Solver).Solve(q, solve.Auto)
	p.shed = r.Plan.Shed[0]
	p.gap, share = r.Certificate.Gap, make([]float64, len(s.speeds))
	for j := range q.Engines {
		p.engines = append(p.engines, engineFacts{Zero: q.Engines[j].Latency.Zero(), Capacity: q.Engines[j].Capacity})
	}
	sum := 0.0
	for _, w := range r.Plan.Row(0) {
		l, y := &q.Engines[w.Engine].Latency, w.Weight*s.rate()
		p.engines[w.Engine].Weight, p.engines[w.Engine].Load = w.Weight/(1-p.shed), y
		share[w.Engine] = y * (l.Zero() + l.Congestion(y) + q.RTT[0][w.Engine])
		sum += share[w.Engine]
	}
	for i := range share {
		share[i] = max(share[i]/sum, 1e-9)
		p.engines[i].Weight = max(p.engines[i].Weight, 1e-9) // there when all others are full
	}
	return share, nil
}

// publish makes the table that picks read.
func (p *planned) publish(s *scenario, share []float64) {
	tables := route.NewPublished("here")
	last := tables.Load()
	m := &route.Model{Name: modelName, Unlimited: true}
	var cands []route.Candidate
	for i := range s.speeds {
		e := engine.New(engine.Config{Name: s.engineName(i), URL: "http://127.0.0.1:1", Models: []string{modelName}}, engine.NewLive(uint16(i)))
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
		m.Engines = append(m.Engines, e)
		cands = append(cands, route.Candidate{Engine: e, Live: e.Live, Weight: p.engines[i].Weight, Share: share[i], Cap: e.Cap(), Cost: p.cost[i]})
	}
	key := route.ClassKey{Model: modelName}
	pool := route.NewPool(cands, route.NewComponent("all", 0), nil, 0)
	tables.Publish(&route.Table{Version: 1, Models: map[string]*route.Model{modelName: m}, Engines: m.Engines, Wants: last.Wants, Ledger: last.Ledger,
		Classes: map[route.ClassKey]*route.Class{key: {Pool: pool, Traffic: last.Ledger.Of(key, time.Unix(0, 0))}}})
	p.pick = selector.New(tables, nil)
	p.class, _ = p.pick.Resolve(modelName, selector.Need{}, time.Unix(0, 0))
}

func (p *planned) place(f *flight) int {
	if rand.New(rand.NewPCG(uint64(f.conv.id), 3)).Float64() < p.shed {
		return refused
	}
	a := selector.Ask{Key: p.keyer.Key(modelName, "", selector.DomainID, fmt.Sprint(f.conv.id)), Keyed: true, EarlierTurns: f.turn > 0, Prompt: f.prompt, Now: int64(f.sent / time.Second)}
	var d selector.Decision
	lease := p.pick.Pick(p.class, &a, &d)
	p.leases[f] = &lease
	p.why[d.Why]++
	f.engine = int(lease.Engine.Live.ID)
	return f.engine
}

// began is told of the first token.
func (p *planned) began(f *flight) {
	if l := p.leases[f]; l != nil {
		l.Began()
	}
}

func (p *planned) done(f *flight) {
	if p.leases[f] != nil {
		p.leases[f].Release()
	}
	delete(p.leases, f)
}

func (p *planned) lose(i int) {
	p.pick.EngineByID(uint16(i)).SetStatus(engine.Down, engine.ReasonRefused, time.Unix(0, 0))
}
