package sim

import (
	"math"
	"slices"
	"sort"
)

// points is how many points an engine has on the ring: what KubeAI has, and
// more than most.
const points = 256

// ring is a consistent hash ring (Karger et al. 1997): an engine's points, in
// order.
type ring struct {
	at  []uint64
	who []int32
}

func newRing(servers []*server) *ring {
	type point struct {
		at  uint64
		who int32
	}
	var all []point
	for _, e := range servers {
		h := hashOf(e.Name)
		for k := range uint64(points) {
			all = append(all, point{mix(h + k*0x9e3779b97f4a7c15), e.index})
		}
	}
	slices.SortFunc(all, func(a, b point) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return int(a.who - b.who)
	})
	r := &ring{}
	for _, p := range all {
		r.at, r.who = append(r.at, p.at), append(r.who, p.who)
	}
	return r
}

// hashOf is FNV-1a of a name.
func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// from calls try with the engines from a key's place on, each point once, until
// it says true.
func (r *ring) from(key uint64, try func(who int32) bool) {
	i := sort.Search(len(r.at), func(i int) bool { return r.at[i] >= key })
	for n := range r.at {
		if try(r.who[(i+n)%len(r.at)]) {
			return
		}
	}
}

// identity is what hashing policies of other products hash: the conversation,
// else the beginning of the prompt, else nothing that comes twice.
func identity(w *world, r *request) uint64 {
	switch {
	case r.Conversation != 0:
		return mix(r.Conversation)
	case len(r.Blocks) > 0:
		return mix(r.Blocks[0])
	}
	return w.dice.Uint64()
}

// consistentHash sends a key to the next point on the ring, whatever the load,
// as routers with session affinity do (vLLM production-stack's session
// routing, SMG's consistent_hashing: peers.md).
type consistentHash struct {
	plainRouter
	ring *ring
}

func newConsistentHash(w *world, g *gateway) router {
	return &consistentHash{plainRouter{g}, newRing(w.servers)}
}

func (p *consistentHash) pick(w *world, r *request) int {
	p.g.signals(w)
	best := 0
	p.ring.from(identity(w, r), func(who int32) bool {
		best = int(who)
		return p.g.alive(best)
	})
	return best
}

// boundedHash is consistent hashing with bounded loads (Mirrokni, Thorup,
// Zadimoghaddam 2016) as KubeAI's PrefixHash has it: of the engines from the
// key's place on the first one whose load, this request included, is at most
// 1.25 times the mean; 256 points an engine, all engines alike.
type boundedHash struct {
	plainRouter
	ring *ring
}

func newBoundedHash(w *world, g *gateway) router {
	return &boundedHash{plainRouter{g}, newRing(w.servers)}
}

const loadFactor = 1.25

func (p *boundedHash) pick(w *world, r *request) int {
	p.g.signals(w)
	sum, may := int32(0), 0
	for i, n := range p.g.out {
		if p.g.alive(i) {
			sum += n
			may++
		}
	}
	bound := int32(math.Ceil(float64(sum+1) / float64(max(may, 1)) * loadFactor))
	best, first := -1, -1
	p.ring.from(identity(w, r), func(who int32) bool {
		if !p.g.alive(int(who)) {
			return false
		}
		if first < 0 {
			first = int(who)
		}
		if p.g.out[who]+1 <= bound {
			best = int(who)
		}
		return best >= 0
	})
	if best < 0 {
		best = max(first, 0)
	}
	return best
}
