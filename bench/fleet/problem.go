package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// problem is a routing problem as the admin listener tells it: what is needed to
// compute objective and bound from their definition, apart from the code that
// solved it.
type problem struct {
	Engines []struct {
		Name, Cluster string
		Capacity      float64
		Latency       struct {
			Base   float64      `json:"base_ms"`
			Slope  float64      `json:"slope_ms"`
			Limit  float64      `json:"limit"`
			Points [][2]float64 `json:"points"`
		}
	}
	Classes []struct {
		Name     string
		Distance *float64 `json:"distance_weight"`
		Work     *float64
		Engines  []string
	}
	Demand []struct {
		Source, Class string
		Rate          float64
	}
	RTT      map[string]map[string]float64 `json:"rtt_ms"`
	Previous []struct {
		Source, Class string
		Weights       map[string]float64
	}
	MovePrice float64 `json:"move_price_ms"`
}

func readProblem(text []byte) (*problem, error) {
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	for _, e := range p.Engines {
		if len(e.Latency.Points) > 0 {
			return nil, errors.New("a curve of points: this check knows the other form")
		}
	}
	return &p, nil
}

// gap is how far a solution can be from the optimum by its prices, relatively:
// the objective less the dual value, which is no more than any plan's objective.
// Nothing may be shed.
func (p *problem) gap(s *proof) (float64, error) {
	weights, previous := make(map[[2]string]map[string]float64), make(map[[2]string]map[string]float64)
	for _, row := range s.Solution {
		if row.Shed > 1e-12 {
			return 0, fmt.Errorf("%g of %s is shed", row.Shed, row.Source)
		}
		weights[[2]string{row.Source, row.Class}] = row.Weights
	}
	for _, row := range p.Previous {
		previous[[2]string{row.Source, row.Class}] = row.Weights
	}
	load := make(map[string]float64)
	objective, bound := 0.0, 0.0
	for _, d := range p.Demand {
		if d.Rate == 0 {
			continue
		}
		key := [2]string{d.Source, d.Class}
		distance, work := 1.0, 1.0
		for _, c := range p.Classes {
			if c.Name == d.Class {
				if c.Distance != nil {
					distance = *c.Distance
				}
				if c.Work != nil {
					work = *c.Work
				}
			}
		}
		least, kept, sum := math.Inf(1), 0.0, 0.0
		cost := make(map[string]float64)
		for _, e := range p.Engines {
			rtt, ok := p.RTT[d.Source][e.Name]
			if !ok {
				rtt = p.RTT[d.Source][e.Cluster]
			}
			zero := distance*rtt + work*(e.Latency.Base+e.Latency.Slope)
			w := weights[key][e.Name]
			sum += w
			load[e.Name] += d.Rate * w * work
			objective += d.Rate * w * zero
			moved := w
			if was := previous[key]; was != nil {
				moved = max(0, w-was[e.Name])
				objective += p.MovePrice * d.Rate * moved
			}
			cost[e.Name] = zero + work*s.Prices[e.Name]
			if e.Capacity > 0 {
				least = min(least, cost[e.Name])
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			return 0, fmt.Errorf("the weights of %s are %g in sum", d.Source, sum)
		}
		// The row's dual: what was there stays where that is cheaper than to move to
		// the cheapest.
		if was := previous[key]; was != nil {
			move := least + p.MovePrice
			for name, w := range was {
				if c, ok := cost[name]; ok && c < move {
					bound += d.Rate * w * c
					kept += w
				}
			}
			bound += d.Rate * max(0, 1-kept) * move
		} else {
			bound += d.Rate * least
		}
	}
	for _, e := range p.Engines {
		y, b, limit := load[e.Name], e.Latency.Slope, e.Latency.Limit
		if y > e.Capacity*(1+1e-9) {
			return 0, fmt.Errorf("%s has %g of %g", e.Name, y, e.Capacity)
		}
		if e.Capacity == 0 {
			continue
		}
		objective += y * (b/(1-y/limit) - b)
		// G*(v) = max over y of v y - G(y): where the derivative b/(1-y/limit)^2 - b is v.
		v := s.Prices[e.Name]
		best := limit * (1 - math.Sqrt(b/(b+v)))
		best = min(max(best, 0), e.Capacity)
		bound -= v*best - best*(b/(1-best/limit)-b)
	}
	return (objective - bound) / objective, nil
}
