package main

import (
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/engine/enginetest"
)

// cluster is one place of the demo's world: clients, a gateway and an engine.
type cluster struct {
	name     string
	demand   float64 // requests/s of its clients
	capacity float64 // requests/s that the gateways are told its engine carries
	engine   enginetest.Config
}

// profile is the engine's latency against load, a fit of simulated ones of few
// slots under random arrivals: it carries a tenth more than its capacity.
func (c *cluster) profile() *engine.Profile {
	return &engine.Profile{Base: 350, Slope: 45, Limit: 1.1 * c.capacity}
}

// trip is the round trip between two clusters, by their places in the world.
type trip struct {
	a, b int
	rtt  time.Duration
}

// world is what every policy is compared in. Values, shared by all.
type world struct {
	clusters []cluster
	trips    []trip // within a cluster it takes nothing
}

// demoWorld is the worked example of three clusters: load and capacity 90/100,
// 120/100 and 40/80, ten requests/s for every hundred. B has too much, C has
// room and is nearer to B than A is. Engines have few slots, so that requests
// wait as they fill; each carries about 10 % more than its capacity, for
// machines that are busy.
var demoWorld = world{
	clusters: []cluster{
		{"A", 9, 10, enginetest.Config{Name: "a", Slots: 5, TTFT: 40 * time.Millisecond, TBOT: 51 * time.Millisecond}},
		{"B", 12, 10, enginetest.Config{Name: "b", Slots: 5, TTFT: 40 * time.Millisecond, TBOT: 51 * time.Millisecond}},
		{"C", 4, 8, enginetest.Config{Name: "c", Slots: 4, TTFT: 40 * time.Millisecond, TBOT: 52 * time.Millisecond}},
	},
	trips: []trip{{0, 1, 120 * time.Millisecond}, {1, 2, 40 * time.Millisecond}, {0, 2, 150 * time.Millisecond}},
}

// The middle cluster is the one with too much.
const excess = 1

// exchanged is the world with what A and C have exchanged: clients and engine.
// Their places stay, so that B's excess has to go the long way.
func (w world) exchanged() world {
	c := append([]cluster(nil), w.clusters...)
	first, last := &c[0], &c[len(c)-1]
	first.demand, last.demand = last.demand, first.demand
	first.capacity, last.capacity = last.capacity, first.capacity
	names := [2]string{first.engine.Name, last.engine.Name}
	first.engine, last.engine = last.engine, first.engine
	first.engine.Name, last.engine.Name = names[0], names[1]
	w.clusters = c
	return w
}

func (w world) rtt(a, b int) time.Duration {
	for _, t := range w.trips {
		if t.a == a && t.b == b || t.a == b && t.b == a {
			return t.rtt
		}
	}
	return 0
}

// engines are the names of all engines, in the order of their clusters.
func (w world) engines() (names []string) {
	for _, c := range w.clusters {
		names = append(names, c.engine.Name)
	}
	return names
}

// contestant is one policy in the world.
type contestant struct {
	name     string
	policy   balancer.Policy
	resident bool // part of the demand where there is too much may not leave
	alone    bool // each gateway plans for itself
}

// contestants are compared side by side, all with the same requests at the
// same times.
var contestants = []contestant{
	{name: "nearest", policy: balancer.Nearest},
	{name: "feedback", policy: balancer.Feedback},
	{name: "optimal", policy: balancer.Optimal},
	{name: "optimal-residency", policy: balancer.Optimal, resident: true},
}
