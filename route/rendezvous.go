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

// Above flatMost candidates the rendezvous is a tree: a branch by the weight
// of all below it, then one of its branches, then a member. A slot then costs
// the branches of a few levels and not all candidates. Who sits on which branch follows
// from its own name.
const (
	flatMost   = 32
	branchBits = 4
	branches   = 1 << branchBits
)

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

// rendezvous is the tree over the candidates of a pool, or one of its nodes.
type rendezvous struct {
	weight  float64 // of all below
	seed    uint64
	nodes   []rendezvous // nil: members decide
	members []member
}

type member struct {
	seed      uint64
	weight    float64
	candidate uint16
}

func newRendezvous(cands []Candidate) *rendezvous {
	levels := 0
	for n := len(cands); n > flatMost; n >>= branchBits {
		levels++
	}
	root := &rendezvous{}
	for i := range cands {
		seed := seedOf(cands[i].Engine.Name)
		root.add(levels, mix(seed), member{seed: seed, weight: cands[i].Weight, candidate: uint16(i)})
	}
	return root
}

// add puts m where the low bits of path lead.
func (r *rendezvous) add(levels int, path uint64, m member) {
	r.weight += m.weight
	if levels == 0 {
		r.members = append(r.members, m)
		return
	}
	if r.nodes == nil {
		r.nodes = make([]rendezvous, branches)
		for k := range r.nodes {
			r.nodes[k].seed = mix(r.seed + uint64(k) + golden)
		}
	}
	r.nodes[path%branches].add(levels-1, path>>branchBits, m)
}

// of finds the best two candidates of a slot. The second is the runner-up
// among the members beside the best, else the best of the branch beside.
func (r *rendezvous) of(slot uint64) (best, second uint16) {
	c := newContest()
	if r.nodes == nil {
		for i := range r.members {
			m := &r.members[i]
			c.offer(m.candidate, unit(slot, m.seed), m.weight)
		}
		return c.best, c.second
	}
	for k := range r.nodes {
		n := &r.nodes[k]
		c.offer(uint16(k), unit(slot, n.seed), n.weight)
	}
	if c.best == None {
		return None, None
	}
	best, second = r.nodes[c.best].of(slot)
	if second == None && c.second != None {
		second, _ = r.nodes[c.second].of(slot)
	}
	return best, second
}
