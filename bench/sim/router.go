package sim

import "time"

// router is a policy of another product, of one gateway.
type router interface {
	// pick is the engine of a request; hold where it is to wait here. Then
	// the router sends it later, by world.send.
	pick(w *world, r *request) int
	ended(w *world, r *request)
	// forget drops a request that waits here.
	forget(r *request)
}

// hold is no engine.
const hold = -1

// plainRouter is what most routers need: no queue, nothing to learn at the end.
type plainRouter struct{ g *gateway }

func (plainRouter) ended(*world, *request) {}
func (plainRouter) forget(*request)        {}

// signalsAge is how old a foreign router's view of engines gets before it
// reads them again: they poll more often than once a second.
const signalsAge = 100 * time.Millisecond

// signals are what engines say, as a router sees it that polls often.
func (g *gateway) signals(w *world) []signal {
	if n := len(g.late); n == 0 || w.now-g.late[n-1].at >= signalsAge {
		g.poll(w)
	}
	g.deliver(w)
	return g.seen
}

func (g *gateway) anyAlive() bool {
	for i := range g.seen {
		if g.alive(i) {
			return true
		}
	}
	return false
}

// alive reports whether the router takes the engine for one that answers, which
// it finds out by the next poll, and that may have the request at hand.
func (g *gateway) alive(i int) bool {
	return !g.seen[i].down && (g.bound < 0 || g.world.servers[i].region == g.bound)
}
