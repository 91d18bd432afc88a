package balancer

import (
	"math"
	"sync/atomic"
	"time"

	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/route"
)

// sighted is what was seen of one engine.
type sighted struct {
	track    track
	facts    Facts
	others   float64 // attempts of other gateways
	lately   lately  // attempts of this one
	learner  profile.Learner
	speed    route.Speed // learned so far
	answered ewma        // attempts that ended, by time
	repeated ewma        // of those, paid for by the retry budget
}

// sightings are the facts of the last look, for metrics to read.
type sightings struct {
	last  atomic.Pointer[[]sighting]
	began [dataRules]atomic.Uint64 // times that a rule began to hold of some engine
}

type sighting struct {
	engine string
	facts  Facts
}

// lookAtEngines looks at every engine and forgets those that left.
func (o *Observer) lookAtEngines(set *engine.Set, t *route.Table, others []*route.Demand, dt time.Duration, now time.Time) []route.Sighting {
	elsewhere, typical := o.elsewhere(others, now), o.typical(t)
	engines := make(map[*engine.Live]*sighted, len(set.Engines))
	list := make([]route.Sighting, 0, len(set.Engines))
	shown := make([]sighting, 0, len(set.Engines))
	for _, e := range set.Engines {
		s := o.engines[e.Live]
		if s == nil {
			s = &sighted{}
		}
		engines[e.Live] = s
		s.others = elsewhere[e.Name]
		seen := o.lookAt(e, s, dt, now)
		s.learn(e, o.seen, typical, now)
		seen.Speed = s.speed
		list = append(list, seen)
		shown = append(shown, sighting{engine: e.Name, facts: s.facts})
	}
	o.engines = engines
	o.shown.last.Store(&shown)
	return list
}

// learn takes what came from the engine to what is known of its speed.
func (s *sighted) learn(e *engine.Engine, seen []engine.Answer, typical map[string]route.Speed, now time.Time) {
	s.learner.Answers(seen, now)
	if s.facts.Rule.believed() && s.facts.Rule != Frozen && e.Replicas <= 1 {
		s.learner.Sample(e.Sample(), float64(e.InFlight()))
	}
	var peers route.Speed
	models, _ := e.Serves()
	for i := range models {
		if peers = typical[models[i].ID]; peers.Step > 0 {
			break
		}
	}
	s.speed = s.learner.Speed(peers)
}

// typical is what to expect of an engine of each model, by what was learned of
// those up to now.
func (o *Observer) typical(t *route.Table) map[string]route.Speed {
	all := make(map[string]route.Speed, len(t.Models))
	var known []route.Speed
	for name, m := range t.Models {
		known = known[:0]
		for _, e := range m.Engines {
			if s := o.engines[e.Live]; s != nil && s.speed.Answers > 0 {
				known = append(known, s.speed)
			}
		}
		if len(known) > 0 {
			all[name] = profile.Typical(known)
		}
	}
	return all
}

// elsewhere sums the attempts of other gateways by engine, those of replicas
// of this one included.
func (o *Observer) elsewhere(others []*route.Demand, now time.Time) map[string]float64 {
	sum := make(map[string]float64)
	for _, d := range others {
		if d == nil || now.Sub(d.At) > demandLife {
			continue
		}
		gateways := float64(max(1, d.Replicas))
		if d.Gateway == o.Gateway {
			gateways-- // itself is counted as it is now
		}
		for i := range d.Engines {
			sum[d.Engines[i].Engine] += d.Engines[i].InFlight * gateways
		}
	}
	return sum
}

// lookAt takes one look at an engine. What came from it is in o.seen.
func (o *Observer) lookAt(e *engine.Engine, s *sighted, dt time.Duration, now time.Time) route.Sighting {
	o.seen = e.TakeAnswers(o.seen[:0])
	if dt > 0 {
		s.answered.add(float64(len(o.seen)), dt, seenMemory)
		s.repeated.add(float64(repeats(o.seen)), dt, seenMemory)
	}
	rtt := e.RoundTrip()
	g := glance{at: now, sample: e.Sample(), status: e.Status(), inFlight: float64(e.InFlight()), progress: e.ProgressAge(now),
		onTheWire: s.answered.rate() * rtt.Seconds(), slots: placesOf(e, s.speed), elsewhere: s.others,
		replicas: float64(max(1, e.Replicas)), seen: o.seen}
	was := s.facts
	s.facts = s.track.look(&g)
	e.SetOthers(othersOn(e, s.facts.Rule))
	o.tell(e, was, s.facts)
	seen := route.Sighting{Engine: e.Name, RTT: math.NaN(), InFlight: g.inFlight, Factor: (1 - s.repeats()) * e.Protection().Lasting}
	if s.facts.Rule == Frozen { // nobody else may see it: it is told as what is left of the capacity
		seen.Factor = 0
	}
	seen.Held = float64(e.HeldOfOurs())
	if rtt > 0 {
		seen.RTT = float64(rtt) / float64(time.Millisecond)
	}
	return seen
}

