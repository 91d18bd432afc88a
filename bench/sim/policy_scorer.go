package sim

import "math"

// scorer is the default profile of llm-d's router (llm-d-router v0.10,
// README and docs/architecture: queue-scorer weight 2, kv-cache-utilization-
// scorer 2, prefix-cache-scorer 3, max-score-picker). Queue: 1 for the shortest
// queue of all, 0 for the longest, linear between; KV: what is free of it;
// prefix: the matched part of the prompt's blocks, as far as the router itself
// sent them there (31,250 blocks an engine, least recently used go first).
// Signals are as old as its metrics refresh.
type scorer struct {
	plainRouter
	known *prefixes
}

const (
	queueWeight  = 2
	kvWeight     = 2
	prefixWeight = 3
	blocksPerPod = 31_250
)

func newScorer(w *world, g *gateway) router {
	return &scorer{plainRouter{g}, newPrefixes(len(w.servers), blocksPerPod)}
}

func (p *scorer) pick(w *world, r *request) int {
	seen := p.g.signals(w)
	shortest, longest := math.Inf(1), 0.0
	for i := range seen {
		if !p.g.alive(i) {
			continue
		}
		shortest, longest = min(shortest, seen[i].waiting), max(longest, seen[i].waiting)
	}
	match := p.known.matched(r.Blocks)
	best, most := -1, 0.0
	begin := w.dice.IntN(len(seen))
	for k := range seen {
		i := (begin + k) % len(seen)
		if !p.g.alive(i) {
			continue
		}
		score := kvWeight * (1 - seen[i].kv)
		if longest > shortest {
			score += queueWeight * (longest - seen[i].waiting) / (longest - shortest)
		} else {
			score += queueWeight
		}
		if n := len(r.Blocks); n > 0 {
			score += prefixWeight * float64(match[i]) / float64(n)
		}
		if best < 0 || score > most {
			best, most = i, score
		}
	}
	best = max(best, 0)
	p.known.sent(best, r.Blocks)
	return best
}
