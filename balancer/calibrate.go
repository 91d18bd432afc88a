package balancer

import (
	"encoding/binary"

	"penstock/balancer/problem"
	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/route"
)

// viewOf is what this gateway knows of an engine by itself; Assemble adds its
// curve and capacity.
func viewOf(e *engine.Engine) EngineView {
	v := EngineView{Name: e.Name, Cluster: e.Cluster, Replicas: e.Replicas, Ready: e.Planned(), Slots: float64(e.Cap()), Left: 1}
	if d := e.Detected(); d != nil {
		v.Dialect = d.Dialect
	}
	v.Told = profile.Known{Capacity: e.Capacity, Slots: v.Slots}
	v.Told.Tell(e.Profile, e.Replicas)
	return v
}

// calibrate gives every engine its curve and capacity, and every row its work,
// in the unit of load of its component: the mean request there. means are those
// of the rows.
func calibrate(s *Situation, means []profile.Request, demands []*route.Demand, index map[string]int) {
	speeds, factors, held := seenOf(s, demands, index)
	answers := make([]float64, len(speeds))
	for j := range speeds {
		answers[j] = speeds[j].Answers
	}
	for _, part := range partsOf(s) {
		mean := meanOf(s, part.rows, means)
		liken(s, part, speeds, mean)
		known := make([]route.Speed, len(part.engines))
		for i, j := range part.engines {
			known[i] = speeds[j]
		}
		typical := profile.Typical(known)
		for _, j := range part.engines {
			e := &s.Engines[j]
			if held[j] > 0 {
				e.Told.Slots = min(e.Told.Slots, held[j])
			}
			speed := speeds[j]
			if answers[j] < believed && typical.PerSeq > 0 {
				slots := speed.Slots
				if speed = typical; slots > 0 {
					speed.Slots = slots
				}
			}
			e.Curve, e.Capacity, e.Calibrated = profile.Curve(speed, mean, e.Told)
			if e.Told.Capacity != nil && e.Told.Profile == nil && answers[j] < profile.Calibrating {
				e.Curve = problem.Latency{Slope: slopeUnknown, Limit: e.Curve.Limit}
			}
			e.Cost = profile.Cost(speed, mean, e.Told)
			if answers[j] >= profile.Calibrating {
				e.Shown = e.Told.Shown(speed, mean)
			}
			e.slowed()
			e.Capacity *= e.Left * factors[j]
		}
		cost := costs{typical}
		for _, c := range part.rows {
			s.Rows[c].Work = min(max(cost.of(means[c], mean), leastWork), mostWork)
			s.Rows[c].Cache = means[c].Cached * typical.PerToken
		}
	}
}

const (
	// slopeUnknown is the latency without load, in ms, of engines of which the
	// capacity alone is known: the same for all, so that they share by capacity.
	slopeUnknown = 1000
	// leastLatency is the least latency without load, in ms, that is believed:
	// what is quicker than a model's answer differs by the network's noise.
	leastLatency = 50
	// believed is how many answers count for more than what peers are like.
	believed = 1
)

// slowed is an engine that answers quicker than is believed: it shares by the
// capacity that was told, or else by its slots.
func (e *EngineView) slowed() {
	if len(e.Curve.Points) > 0 || e.Told.Profile != nil || e.Curve.Zero() >= leastLatency || e.Capacity <= 0 {
		return
	}
	e.Cost = route.Cost{}
	if e.Told.Capacity == nil {
		e.Capacity = max(e.Slots, 1) * fullest * 1000 / leastLatency
		e.Curve.Limit = e.Capacity / fullest
	}
	e.Curve.Base, e.Curve.Slope = 0, leastLatency
}

// liken draws together what was learned of engines that could be equal: those
// of one kind that serve the same rows. An engine whose slots nobody has seen
// has those of its peers, the median, but no fewer than it has had at work.
func liken(s *Situation, p *part, speeds []route.Speed, mean profile.Request) {
	serves := make(map[int][]byte, len(p.engines))
	for _, c := range p.rows {
		for _, j := range s.Rows[c].Candidates {
			serves[j] = binary.LittleEndian.AppendUint32(serves[j], uint32(c))
		}
	}
	type kind struct {
		dialect  string
		replicas int
		serves   string
	}
	kinds := make(map[kind][]int)
	for _, j := range p.engines {
		e := &s.Engines[j]
		k := kind{e.Dialect, max(1, e.Replicas), string(serves[j])}
		kinds[k] = append(kinds[k], j)
	}
	for _, engines := range kinds {
		peers := make([]route.Speed, 0, len(engines))
		for _, j := range engines {
			peers = append(peers, speeds[j])
		}
		peers = profile.Alike(peers, mean)
		for i, j := range engines {
			speeds[j] = peers[i]
		}
	}
}

