package selector

import (
	"penstock/engine"
	"penstock/route"
)

// lookAllowed is look for a candidate of which protection leaves a part.
func (d *Decision) lookAllowed(c *route.Candidate, n int64, l limit, f Fit, a engine.Allowance) {
	if d.N < len(d.Looks) {
		d.look(c, n, l, f)
		d.Looks[d.N-1].allowed = a
	}
}

// keeps reports whether the candidate's penalty, if any, leaves it the key.
func (k *picking) keeps(i uint16) bool {
	a := k.p.Candidates[i].Live.Allowance()
	return a == 0 || a.Keeps(secondHash(k.a.Key))
}

// secondHash of a key says which conversations leave an engine that a penalty
// has lowered: the same ones each time, whatever slots they are in.
func secondHash(key uint64) uint64 { return spread(key, 0x70656e616c747921) }

// takeAllowed is take for a candidate of which protection leaves a part. A
// conversation that its penalty keeps away does not take it within its bound.
func (k *picking) takeAllowed(c *route.Candidate, l limit, why Why, full Fit) bool {
	a := c.Live.Allowance()
	l.cap = int32(a.Cap(int64(l.cap)))
	n := c.Live.InFlight()
	fit := Picked
	switch {
	case k.a.tried(c.Live):
		fit = TriedYet
	case full == AtBound && !a.Keeps(secondHash(k.a.Key)):
		fit = Penalised
	case c.Live.Acquire(l.allowed(a.Factor())):
		k.d.Why = why
	default:
		fit = full
	}
	k.d.lookAllowed(c, n, l, fit, a)
	return fit == Picked
}

// redraws bounds the draws of one pick: with all candidates under heavy
// penalties any of them will do.
const redraws = 8

// drawAgain holds a draw by weight to what protection leaves: a candidate with
// a factor m is kept with probability m, else drawn again.
func (k *picking) drawAgain(i uint16, r uint64) uint16 {
	for n := uint64(2); n < 2+redraws && !k.p.Candidates[i].Live.Allowance().Keeps(spread(r, n<<8)); n++ {
		i = k.p.Draw(spread(r, n))
	}
	return i
}

// heavier reports whether a has more in flight for its share than b. Under a
// penalty in flight counts one more than it is: an engine that fails
// fast has nothing in flight, and is not light for it (protection.md 2.2).
func heavier(a, b *route.Candidate) bool {
	la, lb := a.Live.Allowance(), b.Live.Allowance()
	return float64(a.Live.InFlight()+1)*b.Share*lb.Factor() > float64(b.Live.InFlight()+1)*a.Share*la.Factor()*(1+tie)
}

// lighterAllowed is lighterOfTwo where protection leaves a part of one of the
// two that were drawn.
func (k *picking) lighterAllowed(why Why, r uint64, i, j uint16) uint16 {
	i, j = k.drawAgain(i, r), k.drawAgain(j, spread(r, 1))
	a, b := &k.p.Candidates[i], &k.p.Candidates[j]
	if i != j && heavier(a, b) && k.usable(j) {
		k.d.lookAllowed(a, a.Live.InFlight(), limit{cap: int32(a.Cap)}, Heavier, a.Live.Allowance())
		i, j = j, i
		a, b = b, a
	}
	if k.takeWithinCap(a, why) {
		return i
	}
	if i != j && k.takeWithinCap(b, why) {
		return j
	}
	return k.anyRoom(r)
}
