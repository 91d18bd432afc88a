package sim

// prefixes is what a router believes the engines have in their caches: for
// each block of prompts it sent, to whom. Equal hashes are equal text up to
// there, so the map is the router's radix tree. Old blocks go when there are
// too many for an engine.
type prefixes struct {
	most  int // blocks of one engine
	nodes []map[uint64]int64
	size  []int
	tick  int64
	match []int
}

func newPrefixes(engines, most int) *prefixes {
	p := &prefixes{most: most, nodes: make([]map[uint64]int64, engines), size: make([]int, engines), match: make([]int, engines)}
	for i := range p.nodes {
		p.nodes[i] = make(map[uint64]int64)
	}
	return p
}

// matched is how many blocks of the prompt each engine is believed to have, in
// a slice that the next call uses again.
func (p *prefixes) matched(blocks []uint64) []int {
	for i, have := range p.nodes {
		n := 0
		for n < len(blocks) {
			if _, ok := have[blocks[n]]; !ok {
				break
			}
			n++
		}
		p.match[i] = n
	}
	return p.match
}

// sent notes a prompt that went to an engine.
func (p *prefixes) sent(i int, blocks []uint64) {
	p.tick++
	have := p.nodes[i]
	for _, b := range blocks {
		have[b] = p.tick
	}
	if len(have) > p.most+p.most/4 {
		p.evict(i)
	}
}

// evict forgets the quarter that was used longest ago, about.
func (p *prefixes) evict(i int) {
	have := p.nodes[i]
	oldest := p.tick
	sum := int64(0)
	for _, at := range have {
		sum += p.tick - at
		oldest = min(oldest, at)
	}
	for len(have) > p.most {
		limit := oldest + (p.tick-oldest)/4 + 1
		next := p.tick
		for b, at := range have {
			if at < limit {
				delete(have, b)
			} else {
				next = min(next, at)
			}
		}
		oldest = next
	}
}