// Work of a class's request, as a multiple of the mean one: a guess beyond
// these bounds is a fault of the guess.
const leastWork, mostWork = 0.02, 50

// seenOf is what all gateways together know of each engine's speed, what their
// penalties leave of it on average, and how many attempts it holds at once
// where it has refused some: what it held of those gateways' and what it has of
// the others'; 0 where it has refused none.
func seenOf(s *Situation, demands []*route.Demand, index map[string]int) (speeds []route.Speed, factors, held []float64) {
	told := make([][]route.Speed, len(s.Engines))
	factors, held = make([]float64, len(s.Engines)), make([]float64, len(s.Engines))
	refused := make([]bool, len(s.Engines))
	gateways := make([]float64, len(s.Engines))
	for _, d := range demands {
		for _, seen := range d.Engines {
			j, ok := index[seen.Engine]
			if !ok {
				continue
			}
			told[j] = append(told[j], seen.Speed)
			factors[j] += seen.Factor
			gateways[j]++
			refused[j] = refused[j] || seen.Held > 0
			if ours := seen.Held; ours > 0 {
				held[j] += ours * float64(max(1, d.Replicas))
			} else {
				held[j] += seen.InFlight * float64(max(1, d.Replicas))
			}
		}
	}
	for j := range held {
		if !refused[j] {
			held[j] = 0
		}
	}
	speeds = make([]route.Speed, len(s.Engines))
	for j := range speeds {
		speeds[j] = profile.Merge(told[j])
		if gateways[j] == 0 {
			factors[j] = 1
		} else {
			factors[j] /= gateways[j]
		}
	}
	return speeds, factors, held
}

// part is a set of rows that share engines, and those.
type part struct{ rows, engines []int }

func partsOf(s *Situation) []*part {
	sets := newUnion(len(s.Engines))
	for i := range s.Rows {
		sets.join(s.Rows[i].Candidates)
	}
	byRoot := make(map[int]*part)
	var parts []*part
	for j := range s.Engines {
		p := byRoot[sets.find(j)]
		if p == nil {
			p = &part{}
			byRoot[sets.find(j)] = p
			parts = append(parts, p)
		}
		p.engines = append(p.engines, j)
	}
	for i := range s.Rows {
		p := byRoot[sets.find(s.Rows[i].Candidates[0])]
		p.rows = append(p.rows, i)
	}
	return parts
}

// meanOf is the mean request of rows; zero where nothing is asked for.
func meanOf(s *Situation, rows []int, means []profile.Request) profile.Request {
	var sum profile.Request
	total := 0.0
	for _, c := range rows {
		rate := s.Rows[c].asked()
		if means[c] == (profile.Request{}) {
			continue
		}
		total += rate
		sum.Prompt += rate * means[c].Prompt
		sum.Cached += rate * means[c].Cached
		sum.Output += rate * means[c].Output
	}
	if total <= 0 {
		return profile.Request{}
	}
	return profile.Request{Prompt: sum.Prompt / total, Cached: sum.Cached / total, Output: sum.Output / total}
}

// costs compares requests by what they cost a full engine.
type costs struct{ speed route.Speed }

// Of an engine of which nothing is known, a prompt token costs a tenth of an
// output token.
const promptCost = 0.1

// of is the work of a request in mean ones; 1 where one of them is unknown.
func (c costs) of(request, mean profile.Request) float64 {
	prompt := promptCost
	if s := c.speed; s.PerSeq > 0 {
		output := s.PerSeq
		if s.Slots > 0 {
			output += s.Step / s.Slots
		}
		prompt = s.PerToken / output
	}
	cost := func(r profile.Request) float64 { return prompt*max(r.Prompt-r.Cached, 0) + r.Output }
	if !(cost(request) > 0) || !(cost(mean) > 0) {
		return 1
	}
	return cost(request) / cost(mean)
}
