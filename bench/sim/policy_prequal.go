package sim

import (
	"slices"
	"time"
)

// prequal is the rule of Prequal (Wydrowski, Kleinberg, Rumble, Archer:
// "Load is not what you should balance: Introducing Prequal", NSDI 2024,
// arXiv 2312.10172): a pool of up to 16 probes, each an engine's requests in
// flight and its latency at about that load; 3 probes to random engines with each
// request; probes go when they are a second old, used often enough, or the
// worst. Hot-cold rule: engines with more in flight than the 0.84-quantile of
// what probes tell are hot; of the cold ones that with the least latency, where
// all are hot that with the fewest in flight. Round trips count as part of what
// the answer took, for there is one pool over all regions.
type prequal struct {
	plainRouter
	pool  []probe
	under []probe         // on their way back, by when they arrive
	rif   []float64       // in flight, as the last probes told: the distribution
	lag   []time.Duration // by engine
	turn  int
}

type probe struct {
	at      time.Duration // when it is back
	who     int
	rif     float64
	latency float64 // s
	uses    int
}

const (
	probePool  = 16
	probeRate  = 3
	probeAge   = time.Second
	probeUses  = 2 // b_reuse of the paper for these rates, rounded up
	hotFrom    = 0.84
	rifHistory = 64
)

func newPrequal(w *world, g *gateway) router {
	p := &prequal{plainRouter: plainRouter{g}}
	for _, e := range w.servers {
		p.lag = append(p.lag, 2*w.trip(g, e))
	}
	return p
}

func (p *prequal) pick(w *world, r *request) int {
	p.g.signals(w)
	p.collect(w)
	best := p.choose(w)
	for range probeRate {
		p.send(w, w.dice.IntN(len(w.servers)))
	}
	p.trim()
	return best
}

// send asks an engine; what it answers is of when it is asked, about.
func (p *prequal) send(w *world, i int) {
	e := w.servers[i]
	if e.down {
		return
	}
	latency := 0.0
	if n := min(e.recents, len(e.recent)); n > 0 {
		var sorted [len(e.recent)]float32
		copy(sorted[:], e.recent[:n])
		slices.Sort(sorted[:n])
		latency = float64(sorted[n/2])
	}
	p.under = append(p.under, probe{at: w.now + p.lag[i], who: i, rif: float64(e.batch.Running() + e.batch.Waiting()),
		latency: latency + p.lag[i].Seconds()})
}

// collect takes in the probes that are back, and drops those that are too old.
func (p *prequal) collect(w *world) {
	left := p.under[:0]
	for _, b := range p.under {
		if b.at > w.now {
			left = append(left, b)
			continue
		}
		p.pool = append(p.pool, b)
		if p.rif = append(p.rif, b.rif); len(p.rif) > rifHistory {
			p.rif = p.rif[:copy(p.rif, p.rif[1:])]
		}
	}
	p.under = left
	p.pool = slices.DeleteFunc(p.pool, func(b probe) bool { return w.now-b.at > probeAge || b.uses >= probeUses || p.g.seen[b.who].down })
	if over := len(p.pool) - probePool; over > 0 {
		p.pool = slices.Delete(p.pool, 0, over)
	}
}

// choose is the hot-cold rule; with fewer than two probes of engines that may
// have the request an engine by chance.
func (p *prequal) choose(w *world) int {
	may := 0
	for i := range p.pool {
		if p.g.alive(p.pool[i].who) {
			may++
		}
	}
	if may < 2 {
		i := w.dice.IntN(len(w.servers))
		for n := 0; n < len(w.servers) && !p.g.alive(i); n++ {
			i = (i + 1) % len(w.servers)
		}
		return i
	}
	hot := p.hot()
	best := -1
	for i := range p.pool {
		b := &p.pool[i]
		if p.g.alive(b.who) && b.rif <= hot && (best < 0 || b.latency < p.pool[best].latency) {
			best = i
		}
	}
	for i := range p.pool {
		if !p.g.alive(p.pool[i].who) {
			continue
		}
		if best < 0 || p.pool[best].rif > hot && p.pool[i].rif < p.pool[best].rif {
			best = i
		}
	}
	p.pool[best].uses++
	p.pool[best].rif++ // the request that it is used for
	return p.pool[best].who
}

func (p *prequal) hot() float64 {
	var sorted [rifHistory]float64
	n := copy(sorted[:], p.rif)
	slices.Sort(sorted[:n])
	return sorted[min(int(hotFrom*float64(n)), n-1)]
}

// trim takes a probe out for each request, in turn the oldest and the worst.
func (p *prequal) trim() {
	if len(p.pool) < probePool {
		return
	}
	out := 0
	if p.turn++; p.turn%2 == 0 {
		for i := range p.pool {
			if p.pool[i].rif > p.pool[out].rif || p.pool[i].rif == p.pool[out].rif && p.pool[i].latency > p.pool[out].latency {
				out = i
			}
		}
	}
	p.pool = slices.Delete(p.pool, out, out+1)
}
