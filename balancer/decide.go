package balancer

import (
	"math"
	"time"

	"penstock/engine"
	"penstock/route"
)

// plan tells what this gateway sees and returns the plan that its table
// follows, its own where it leads; nil where capacity alone decides.
func (l *Loop) plan(set *engine.Set, wanted []route.ClassKey, now time.Time) *route.Plan {
	own := l.observe(set, now)
	l.peers.Tell(own)
	last := l.peers.Plan()
	epoch, leads := l.peers.Leads()
	policy := Policy(l.policy.Load())
	if !leads {
		l.decision.Store(nil)
		if planners[policy] == nil { // it was told to go by capacity alone, whoever plans
			return nil
		}
		if last == nil { // nobody was heard of yet: the weights are those of the process before
			last = l.restored
		}
		if share := trust(l.peers.PlanAge()); last != nil && share < 1 {
			models, _ := modelsOf(set)
			return aged(last, share, own.Source, models)
		}
		return last
	}
	if last == nil && planners[policy] != nil {
		// Engines are still being heard of: until then the weights are those of the
		// process before.
		if last = l.restored; last != nil && l.saved != nil {
			l.decision.Store(nil)
			return last
		}
	}
	if planners[policy] == nil {
		l.decision.Store(nil)
		return nil
	}
	s := Assemble(l.inputs(set, own, wanted, last, now))
	l.corrections.observe(set, s)
	d := l.decide(policy, s)
	l.metrics.decided(d)
	for _, err := range d.Errors {
		l.log.Warn("not solved, the last weights stay", "error", err.Error())
	}
	if last != nil && samePlan(last, d.Plan) {
		if last.Epoch == epoch {
			d.Plan = last
			l.decision.Store(d)
			return last
		}
		same := *last // told again in this epoch: that of another leader is nobody's word any more
		d.Plan = &same
	}
	d.Plan.Epoch, d.Plan.Version = epoch, 1
	if last != nil && last.Epoch == epoch {
		d.Plan.Version = last.Version + 1
	}
	if err := l.peers.Publish(d.Plan); err != nil {
		l.log.Warn("plan not taken", "error", err.Error())
		return l.peers.Plan()
	}
	select {
	case <-l.peers.News(): // it is our own: no reason for another cycle, which would move as much again
	default:
	}
	l.decision.Store(d)
	return d.Plan
}

func (l *Loop) decide(policy Policy, s *Situation) *Decision {
	var d *Decision
	switch policy {
	case Optimal:
		d = decideOptimal(s, l.guard.solve)
	case Feedback:
		d = &Decision{}
		d.Plan, d.Feedback = DefaultController.Plan(s, l.feedback)
	default:
		d = &Decision{Plan: planners[policy](s)}
	}
	l.feedback = d.Feedback
	d.Situation = s
	finish(s, d.Plan)
	return d
}

// Decision is that of the last cycle in which this gateway planned; nil where
// it does not. Its plan is the one in use, its proofs are newer where the
// weights did not change.
func (l *Loop) Decision() *Decision { return l.decision.Load() }

func (l *Loop) inputs(set *engine.Set, own *route.Demand, wanted []route.ClassKey, last *route.Plan, now time.Time) *Inputs {
	in := &Inputs{At: now, Source: own.Source, Demands: l.peers.Demands(), Wanted: wanted, Last: last, Network: l.network.Load().between}
	for _, e := range set.Engines {
		v := viewOf(e)
		l.observer.sharpen(e, &v)
		l.corrections.apply(e, &v)
		in.Engines = append(in.Engines, v)
	}
	in.Models, _ = modelsOf(set)
	return in
}

// observe is what this gateway tells.
func (l *Loop) observe(set *engine.Set, now time.Time) *route.Demand {
	return l.observer.Demand(set, l.tables.Load(), l.peers.Demands(), now)
}

// leastRate stands for the demand of a row without any: its shares of what is
// in flight are then those of its weights, and count for nothing beside others.
const leastRate = 1e-6 // requests/s

// finish adds to a plan what follows from it: what each row's requests have in
// flight where.
func finish(s *Situation, p *route.Plan) {
	latency := make(map[string]float64, len(p.Engines))
	for i := range p.Engines {
		latency[p.Engines[i].Name] = p.Engines[i].Latency
	}
	index := make(map[string]int, len(s.Engines))
	for j := range s.Engines {
		index[s.Engines[j].Name] = j
	}
	type key struct {
		source string
		class  route.ClassKey
	}
	demand := make(map[key]*Row, len(s.Rows))
	for i := range s.Rows {
		demand[key{s.Sources[s.Rows[i].Source], s.Rows[i].Class}] = &s.Rows[i]
	}
	for i := range p.Rows {
		row := &p.Rows[i]
		d := demand[key{row.Source, row.Class}]
		if d == nil {
			continue
		}
		rate := leastRate
		for k := range d.Rate {
			rate += d.Rate[k] * (1 - row.Shed[k])
		}
		for k := range row.Weights {
			w := &row.Weights[k]
			stay := latency[w.Engine] * d.Work
			if stay == 0 { // not known: equal for all
				stay = 1000
			}
			w.InFlight = rate * w.Weight * (s.RTT[d.Source][index[w.Engine]] + stay) / 1000
		}
	}
}

// What of a plan may change without a new one: tables then stay as they are.
const (
	sameWeight   = 1e-3 // of a row's demand, in sum
	sameInFlight = 0.05 // of what is in flight, in sum
	sameShed     = 0.01
)

// samePlan reports whether b says nothing that a does not, as far as tables
// are concerned.
func samePlan(a, b *route.Plan) bool {
	if a.Policy != b.Policy || a.Rule != b.Rule || len(a.Rows) != len(b.Rows) || len(a.Engines) != len(b.Engines) {
		return false
	}
	for j := range a.Engines {
		if a.Engines[j].Name != b.Engines[j].Name || (a.Engines[j].Capacity > 0) != (b.Engines[j].Capacity > 0) {
			return false
		}
	}
	for i := range a.Rows {
		if !sameRow(&a.Rows[i], &b.Rows[i]) {
			return false
		}
	}
	return true
}

func sameRow(a, b *route.PlanRow) bool {
	if a.Source != b.Source || a.Class != b.Class || a.Guessed != b.Guessed {
		return false
	}
	for k := range a.Shed {
		if (a.Shed[k] > 0) != (b.Shed[k] > 0) || math.Abs(a.Shed[k]-b.Shed[k]) > sameShed {
			return false
		}
	}
	was := make(map[string]route.PlanWeight, len(a.Weights))
	sum := 0.0
	for _, w := range a.Weights {
		was[w.Engine] = w
		sum += w.InFlight
	}
	moved, now := 0.0, 0.0
	for _, w := range b.Weights {
		moved += max(0, w.Weight-was[w.Engine].Weight)
		now += w.InFlight
	}
	if moved > sameWeight {
		return false
	}
	shift := 0.0
	for _, w := range b.Weights {
		if sum > 0 && now > 0 {
			shift += max(0, w.InFlight/now-was[w.Engine].InFlight/sum)
		}
	}
	return shift <= sameInFlight
}