// othersOn is how many requests an engine has that this gateway did not send,
// by the engine's last page. A small difference is none: of what ends, one side
// knows a little earlier than the other.
func othersOn(e *engine.Engine, r DataRule) int64 {
	s := e.Sample()
	if s == nil || !r.believed() || e.Replicas > 1 || s.Has&engine.FieldRunning == 0 {
		return 0
	}
	all := s.Running
	if s.Has&engine.FieldWaiting != 0 {
		all += s.Waiting
	}
	if others := all - s.Ours; others >= max(1, s.Ours/4) {
		return int64(min(others, mostOthers))
	}
	return 0
}

// mostOthers bounds what a page can make an engine look loaded with.
const mostOthers = 1e5

// repeats counts the attempts that did again what may have been done before.
func repeats(seen []engine.Answer) (n int) {
	for i := range seen {
		if seen[i].Repeat {
			n++
		}
	}
	return n
}

// repeats is the share of the engine's work that is done for the second time:
// so much of its capacity is not there for demand.
func (s *sighted) repeats() float64 {
	if all := s.answered.rate(); all > 0 {
		return min(s.repeated.rate()/all, 1)
	}
	return 0
}

// placesOf is how many requests an engine works on at once: what it has shown,
// else its cap.
func placesOf(e *engine.Engine, speed route.Speed) float64 {
	if speed.Slots > 0 {
		return min(speed.Slots, float64(e.Cap()))
	}
	return float64(e.Cap())
}

// tell says in the log what people should know of an engine, once each time,
// and counts it.
func (o *Observer) tell(e *engine.Engine, was, now Facts) {
	begins := was.Rule != now.Rule || was.Since.IsZero()
	if begins {
		o.shown.began[now.Rule].Add(1)
	}
	if o.Log == nil {
		return
	}
	switch {
	case !begins:
	case now.Rule == Frozen:
		o.Log.Warn("engine is frozen: it has work, and its counters stand still", "engine", e.Name)
	case now.Rule == Lying:
		o.Log.Warn("engine's metrics are not believed: they tell what cannot be", "engine", e.Name)
	case now.Rule == Distrusted:
		o.Log.Warn("engine tells nothing any more: it is planned with less", "engine", e.Name)
	case was.Rule == Frozen || was.Rule == Lying || was.Rule == Distrusted:
		o.Log.Info("engine's signals", "engine", e.Name, "rule", now.Rule.String())
	}
	switch {
	case was.Foreign == 0 && now.Foreign > 0:
		o.Log.Warn("somebody else feeds the engine: taken as load", "engine", e.Name, "requests", math.Round(now.Foreign))
	case was.Foreign > 0 && now.Foreign == 0:
		o.Log.Info("nobody else feeds the engine any more", "engine", e.Name)
	}
}

// Facts are what the last Demand found of an engine; all of it left, and
// nothing known, where it has not looked.
func (o *Observer) Facts(e *engine.Engine) Facts {
	if s := o.engines[e.Live]; s != nil {
		return s.facts
	}
	return Facts{Rule: Missing, Left: 1, Signals: Signals{TTFT: math.NaN(), TBOT: math.NaN(), Errors: math.NaN(), Waiting: math.NaN(),
		Utilisation: math.NaN()}}
}

// sharpen adds to the view of an engine what is seen of it.
func (o *Observer) sharpen(e *engine.Engine, v *EngineView) {
	f := o.Facts(e)
	v.Signals = f.Signals
	v.Left *= f.Left
	v.Ready = v.Ready && f.Rule != Frozen
}

// elsewhereOn is what other gateways had in flight on an engine at the last
// look.
func (o *Observer) elsewhereOn(e *engine.Engine) float64 {
	if s := o.engines[e.Live]; s != nil {
		return s.others
	}
	return 0
}

// leastOn is the least that this gateway had in flight on an engine lately, where
// it has so much now.
func (o *Observer) leastOn(e *engine.Engine, inFlight float64, now time.Time) float64 {
	if s := o.engines[e.Live]; s != nil {
		return s.lately.least(inFlight, now)
	}
	return inFlight
}

// sharedFor is how long slots are made as others make them after the last other
// gateway of the source was heard of: one that is replaced, or not heard for a
// while, finds the conversations where it left them.
const sharedFor = 10 * time.Minute

// shares reports whether other gateways serve the conversations of this one.
func (o *Observer) shares(gateways map[string]int, source string, now time.Time) bool {
	if o.Replicas > 1 || gateways[source] > 1 {
		o.sharedTill = now.Add(sharedFor)
	}
	return now.Before(o.sharedTill)
}
