package route

import (
	"math"

	"github.com/cespare/xxhash/v2"
)

// Weighted rendezvous hashing over slots: slot s belongs to the candidate j
// with the greatest ln(u_sj)/w_j, u_sj a hash of (s, j) in (0, 1]. It is a
// function of names and weights alone; a candidate that leaves gives up its
// own slots and nobody else's, and the runner-up of each slot is who gets it.
// (Thaler and Ravishankar 1998; weights as in Mosharaf's and Schindelhauer's
// logarithmic method.)

// groupAbove is the number of candidates from which the rendezvous has two
// levels, a group by its members' weight and then a member, so that a slot
// costs about two square roots of the candidates instead of all of them.
const groupAbove = 512

func seedOf(name string) uint64 { return xxhash.Sum64String(name) }

// mix is the 64-bit finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

const golden = 0x9e3779b97f4a7c15

// unit is the hash of (slot, seed) in (0, 1].
func unit(slot, seed uint64) float64 {
	return float64(mix(slot*golden^seed)>>11+1) / (1 << 53)
}

// contest holds the best two of a slot while candidates are offered.
type contest struct {
	bestScore, secondScore float64
	best, second           uint16
}

func newContest() contest {
	return contest{bestScore: math.Inf(-1), secondScore: math.Inf(-1), best: None, second: None}
}

// offer lets candidate i of weight w compete with its unit hash u.
// ln u <= u - 1 spares the logarithm of nearly all who lose.
func (c *contest) offer(i uint16, u, w float64) {
	if !(w > 0) || u-1 <= c.secondScore*w {
		return
	}
	switch score := math.Log(u) / w; {
	case score > c.bestScore:
		c.second, c.secondScore = c.best, c.bestScore
		c.best, c.bestScore = i, score
	case score > c.secondScore:
		c.second, c.secondScore = i, score
	}
}

// rendezvousOf finds the best two candidates of a slot: over all of them, or
// in two levels where g is given.
func (p *Pool) rendezvousOf(g *groups, slot int) (best, second uint16) {
	if g != nil {
		return p.rendezvousIn(g, slot)
	}
	c := newContest()
	for i := range p.Candidates {
		c.offer(uint16(i), unit(uint64(slot), p.seeds[i]), p.Candidates[i].Weight)
	}
	return c.best, c.second
}

// groups is the two-level rendezvous of a large pool.
type groups struct {
	members [][]uint16
	weight  []float64
	seed    []uint64
}

// newGroups puts each candidate into a group by its own hash, so that
// membership does not depend on who else is there.
func (p *Pool) newGroups() *groups {
	n := 1
	for n*n < len(p.Candidates) {
		n *= 2
	}
	g := &groups{members: make([][]uint16, n), weight: make([]float64, n), seed: make([]uint64, n)}
	for i := range p.Candidates {
		k := mix(p.seeds[i]) & uint64(n-1)
		g.members[k] = append(g.members[k], uint16(i))
		g.weight[k] += p.Candidates[i].Weight
	}
	for k := range g.seed {
		g.seed[k] = mix(uint64(k) + golden)
	}
	return g
}

func (p *Pool) rendezvousIn(g *groups, slot int) (best, second uint16) {
	outer := newContest()
	for k := range g.weight {
		outer.offer(uint16(k), unit(uint64(slot), g.seed[k]), g.weight[k])
	}
	if outer.best == None {
		return None, None
	}
	inner := newContest()
	for _, i := range g.members[outer.best] {
		inner.offer(i, unit(uint64(slot), p.seeds[i]), p.Candidates[i].Weight)
	}
	if inner.second == None && outer.second != None {
		other := newContest()
		for _, i := range g.members[outer.second] {
			other.offer(i, unit(uint64(slot), p.seeds[i]), p.Candidates[i].Weight)
		}
		inner.second = other.best
	}
	return inner.best, inner.second
}
