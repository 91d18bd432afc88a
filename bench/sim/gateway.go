package sim

import (
	"log/slog"
	"math"
	"strconv"
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/protect"
	"penstock/route"
	"penstock/selector"
)

// gateway is that of one region. Under a policy of ours it is made of the
// gateway's own parts; under a foreign one of a router.
type gateway struct {
	region int
	name   string
	router router  // nil: one of ours
	world  *world  // of a router
	bound  int     // of a router: the region that the request at hand is bound to; -1: none
	out    []int32 // attempts of this gateway, by engine
	seen   []signal
	late   []poll // on their way, the oldest first; the newest that is here stays
	heard  bool
	newest time.Duration // when what is in seen was said

	fleet    *engine.Fleet
	engines  []*engine.Engine // by index of the world's
	tables   *route.Published
	loop     *balancer.Loop
	selector *selector.Selector
	keyer    selector.Keyer

	queue     protect.Queue[*request]
	pace      protect.Pace
	u         protect.Utilisation
	budget    protect.Budget
	planned   [protect.Sheddable + 1]protect.Admission
	penalties []protect.Penalty
	firsts    float64
	output    float64 // tokens of the mean answer; 0: not known
}

// signal is what an engine says of itself.
type signal struct {
	down                      bool
	running, waiting          float64
	kv                        float64
	prompt, cached, generated float64
	steps                     float64
}

// poll is what all engines said at one moment.
type poll struct {
	at   time.Duration
	says []signal
}

const model = "m"

// queueWait is how long a critical request waits for a place, as the gateway's default.
const queueWait = 10 * time.Second

// headroom is that of in-flight caps above slots.
const headroom = 1.15

func newGateway(w *world, region int) *gateway {
	g := &gateway{region: region, name: w.Fleet.Regions[region].Name, out: make([]int32, len(w.servers)), seen: make([]signal, len(w.servers))}
	if w.Policy.foreign != nil {
		g.world, g.bound = w, -1
		g.router = w.Policy.foreign(w, g)
		return g
	}
	g.fleet, g.tables = engine.NewFleet(), route.NewPublished(g.name)
	configs := make([]engine.Config, len(w.servers))
	for i, e := range w.servers {
		configs[i] = e.config(w, i)
	}
	if err := g.fleet.Apply(configs); err != nil {
		panic(err) // fewer than mostEngines
	}
	g.engines = make([]*engine.Engine, len(w.servers))
	for i := range configs {
		e := g.fleet.Set().ByName(configs[i].Name)
		g.engines[i] = e
		e.SetStatus(engine.Ready, engine.ReasonHealthy, start)
		e.Reached(w.Fleet.Network.trips[region][w.servers[i].region], start)
	}
	g.loop = balancer.NewLoop(balancer.Options{Fleet: g.fleet, Tables: g.tables, Policy: w.Policy.ours, Period: time.Duration(w.Fleet.Period),
		Gateway: g.name, Peers: w.peers.join(), Log: slog.New(slog.DiscardHandler), Patient: true})
	g.selector, g.keyer = selector.New(g.tables, nil), selector.NewKeyer("", "")
	g.penalties = make([]protect.Penalty, len(w.servers))
	return g
}

// config is what a gateway is told of an engine.
func (e *server) config(w *world, index int) engine.Config {
	c := engine.Config{Name: e.Name, URL: "http://127.0.0.1:" + strconv.Itoa(10_000+index), Cluster: e.Region, Models: []string{model},
		Labels: map[string][]string{"region": {e.Region}}, MaxInFlight: int(math.Ceil(float64(e.Slots) * headroom))}
	if !e.Untold && e.PerSeq > 0 {
		c.Profile = &engine.Profile{Step: e.Step, PerSeq: e.PerSeq, PerToken: e.PerToken, Slots: float64(e.Slots), Name: e.Profile}
	}
	if f := w.Policy.fill; f > 0 {
		capacity := f * w.Policy.capacity[index]
		c.Capacity = &capacity
	}
	return c
}

// enter is a client's call.
func (g *gateway) enter(w *world, r *request) {
	if g.router != nil {
		w.stats.entered(r)
		g.routeOn(w, r)
		return
	}
	g.admit(w, r)
}

// routeOn asks the foreign router; one that has nowhere to send it to yet keeps it.
func (g *gateway) routeOn(w *world, r *request) {
	g.bind(r)
	g.signals(w)
	if !g.anyAlive() {
		w.over(r, failedGone, 0)
		return
	}
	if i := g.router.pick(w, r); i >= 0 {
		w.send(r, w.servers[i])
	}
}

// bind is the filter that every router has: which engines the request at hand
// may go to at all.
func (g *gateway) bind(r *request) {
	g.bound = -1
	for i := range g.world.Fleet.Regions {
		if r.Require != "" && g.world.Fleet.Regions[i].Name == r.Require {
			g.bound = i
		}
	}
}

// ended is the end of an attempt.
func (g *gateway) ended(w *world, r *request) {
	if g.router == nil {
		g.account(w, r)
		return
	}
	g.router.ended(w, r)
	if r.how == whole || r.how == failedTooLong || r.first != 0 || r.tries > w.Policy.retries {
		w.over(r, r.how, 0)
		return
	}
	r.server = nil
	if p, ok := g.router.(pauser); ok {
		w.events.add(w.now+p.pause(r.tries), resend, r.id, r.gen)
		return
	}
	g.routeOn(w, r)
}

// forget takes a request out of whatever holds it here.
func (g *gateway) forget(w *world, r *request) {
	if r.waits != nil {
		g.queue.Remove(r.waits)
		r.waits = nil
	}
	if g.router != nil && r.server == nil {
		g.router.forget(r)
	}
}

// gone is told of an attempt whose client left.
func (g *gateway) gone(w *world, r *request) {
	if g.router != nil {
		g.router.ended(w, r)
		return
	}
	g.release(w, r)
}
