package profile

import (
	"penstock/balancer/problem"
	"penstock/engine"
	"penstock/route"
)

// near is what is to be taken of a learned speed where a profile tells steps:
// that of the profile until enough was learned, then the learned one, each part
// within a factor of what is told. Answers tell what long prompts cost only
// together with what else went on meanwhile, and who configured a profile had a reason.
func (k *Known) near(learned route.Speed) route.Speed {
	told := k.Speed
	if !(told.PerSeq > 0) {
		return learned
	}
	if learned.Answers < Calibrating {
		told.Answers = Calibrating
		if learned.Slots > 0 {
			told.Slots = learned.Slots
		}
		return told
	}
	within := func(v, of float64) float64 {
		if !(of > 0) {
			return v
		}
		return min(max(v, of/mostFactor), of*mostFactor)
	}
	learned.Step, learned.PerSeq, learned.PerToken = within(learned.Step, told.Step), within(learned.PerSeq, told.PerSeq), within(learned.PerToken, told.PerToken)
	return learned
}

// mostFactor is how far what answers show may be from what a profile tells.
const mostFactor = 2

// Cost is that of one more request on an engine of this speed; zero where no
// profile tells how long its steps are. Learned steps alone are no ground for
// it: of two equal engines the one that was watched in a busy moment would get
// nothing new, and never show that it is over.
func Cost(speed route.Speed, mean Request, known Known) route.Cost {
	speed = known.near(speed)
	if !(known.Speed.PerSeq > 0) || !(speed.PerToken > 0) || known.Capacity != nil && speed.Answers < Calibrating || known.Profile != nil && speed.Answers < Calibrating {
		return route.Cost{}
	}
	mean = mean.usable()
	n := slots(speed, mean, known)
	if n == 0 {
		n = boundless
	}
	steps := mean.Output + 0.5
	return route.Cost{Alone: float32(steps * (speed.Step + speed.PerSeq)), PerSeq: float32(2 * steps * speed.PerSeq), PerToken: float32(speed.PerToken), Slots: float32(n)}
}

// boundless is more requests at once than any engine has.
const boundless = 1 << 20

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
