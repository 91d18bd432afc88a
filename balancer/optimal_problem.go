package balancer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"penstock/balancer/problem"
	"penstock/route"
)

// A stream is what shares one slot table: the rows of one source with the same
// candidates and distance weight. Its demand is counted in requests of its mean
// work, by priority, so that both its requests and its work are exact.
type stream struct {
	source     int
	candidates []int // of the situation
	distance   float64
	work       float64
	rate       [route.Priorities]float64
	rows       []int // of the situation
	last       *route.PlanRow
	joined     bool // an engine that took no traffic under the last plan may serve it
}

func (f *stream) total() float64 {
	sum := 0.0
	for _, r := range f.rate {
		sum += r
	}
	return sum
}

// component is a set of streams that share engines, with the problem that
// decides where their demand goes.
type routing struct {
	streams []stream
	engines []int       // of the situation, ascending; the problem's engines in order
	at      map[int]int // index in engines
	problem problem.Problem
	demand  []commodity // the problem's demand rows
}

// commodity is one priority of a stream.
type commodity struct{ stream, priority int }

// routingsOf splits a situation into components.
func routingsOf(s *Situation) []*routing {
	streams := streamsOf(s)
	sets := newUnion(len(s.Engines))
	for i := range streams {
		sets.join(streams[i].candidates)
	}
	byRoot := make(map[int]*routing)
	var all []*routing
	for i := range streams {
		root := sets.find(streams[i].candidates[0])
		r := byRoot[root]
		if r == nil {
			r = &routing{at: make(map[int]int)}
			byRoot[root] = r
			all = append(all, r)
		}
		r.streams = append(r.streams, streams[i])
	}
	for j := range s.Engines {
		if r := byRoot[sets.find(j)]; r != nil {
			r.at[j] = len(r.engines)
			r.engines = append(r.engines, j)
		}
	}
	return all
}

func streamsOf(s *Situation) []stream {
	type rowKey struct {
		source string
		class  route.ClassKey
	}
	last := make(map[rowKey]*route.PlanRow)
	if s.Last != nil {
		for i := range s.Last.Rows {
			last[rowKey{s.Last.Rows[i].Source, s.Last.Rows[i].Class}] = &s.Last.Rows[i]
		}
	}
	var streams []stream
	index := make(map[string]int)
	for i := range s.Rows {
		row := &s.Rows[i]
		if len(row.Candidates) == 0 {
			continue
		}
		id := binary.LittleEndian.AppendUint64(nil, math.Float64bits(row.DistanceWeight))
		id = binary.LittleEndian.AppendUint32(id, uint32(row.Source))
		for _, j := range row.Candidates {
			id = binary.LittleEndian.AppendUint32(id, uint32(j))
		}
		at, known := index[string(id)]
		if !known {
			at = len(streams)
			index[string(id)] = at
			streams = append(streams, stream{source: row.Source, candidates: row.Candidates, distance: row.DistanceWeight})
		}
		f := &streams[at]
		f.rows = append(f.rows, i)
		if was := last[rowKey{s.Sources[row.Source], row.Class}]; f.last == nil && was != nil && len(was.Weights) > 0 {
			f.last = was
		}
	}
	for i := range streams {
		streams[i].add(s)
	}
	return streams
}

// add sums up the rows of a stream.
func (f *stream) add(s *Situation) {
	requests, work := 0.0, 0.0
	for _, c := range f.rows {
		for p, rate := range s.Rows[c].Rate {
			requests += rate
			f.rate[p] += rate * s.Rows[c].Work
			work += rate * s.Rows[c].Work
		}
	}
	f.work = s.Rows[f.rows[0]].Work
	if requests > 0 && work > 0 {
		f.work = work / requests
	}
	for p := range f.rate {
		f.rate[p] /= f.work
	}
}

// asked is the demand of the whole component in units of load.
func (r *routing) asked() float64 {
	sum := 0.0
	for i := range r.streams {
		sum += r.streams[i].total() * r.streams[i].work
	}
	return sum
}

// unasked is the demand, as a share of the component's, that stands for a
// stream without any: it decides nothing, and its first request has somewhere
// to go.
const unasked = 1e-6

