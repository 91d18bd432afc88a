package sim

// selectivePush is SkyWalker's policy (Xia et al., "SkyWalker: A Locality-Aware
// Cross-Region Load Balancer for LLM Inference", EuroSys 2026, arXiv 2505.24095):
// a balancer in each region pushes only to engines that have nothing pending,
// as probed. Of the available ones here, that with the longest prefix match
// in the region's trie, the fewest in flight among equals. Where none here
// is available, another region's that has some, by the trie of what this region
// sent there, the nearest among equals. Where none is anywhere, the request
// waits here, first come first served.
type selectivePush struct {
	g      *gateway
	known  *prefixes
	queue  []*request
	pushed []int32 // since the last probe, by engine: what it does not know of yet
	told   []float64
}

func newSelectivePush(w *world, g *gateway) router {
	return &selectivePush{g: g, known: newPrefixes(len(w.servers), treeTokens/w.BlockTok), pushed: make([]int32, len(w.servers)), told: make([]float64, len(w.servers))}
}

func (p *selectivePush) pick(w *world, r *request) int {
	if len(p.queue) > 0 {
		p.queue = append(p.queue, r)
		return hold
	}
	i := p.choose(w, r)
	if i == hold {
		p.queue = append(p.queue, r)
		return hold
	}
	p.known.sent(i, r.Blocks)
	return i
}

func (p *selectivePush) choose(w *world, r *request) int {
	seen := p.g.signals(w)
	match := p.known.matched(r.Blocks)
	best := hold
	for i := range seen {
		if !p.g.alive(i) || seen[i].waiting > 0 {
			continue
		}
		e := w.servers[i]
		// A batch that has no slot left lets nothing in: it would pend.
		if seen[i].running >= float64(e.Slots) || p.g.out[i] > int32(e.Slots) {
			continue
		}
		if best == hold || p.better(w, i, best, match) {
			best = i
		}
	}
	return best
}

// better compares two that are available: what is here comes first, then the
// longer match, then the nearer, then the fewer in flight.
func (p *selectivePush) better(w *world, i, than int, match []int) bool {
	a, b := w.servers[i], w.servers[than]
	if here, there := a.region == p.g.region, b.region == p.g.region; here != there {
		return here
	}
	if match[i] != match[than] {
		return match[i] > match[than]
	}
	if x, y := w.trip(p.g, a), w.trip(p.g, b); x != y {
		return x < y
	}
	return p.g.out[i] < p.g.out[than]
}

func (p *selectivePush) ended(*world, *request) {}

func (p *selectivePush) forget(r *request) {
	for i, q := range p.queue {
		if q == r {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}

// tick pushes what waits to engines that have nothing pending any more.
func (p *selectivePush) tick(w *world) {
	for len(p.queue) > 0 {
		r := p.queue[0]
		p.g.bind(r)
		i := p.choose(w, r)
		if i == hold {
			return
		}
		p.queue = p.queue[1:]
		p.known.sent(i, r.Blocks)
		w.send(r, w.servers[i])
	}
}
