package solve

import (
	"fmt"
	"math"
	"math/rand/v2"

	"penstock/balancer/problem"
)

// shape is what a generated problem is like.
type shape struct {
	sources, engines, clusters int
	utilisation                float64 // demand over capacity
	jitter                     bool    // round trips of their own for all engines
	points, flat, capped       float64 // shares of the engines
	equal                      bool    // engines of a cluster are copies
	classes                    int
	shedPrice                  float64 // 0: the defaults
	rate                       float64 // of everything
	decades                    float64 // over which demands and capacities spread
	previous                   float64 // move price; 0: no previous
	whole                      bool    // whole numbers everywhere: ties
	noCurvature                bool
	curvature                  float64 // of the shed price; 0: the default
	dead                       float64 // share of engines without capacity
	slopes                     float64 // decades over which slopes spread
}

func generate(r *rand.Rand, s shape) *problem.Problem {
	p := &problem.Problem{Name: fmt.Sprintf("%+v", s), ShedCurvature: 0.5}
	p.ShedPrice = [3]float64{1e6, 3e5, 1e5}
	if s.shedPrice > 0 {
		p.ShedPrice = [3]float64{s.shedPrice, s.shedPrice, s.shedPrice}
	}
	if s.curvature > 0 {
		p.ShedCurvature = s.curvature
	}
	if s.noCurvature {
		p.ShedCurvature = 0
	}
	if s.rate == 0 {
		s.rate = 1
	}
	round := func(v float64) float64 {
		if s.whole {
			return math.Max(1, math.Round(v))
		}
		return v
	}
	type spot struct{ x, y float64 }
	spots := make([]spot, max(s.sources, s.clusters))
	for i := range spots {
		spots[i] = spot{r.Float64() * 150, r.Float64() * 100}
	}
	for i := range s.sources {
		p.Sources = append(p.Sources, fmt.Sprintf("s%d", i))
	}
	total := 0.0
	for j := range s.engines {
		k := j % s.clusters
		e := problem.Engine{Name: fmt.Sprintf("e%d", j), Cluster: fmt.Sprintf("s%d", k), Place: k}
		if s.equal && j >= s.clusters {
			e.Capacity, e.Latency = p.Engines[k].Capacity, p.Engines[k].Latency
		} else {
			e.Capacity = round(math.Exp(r.Float64()*math.Log(10)) * 20 * math.Pow(10, s.decades*(r.Float64()-0.5)))
			slope := round((20 + 180*r.Float64()) * math.Pow(10, s.slopes*(r.Float64()-0.5)))
			switch u := r.Float64(); {
			case u < s.points:
				load, time, steep := 0.0, round(20+150*r.Float64()), 0.0
				pts := []problem.Point{{Load: 0, Time: time}}
				for range 1 + r.IntN(5) {
					step := e.Capacity * (0.02 + r.Float64()*0.7)
					steep += r.Float64() * 300 / e.Capacity * float64(r.IntN(2))
					load, time = load+step, time+steep*step
					pts = append(pts, problem.Point{Load: load, Time: time})
				}
				e.Latency.Points = pts
				e.Capacity = load * (1 - 0.3*r.Float64()*float64(r.IntN(2)))
			case u < s.points+s.flat:
				e.Latency = problem.Latency{Base: slope, Slope: 0, Limit: e.Capacity * 1.1}
			case u < s.points+s.flat+s.capped:
				e.Latency = problem.Latency{Base: round(10 * r.Float64()), Slope: slope, Limit: e.Capacity * (1.01 + 0.4*r.Float64())}
			default:
				e.Latency = problem.Latency{Base: round(10 * r.Float64()), Slope: slope, Limit: e.Capacity}
			}
		}
		e.Capacity *= s.rate
		e.Latency.Limit *= s.rate
		if !s.equal || j < s.clusters {
			pts := e.Latency.Points
			for i := range pts {
				pts[i].Load *= s.rate
			}
		}
		if s.equal && j >= s.clusters {
			e.Capacity, e.Latency = p.Engines[k].Capacity, p.Engines[k].Latency
		}
		total += e.Capacity
		p.Engines = append(p.Engines, e)
	}
	distance := func(i, k int) float64 {
		if i == k {
			return 1
		}
		d := math.Hypot(spots[i].x-spots[k].x, spots[i].y-spots[k].y) * (1 + 0.1*r.Float64())
		return 2 + round(d)
	}
	for i := range s.sources {
		row := make([]float64, s.clusters)
		for k := range row {
			row[k] = distance(i, k)
		}
		if s.jitter {
			wide := make([]float64, s.engines)
			for j := range wide {
				wide[j] = row[j%s.clusters] + r.Float64()*5
			}
			row = wide
		}
		p.RTT = append(p.RTT, row)
	}
	if s.jitter {
		for j := range p.Engines {
			p.Engines[j].Place = j
		}
	}
	for k := range max(1, s.classes) {
		c := problem.Class{Name: fmt.Sprintf("c%d", k), Priority: problem.Standard, DistanceWeight: 1, Work: 1, All: true}
		if s.classes > 1 {
			c.Priority = problem.Priority(r.IntN(3))
			c.DistanceWeight = float64(r.IntN(4))
			c.Work = math.Pow(2, float64(r.IntN(5)-2))
			if r.IntN(2) == 0 {
				c.All = false
				for j := range p.Engines {
					if r.IntN(3) > 0 {
						c.Engines = append(c.Engines, j)
					}
				}
			}
		}
		p.Classes = append(p.Classes, c)
	}
	for j := range p.Engines {
		if s.dead > 0 && r.Float64() < s.dead {
			p.Engines[j].Capacity = 0
		}
	}
	work := 0.0
	for i := range p.Sources {
		for k := range p.Classes {
			rate := round(math.Exp(r.Float64()*3) * math.Pow(10, s.decades*(r.Float64()-0.5)))
			p.Demand = append(p.Demand, problem.Demand{Source: i, Class: k, Rate: rate})
			work += rate * p.Classes[k].Work
		}
	}
	for c := range p.Demand {
		v := p.Demand[c].Rate * s.utilisation * total / work
		if s.whole {
			v = math.Max(1, math.Round(v))
		}
		p.Demand[c].Rate = v
	}
	if s.previous > 0 {
		p.MovePrice = s.previous
		for c := range p.Demand {
			d := p.Demand[c]
			row := problem.Previous{Source: d.Source, Class: d.Class}
			sum := 0.0
			for j := range p.Engines {
				if p.Classes[d.Class].Allows(j) && r.IntN(3) == 0 {
					w := r.Float64()
					row.Weights = append(row.Weights, problem.Share{Engine: j, Weight: w})
					sum += w
				}
			}
			for i := range row.Weights {
				row.Weights[i].Weight /= sum
			}
			if r.IntN(4) > 0 {
				p.Previous = append(p.Previous, row)
			}
		}
	}
	return p
}
