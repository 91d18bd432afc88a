package profile

import (
	"penstock/balancer/problem"
	"penstock/engine"
	"penstock/route"
)

// Tell adds what a configured profile says to what else is known of its engine.
// A curve is that of the engine as a whole, steps are those of each of its
// replicas: with twice as many, a sequence adds half as much to the mean step.
func (k *Known) Tell(p *engine.Profile, replicas int) {
	n := float64(max(1, replicas))
	switch {
	case p == nil:
	case p.Steps():
		k.Speed = route.Speed{Step: p.Step, PerSeq: p.PerSeq / n, PerToken: p.PerToken / n, Slots: p.Slots * n}
	case len(p.Points) > 0:
		l := problem.Latency{}
		for _, pair := range p.Points {
			l.Points = append(l.Points, problem.Point{Load: pair[0], Time: pair[1]})
		}
		k.Profile = &l
	default:
		k.Profile = &problem.Latency{Base: p.Base, Slope: p.Slope, Limit: p.Limit}
	}
}
