package sim

// cacheAware is the cache-aware policy of SGLang's router and SMG, from their
// documentation (docs.sglang.ai, "SGLang Router"; github.com/lightseekorg/smg,
// load-balancing.md): where max - min of the loads is above balance-abs and max
// above balance-rel times min, the engine with the fewest in flight; else the
// one with the longest prefix match, if that is more than cache-threshold of
// the prompt; else the one with the smallest tree. Their command-line defaults:
// 0.3, 64, 1.5; trees of up to 67,108,864 characters, about 16 million tokens.
type cacheAware struct {
	plainRouter
	known *prefixes
}

const (
	cacheThreshold = 0.3
	balanceAbs     = 64
	balanceRel     = 1.5
	treeTokens     = 1 << 24
)

func newCacheAware(w *world, g *gateway) router {
	return &cacheAware{plainRouter{g}, newPrefixes(len(w.servers), treeTokens/w.BlockTok)}
}

func (p *cacheAware) pick(w *world, r *request) int {
	p.g.signals(w)
	best := p.choose(w, r)
	p.known.sent(best, r.Blocks)
	return best
}

func (p *cacheAware) choose(w *world, r *request) int {
	out := p.g.out
	least, most, fewest := int32(1<<30), int32(0), 0
	begin := w.dice.IntN(len(out)) // ties go by chance
	for k := range out {
		i := (begin + k) % len(out)
		if !p.g.alive(i) {
			continue
		}
		if out[i] < least {
			least, fewest = out[i], i
		}
		most = max(most, out[i])
	}
	if most-least > balanceAbs && float64(most) > balanceRel*float64(least) {
		return fewest
	}
	longest, smallest := -1, -1
	match := p.known.matched(r.Blocks)
	for k := range out {
		i := (begin + k) % len(out)
		if !p.g.alive(i) {
			continue
		}
		if longest < 0 || match[i] > match[longest] {
			longest = i
		}
		if smallest < 0 || len(p.known.nodes[i]) < len(p.known.nodes[smallest]) {
			smallest = i
		}
	}
	switch {
	case longest < 0:
		return fewest
	case len(r.Blocks) > 0 && float64(match[longest]*w.BlockTok) > cacheThreshold*float64(r.Prompt):
		return longest
	case len(r.Blocks) == 0: // no trees: all are alike
		return fewest
	}
	return smallest
}
