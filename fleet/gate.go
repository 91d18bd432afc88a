package fleet

import "cmp"

// Gate lets in what leaders publish: (epoch, seq) only grows, and an epoch has
// one leader. The zero value has let nothing in. A value, like Election.
type Gate struct {
	Leader Identity // of Epoch; zero: not known
	Epoch  uint64
	Seq    uint64 // of the last one that was let in
}

// Judge says whether a table may come in. It changes nothing.
func (g *Gate) Judge(from Identity, epoch, seq uint64) Refusal {
	switch c := cmp.Compare(epoch, g.Epoch); {
	case c < 0:
		return Older
	case c > 0:
		return Accepted
	case g.Leader != Identity{} && g.Leader != from:
		return TwoLeaders
	case seq <= g.Seq:
		return Replayed
	}
	return Accepted
}

// Enter takes a table that Judge has accepted.
func (g *Gate) Enter(from Identity, epoch, seq uint64) { *g = Gate{from, epoch, seq} }

// Floor lets nothing in from epochs before this one.
func (g *Gate) Floor(epoch uint64) {
	if epoch > g.Epoch {
		*g = Gate{Epoch: epoch}
	}
}
