package balancer

import (
	"time"

	"penstock/route"
)

// Peers are the gateways that share their engines with this one: how demand
// comes to the one that leads, and its plan to all. A loop calls them from its
// own goroutine; none of it may block for long.
type Peers interface {
	// Tell reports this gateway's demand, which nobody changes after.
	Tell(own *route.Demand)
	// Demands are the last reports of all gateways, this one included, by name.
	Demands() []*route.Demand
	// Gateways are those that there are, by source, replicas and this one
	// included: by the last word of whoever leads or led, so that they stay while
	// nobody does.
	Gateways() map[string]int
	// Leads reports whether this gateway plans for all, and in which epoch.
	Leads() (epoch uint64, leads bool)
	// Publish gives the leader's plan to all. An error says that another leads.
	Publish(*route.Plan) error
	// Plan is the newest plan of whoever leads; nil before the first.
	Plan() *route.Plan
	// PlanAge is how long ago whoever leads last said that Plan holds.
	PlanAge() time.Duration
	// News has a value when Plan has changed since the last one was taken.
	News() <-chan struct{}
}

// alone is a gateway without peers: it leads itself.
type alone struct {
	demand *route.Demand
	plan   *route.Plan
}

func (a *alone) Tell(own *route.Demand)   { a.demand = own }
func (a *alone) Demands() []*route.Demand { return []*route.Demand{a.demand} }
func (a *alone) Gateways() map[string]int {
	if a.demand == nil {
		return nil
	}
	return map[string]int{a.demand.Source: a.demand.Replicas}
}
func (a *alone) Leads() (uint64, bool)       { return 0, true }
func (a *alone) Publish(p *route.Plan) error { a.plan = p; return nil }
func (a *alone) Plan() *route.Plan           { return a.plan }
func (a *alone) PlanAge() time.Duration      { return 0 }
func (a *alone) News() <-chan struct{}       { return nil }