// build makes the problem of a component; asked is above 0.
func (r *routing) build(s *Situation) {
	p := &r.problem
	p.Name = "penstock"
	p.ShedCurvature = shedCurvature
	r.addEngines(s)
	r.addDemand(s, unasked*r.asked())
	r.price(s)
	shed := make([][route.Priorities]float64, len(r.streams))
	for i := range r.streams {
		f := &r.streams[i]
		f.joined = slices.ContainsFunc(f.candidates, func(j int) bool { return s.capacity(j) > 0 && s.joined(j) })
		if !f.cold() {
			shed[i] = f.last.Shed
		}
	}
	r.addPrevious(shed)
}

// shedCurvature makes sources of one priority shed about the same fraction.
const shedCurvature = 0.5

// fullest is the part of a curve's limit that no load may exceed: beyond it the
// curve says too little.
const fullest = 0.95

// addEngines adds the component's engines with what they may be given. Engines
// of one cluster with equal round trips share their place.
func (r *routing) addEngines(s *Situation) {
	p := &r.problem
	sources := make(map[int]int) // of the situation -> of the problem
	var rows []int
	for i := range r.streams {
		if _, known := sources[r.streams[i].source]; !known {
			sources[r.streams[i].source] = 0
			rows = append(rows, r.streams[i].source)
		}
	}
	slices.Sort(rows)
	for i, source := range rows {
		p.Sources = append(p.Sources, s.Sources[source])
		sources[source] = i
	}
	p.RTT = make([][]float64, len(rows))
	places := make(map[string]int)
	for _, j := range r.engines {
		e := &s.Engines[j]
		id := []byte(e.Cluster + "\x00")
		for _, source := range rows {
			id = binary.LittleEndian.AppendUint64(id, math.Float64bits(s.RTT[source][j]))
		}
		place, known := places[string(id)]
		if !known {
			place = len(places)
			places[string(id)] = place
			for i, source := range rows {
				p.RTT[i] = append(p.RTT[i], s.RTT[source][j])
			}
		}
		p.Engines = append(p.Engines, problem.Engine{Name: e.Name, Cluster: e.Cluster, Place: place,
			Capacity: s.bounded(j), Latency: e.Curve})
	}
	for i := range r.streams {
		r.streams[i].source = sources[r.streams[i].source]
	}
}

// bounded is the effective capacity of engine j, where its curve still holds.
func (s *Situation) bounded(j int) float64 {
	e := &s.Engines[j]
	known := e.known()
	if len(e.Curve.Points) == 0 {
		known *= fullest
	}
	return max(0, min(s.effective(j), known))
}

// addDemand adds a row for every stream and priority that is asked for. Streams
// with the same candidates, work and distance weight share their classes.
func (r *routing) addDemand(s *Situation, little float64) {
	p := &r.problem
	type classKey struct {
		candidates     string
		work, distance float64
		priority       int
	}
	classes := make(map[classKey]int)
	names := make(map[string]bool)
	for i := range r.streams {
		f := &r.streams[i]
		if f.total() <= 0 {
			f.rate[problem.Standard] = little / f.work
		}
		for priority, rate := range f.rate {
			if rate <= 0 {
				continue
			}
			key := classKey{candidateID(f.candidates), f.work, f.distance, priority}
			class, known := classes[key]
			if !known {
				class = len(p.Classes)
				classes[key] = class
				p.Classes = append(p.Classes, problem.Class{Name: className(names, s.Rows[f.rows[0]].Class, priority), Priority: problem.Priority(priority),
					DistanceWeight: f.distance, Work: f.work, All: len(f.candidates) == len(r.engines), Engines: r.local(f.candidates)})
			}
			p.Demand = append(p.Demand, problem.Demand{Source: f.source, Class: class, Rate: rate})
			r.demand = append(r.demand, commodity{i, priority})
		}
	}
}

func candidateID(candidates []int) string {
	var id []byte
	for _, j := range candidates {
		id = binary.LittleEndian.AppendUint32(id, uint32(j))
	}
	return string(id)
}

