package main

import (
	"time"

	"penstock/engine"
)

// order gives an operator's order to an engine: from its return on no pick
// finds the engine ready, or, with Serve, its health decides again. It is nil
// where no engine has that name.
func (g *gateway) order(name string, o engine.Order) *engine.Engine {
	e := g.fleet.Set().ByName(name)
	if e == nil {
		return nil
	}
	if e.SetOrder(o, time.Now()) {
		g.log.Info("engine ordered", "engine", name, "order", o.String(), "state", e.Status().State.String(), "in_flight", e.InFlight())
		g.fleet.Touch() // the table follows
		g.state.saveOrders(g.fleet)
	}
	return e
}

// forgetOthers drops what is kept for engines that are not in the set any more.
func (g *gateway) forgetOthers(set *engine.Set) {
	g.handler.ForgetEngines(func(name string) bool { return set.ByName(name) != nil })
	hosts := make(map[string]bool, len(set.Engines))
	for _, e := range set.Engines {
		hosts[e.Base.Host] = true
	}
	g.handler.ForgetAddresses(func(host string) bool { return hosts[host] })
}
