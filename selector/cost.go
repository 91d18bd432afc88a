package selector

import "penstock/route"

// Where the plan knows what one more request costs on an engine (route.Cost),
// new work goes to the cheapest of a few candidates. In flight alone says too
// little where prompts are uneven: one of 100,000 tokens keeps an engine for
// as long as a hundred of 1,000, and whoever comes after it waits.
//
// The candidates are drawn by weight, so that what the plan gives nothing gets
// nothing, but for one of a conversation's. Two are enough where loads are alike
// (Mitzenmacher 2001, the power of two choices); with few, uneven requests in
// flight four find a free engine where two find none: on real traces the mean
// latency is up to 15 % less.

// choices is how many candidates are compared for a conversation.
const choices = 4

// plannedPart is what part of new work goes by the plan's weights and what is
// in flight alone, as a divisor: an engine that costs more at all times would
// get nothing new otherwise, and what was learned of it would never be put right.
const plannedPart = 16

// laterFresh is the part of a later turn's prompt that its engine computes,
// as a divisor: the rest is there from the turn before. Whether it is a tenth
// or a half makes no difference that can be told from chance.
const laterFresh = 4

// lastResort is a weight up to which an engine is there only for when all
// others are full: the plan gives it nothing.
const lastResort = 1e-6

// priced reports whether candidates can be compared by cost; all can, or none.
func (k *picking) priced(i uint16) bool {
	return i != route.None && k.p.Candidates[i].Cost.Known()
}

// cost of the request on candidate i: everything that is there counts, also
// what others sent.
func (k *picking) cost(i uint16) float64 {
	c := &k.p.Candidates[i]
	return c.Cost.Of(float64(k.a.Prompt), float64(c.Live.InFlight()+c.Live.Others()), float64(c.Live.Prompts()))
}

// offers are candidates that are compared by cost, and the cheapest of them.
type offers struct {
	who  [choices]uint16
	cost [choices]float64
	n    int
	best int
}

// add compares one more candidate. The first of equals stays.
func (o *offers) add(k *picking, i uint16) {
	for _, was := range o.who[:o.n] {
		if was == i {
			return
		}
	}
	o.who[o.n], o.cost[o.n] = i, k.cost(i)
	if o.cost[o.n] < o.cost[o.best] {
		o.best = o.n
	}
	o.n++
}

// cheapest compares what a slot gives: its engine, its alternate, and further
// ones of its own sequence; and any engine that the plan uses at all.
func (k *picking) cheapest(slot route.Slot) uint16 {
	var o offers
	offer := func(i uint16) {
		if i != route.None && (i == slot.Engine || k.p.Candidates[i].Weight > lastResort) && k.usable(i) && k.keeps(i) {
			o.add(k, i)
		}
	}
	offer(slot.Engine)
	offer(slot.Alternate)
	index := k.p.SlotIndex(k.a.Key)
	for n := uint64(1); n <= choices-3; n++ {
		offer(k.p.Draw(spread(index, n)))
	}
	if i := k.anyone(); k.p.Candidates[i].Used && k.usable(i) && k.keeps(i) {
		o.add(k, i)
	}
	return k.chosen(&o, slot.Engine)
}

// anyone is any candidate, whatever its weight. Weights are those of the mean
// demand, and send next to nothing far away; a burst fills what is near, and for
// its length an idle engine far away costs less. Without it the mean latency on a
// trace of long bursts is half as much again.
func (k *picking) anyone() uint16 {
	return uint16(spread(k.a.Key, choices) % uint64(len(k.p.Candidates)))
}

// cheapestDrawn compares two draws by weight: a request without a key leaves
// nothing behind, so that a better place for it is worth less than the time to
// look for one. None where protection leaves only a part of one of them: then
// the two are compared by what is left.
func (k *picking) cheapestDrawn(i, j uint16) uint16 {
	var o offers
	if !k.offerDrawn(&o, i) || !k.offerDrawn(&o, j) {
		return route.None
	}
	return k.chosen(&o, route.None)
}

func (k *picking) offerDrawn(o *offers, i uint16) bool {
	if k.p.Candidates[i].Live.Allowance() != 0 {
		return false
	}
	if k.usable(i) {
		o.add(k, i)
	}
	return true
}

// chosen is the cheapest of what was offered, and notes what it was compared
// with; otherwise where nothing was.
func (k *picking) chosen(o *offers, otherwise uint16) uint16 {
	if o.n == 0 {
		return otherwise
	}
	for n, i := range o.who[:o.n] {
		if n != o.best {
			c := &k.p.Candidates[i]
			k.d.look(c, c.Live.InFlight(), limit{cap: int32(c.Cap)}, Heavier)
			k.d.Looks[k.d.N-1].Cost = float32(o.cost[n])
		}
	}
	k.cheap, k.cheapCost = o.who[o.best], float32(o.cost[o.best])
	return k.cheap
}
