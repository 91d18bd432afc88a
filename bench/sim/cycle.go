package sim

import (
	"time"

	"penstock/engine"
	"penstock/protect"
	"penstock/route"
)

// peers joins the gateways of a run: the first one leads. What it publishes
// the others have with their next cycle.
type peers struct {
	members []*peer
	plan    *route.Plan
}

type peer struct {
	*peers
	at     int
	demand *route.Demand
}

func (p *peers) join() *peer {
	m := &peer{peers: p, at: len(p.members)}
	p.members = append(p.members, m)
	return m
}

// Tell implements balancer.Peers.
func (p *peer) Tell(own *route.Demand) { p.demand = own }

// Demands implements balancer.Peers.
func (p *peer) Demands() (all []*route.Demand) {
	for _, m := range p.members {
		if m.demand != nil {
			all = append(all, m.demand)
		}
	}
	return all
}

// Gateways implements balancer.Peers.
func (p *peer) Gateways() map[string]int {
	n := make(map[string]int)
	for _, m := range p.members {
		if m.demand != nil {
			n[m.demand.Source]++
		}
	}
	return n
}

// Leads implements balancer.Peers.
func (p *peer) Leads() (uint64, bool) { return 1, p.at == 0 }

// Publish implements balancer.Peers.
func (p *peer) Publish(plan *route.Plan) error { p.plan = plan; return nil }

// Plan implements balancer.Peers.
func (p *peer) Plan() *route.Plan { return p.plan }

// PlanAge implements balancer.Peers.
func (p *peer) PlanAge() time.Duration { return 0 }

// News implements balancer.Peers.
func (p *peer) News() <-chan struct{} { return nil }

// cycled is one control cycle of all gateways, the leader last: it then knows
// what all others see, and they have its plan with their next cycle.
func (w *world) cycled() {
	w.stats.look(w)
	w.reweigh()
	for i := len(w.gateways) - 1; i >= 0; i-- {
		g := w.gateways[i]
		if g.router != nil {
			continue
		}
		g.poll(w)
		g.deliver(w)
		g.loop.Cycle(w.clock())
		g.fixTurns(w)
	}
	w.events.add(w.now+time.Duration(w.Fleet.Period), cycle, 0, 0)
}

// reweigh tells all gateways that engines carry other parts of what they do.
func (w *world) reweigh() {
	if w.Reweigh == nil || w.now < time.Duration(w.reweighs+1)*w.ReweighEvery {
		return
	}
	w.reweighs++
	factors := w.Reweigh(w.reweighs)
	for _, g := range w.gateways {
		if g.router != nil {
			continue
		}
		configs := make([]engine.Config, len(w.servers))
		for i, e := range w.servers {
			configs[i] = e.config(w, i)
			capacity := factors[i]
			configs[i].Capacity = &capacity
		}
		if err := g.fleet.Apply(configs); err != nil {
			panic(err) // as many as before
		}
		for i := range configs {
			g.engines[i] = g.fleet.Set().ByName(configs[i].Name)
		}
	}
}

// fixTurns sets where new pools begin their turns, which is chance otherwise.
func (g *gateway) fixTurns(w *world) {
	for _, c := range g.tables.Load().Classes {
		if c.LastUsed() == 0 {
			c.BeginTurns(uint64(g.region))
		}
	}
}

// poll asks all engines what they are at.
func (g *gateway) poll(w *world) {
	p := poll{at: w.now, says: make([]signal, len(w.servers))}
	for i, e := range w.servers {
		w.settle(e)
		t := e.batch.Totals()
		p.says[i] = signal{down: e.down, running: float64(e.batch.Running()), waiting: float64(e.pending), kv: e.batch.KVUsed(),
			prompt: float64(t.Prompt), cached: float64(t.Cached), generated: float64(t.Generated), steps: float64(t.Steps)}
	}
	g.late = append(g.late, p)
}

// deliver brings the polls that are old enough to the gateway.
func (g *gateway) deliver(w *world) {
	n := 0
	for n < len(g.late) && g.late[n].at+time.Duration(w.Fleet.SignalDelay) <= w.now {
		n++
	}
	if n == 0 || g.heard && g.late[n-1].at == g.newest {
		return
	}
	p := g.late[n-1]
	g.heard, g.newest = true, p.at
	copy(g.seen, p.says)
	g.late = append(g.late[:0], g.late[n-1:]...) // the last one says how old the newest is
	if g.router != nil {
		return
	}
	for i := range p.says {
		g.tell(w, i, &p.says[i])
	}
}

const sampleFields = engine.FieldRunning | engine.FieldWaiting | engine.FieldKVUsed | engine.FieldPromptTokens |
	engine.FieldGeneratedTokens | engine.FieldCachedTokens | engine.FieldSteps

// tell is what the gateway's poller does with an engine's answer.
func (g *gateway) tell(w *world, i int, s *signal) {
	e := g.engines[i]
	now := w.clock()
	if s.down {
		e.SetStatus(engine.Down, engine.ReasonRefused, now)
		return
	}
	e.SetStatus(engine.Ready, engine.ReasonHealthy, now)
	e.SetSample(&engine.Sample{At: now, Has: sampleFields, Running: s.running, Waiting: s.waiting, KVUsed: s.kv,
		PromptTokens: s.prompt, GeneratedTokens: s.generated, CachedTokens: s.cached, Steps: s.steps})
}

// lookEvery is how often gateways look at their queues, as proxy's gates do.
const lookEvery = 100 * time.Millisecond

// looked is such a look at all gateways.
func (w *world) looked() {
	busy := false
	for _, g := range w.gateways {
		if g.router == nil {
			g.look(w)
		} else if t, ok := g.router.(ticker); ok {
			t.tick(w)
		} else {
			continue
		}
		busy = true
	}
	if busy {
		w.events.add(w.now+lookEvery, look, 0, 0)
	}
}

// ticker is a router that does something by itself now and then.
type ticker interface{ tick(w *world) }

// look is one look of a gateway: how full its engines are, the pace, who has
// waited for too long, what penalties leave.
func (g *gateway) look(w *world) {
	now := w.clock()
	inFlight, room := g.selector.Load(model)
	waiting := g.queue.Len()
	g.u.Update(float64(inFlight)+float64(waiting), float64(room), now)
	g.pace.Came(g.firsts)
	g.firsts = 0
	g.pace.Tick(waiting > 0, now)
	for p := range g.planned {
		g.planned[p].Tick(now)
	}
	for i, e := range g.engines {
		if e.Allowance() != 0 {
			e.SetAllowance(engine.NewAllowance(g.penalties[i].Factor(now), 1))
		}
	}
	if waiting == 0 {
		return
	}
	for p := protect.Critical; p <= protect.Sheddable; p++ {
		for {
			o := g.queue.Oldest(p)
			if o == nil || now.Sub(o.Since) < g.pace.Worth(patience(p), now) {
				break
			}
			g.queue.Remove(o)
			o.Value.waits = nil
			g.refuse(w, o.Value, shedTimeout)
		}
	}
	g.dispatch(w)
}
