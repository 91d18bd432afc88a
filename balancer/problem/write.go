package problem

import (
	"encoding/json"
	"math"
)

// MarshalJSON writes the problem as a file that Parse reads.
func (p *Problem) MarshalJSON() ([]byte, error) {
	doc := written{Name: p.Name, Sources: p.Sources, Engines: make([]writtenEngine, len(p.Engines)), Classes: make([]writtenClass, len(p.Classes)),
		Demand: make([]writtenDemand, len(p.Demand)), RTT: make(map[string]map[string]float64, len(p.Sources)),
		ShedPrice: make(map[string]float64, Priorities), ShedCurvature: p.ShedCurvature, MovePrice: p.MovePrice}
	for j := range p.Engines {
		doc.Engines[j] = p.Engines[j].written()
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		doc.Classes[i] = writtenClass{Name: c.Name, Priority: c.Priority.String(), DistanceWeight: c.DistanceWeight, Work: c.Work}
		if !c.All {
			names := make([]string, len(c.Engines))
			for k, j := range c.Engines {
				names[k] = p.Engines[j].Name
			}
			doc.Classes[i].Engines = &names
		}
	}
	for i, d := range p.Demand {
		doc.Demand[i] = writtenDemand{p.Sources[d.Source], p.Classes[d.Class].Name, d.Rate}
	}
	for i, name := range p.Sources {
		doc.RTT[name] = p.writtenTrips(i)
	}
	for i, v := range p.ShedPrice {
		doc.ShedPrice[Priority(i).String()] = v
	}
	for _, row := range p.Previous {
		weights := make(map[string]float64, len(row.Weights))
		for _, w := range row.Weights {
			weights[p.Engines[w.Engine].Name] = w.Weight
		}
		doc.Previous = append(doc.Previous, writtenPrevious{p.Sources[row.Source], p.Classes[row.Class].Name, weights})
	}
	return json.Marshal(doc)
}

// written is the document, with its members in the order of the reference.
type written struct {
	Name          string                        `json:"name,omitempty"`
	Sources       []string                      `json:"sources"`
	Engines       []writtenEngine               `json:"engines"`
	Classes       []writtenClass                `json:"classes"`
	Demand        []writtenDemand               `json:"demand"`
	RTT           map[string]map[string]float64 `json:"rtt_ms"`
	ShedPrice     map[string]float64            `json:"shed_price_ms"`
	ShedCurvature float64                       `json:"shed_curvature"`
	Previous      []writtenPrevious             `json:"previous,omitempty"`
	MovePrice     float64                       `json:"move_price_ms"`
}

type writtenEngine struct {
	Name     string         `json:"name"`
	Cluster  string         `json:"cluster,omitempty"`
	Capacity float64        `json:"capacity"`
	Latency  writtenLatency `json:"latency"`
}

type writtenLatency struct {
	Base   *float64     `json:"base_ms,omitempty"`
	Slope  *float64     `json:"slope_ms,omitempty"`
	Limit  *float64     `json:"limit,omitempty"`
	Points [][2]float64 `json:"points,omitempty"`
}

type writtenClass struct {
	Name           string    `json:"name"`
	Priority       string    `json:"priority"`
	DistanceWeight float64   `json:"distance_weight"`
	Work           float64   `json:"work"`
	Engines        *[]string `json:"engines,omitempty"`
}

type writtenDemand struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Rate   float64 `json:"rate"`
}

type writtenPrevious struct {
	Source  string             `json:"source"`
	Class   string             `json:"class"`
	Weights map[string]float64 `json:"weights"`
}

func (e *Engine) written() writtenEngine {
	w := writtenEngine{Name: e.Name, Cluster: e.Cluster, Capacity: e.Capacity}
	if len(e.Latency.Points) == 0 {
		l := e.Latency
		w.Latency = writtenLatency{Base: &l.Base, Slope: &l.Slope, Limit: &l.Limit}
		return w
	}
	for _, at := range e.Latency.Points {
		w.Latency.Points = append(w.Latency.Points, [2]float64{at.Load, at.Time})
	}
	return w
}

// writtenTrips are the round trips of a source: by cluster where all of its
// engines share a place and no engine elsewhere has its name, else by engine.
func (p *Problem) writtenTrips(source int) map[string]float64 {
	places := make(map[string]int, len(p.Engines))
	apart := make(map[string]bool)
	names := make(map[string]string, len(p.Engines))
	for j := range p.Engines {
		e := &p.Engines[j]
		names[e.Name] = e.Cluster
		if place, known := places[e.Cluster]; known && place != e.Place {
			apart[e.Cluster] = true
		}
		places[e.Cluster] = e.Place
	}
	trips := make(map[string]float64)
	for j := range p.Engines {
		e := &p.Engines[j]
		v := p.RTT[source][e.Place]
		if math.IsNaN(v) {
			continue
		}
		if of, isName := names[e.Cluster]; e.Cluster == "" || apart[e.Cluster] || isName && of != e.Cluster {
			trips[e.Name] = v
		} else {
			trips[e.Cluster] = v
		}
	}
	return trips
}