// local are candidates as indices of the problem.
func (r *routing) local(candidates []int) []int {
	list := make([]int, len(candidates))
	for i, j := range candidates {
		list[i] = r.at[j]
	}
	return list
}

// className is the first class of a stream with its priority, made unique.
func className(taken map[string]bool, class route.ClassKey, priority int) string {
	name := class.String()
	if problem.Priority(priority) != problem.Standard {
		name += " (" + problem.Priority(priority).String() + ")"
	}
	for n, base := 2, name; taken[name]; n++ {
		name = fmt.Sprintf("%s #%d", base, n)
	}
	taken[name] = true
	return name
}

// price sets what a shed request and a moved one cost. The shed prices are so
// far above what a load within capacity can cost that nothing is shed before
// the engines are full (optimizer.md 3).
func (r *routing) price(s *Situation) {
	p := &r.problem
	dearest, far := 0.0, 0.0
	for j := range p.Engines {
		if e := &p.Engines[j]; e.Capacity > 0 {
			marginal, _ := e.Latency.Marginal(e.Capacity)
			dearest = max(dearest, e.Latency.Zero()+marginal)
		}
	}
	rate, worth := 0.0, 0.0
	for i := range r.streams {
		f := &r.streams[i]
		for _, j := range f.candidates {
			far = max(far, f.distance*p.RTT[f.source][p.Engines[r.at[j]].Place]/f.work)
		}
		for _, c := range f.rows {
			for _, v := range s.Rows[c].Rate {
				rate += v
				worth += v * s.Rows[c].Cache
			}
		}
	}
	if rate > 0 {
		p.MovePrice = worth / rate
	}
	if p.MovePrice <= 0 {
		p.MovePrice = guessedMove * r.idleLatency()
	}
	base := 2 * (dearest + far + p.MovePrice)
	if base <= 0 || math.IsInf(base, 0) || math.IsNaN(base) {
		base = 1
	}
	p.ShedPrice = [problem.Priorities]float64{problem.Critical: 100 * base, problem.Standard: 10 * base, problem.Sheddable: base}
}

// guessedMove is the price of a move, as a share of the latency without load,
// where nobody has told how much prompt the engines keep.
const guessedMove = 0.01

// idleLatency is the mean T(0) of the engines that take traffic.
func (r *routing) idleLatency() float64 {
	sum, n := 0.0, 0.0
	for j := range r.problem.Engines {
		if e := &r.problem.Engines[j]; e.Capacity > 0 {
			sum, n = sum+e.Latency.Zero(), n+1
		}
	}
	return sum / max(n, 1)
}

// addPrevious adds the weights in use, so that moving has its price and the
// solver begins there. Where an engine has joined or is back, moving to it has
// none: under little load nothing would be worth it, and the engine would stay
// without requests. The next plan has the price again.
func (r *routing) addPrevious(shed [][route.Priorities]float64) {
	p := &r.problem
	for c, d := range p.Demand {
		f := &r.streams[r.demand[c].stream]
		if f.cold() || f.joined {
			continue
		}
		shares := r.lastShares(f)
		for k := range shares {
			shares[k].Weight *= 1 - shed[r.demand[c].stream][r.demand[c].priority]
		}
		p.Previous = append(p.Previous, problem.Previous{Source: d.Source, Class: d.Class, Weights: shares})
	}
}

// cold reports whether a stream has no weights that are worth keeping.
func (f *stream) cold() bool { return f.last == nil || f.last.Guessed }

// lastShares are the weights in use over those candidates of a stream that are
// still there.
func (r *routing) lastShares(f *stream) []problem.Share {
	given := make(map[string]float64, len(f.last.Weights))
	for _, w := range f.last.Weights {
		given[w.Engine] = w.Weight
	}
	var shares []problem.Share
	for _, j := range f.candidates {
		at := r.at[j]
		if w := given[r.problem.Engines[at].Name]; w > 0 {
			shares = append(shares, problem.Share{Engine: at, Weight: w})
		}
	}
	slices.SortFunc(shares, func(a, b problem.Share) int { return cmp.Compare(a.Engine, b.Engine) })
	return shares
}
