package profile

import (
	"math"
	"slices"

	"penstock/route"
)

// Engines that could be equal: what is learned of them differs by chance, and
// under little load a plan makes much of little, for there the best place for
// all is the engine that seems a little faster. So speeds are drawn together as
// far as their difference could be chance.
//
// It is shrinkage toward a common speed with a hierarchy found in the data. The
// two that are most likely equal are joined, and stand from then on as one at
// their mean, and so on until all are one (Ward). At each joint the difference d
// of the two sides, and its standard error e, give z = d/e. What z is by chance
// depends on how many there are, for the sides were not drawn by lot: of n equals
// the m highest are on average
//
//	z = phi(q) sqrt(n / (p (1-p))),  p = m/n,  q the quantile of 1-p
//
// above the others. Up to some more than that it is taken for chance and both
// sides are where their mean is; from twice that on it is believed as it is, in
// between in part (firm shrinkage). So equals have the same speed to the last
// bit, engines of different makes keep theirs, and as the errors of what is
// learned grow smaller all keep theirs.

const (
	// surely is what is added to the z of chance: of two equals one in a hundred
	// pairs then seems to differ.
	surely = 1.4
	// floor is the part of an error that answers do not show, relatively: two
	// engines at different loads are learned with different faults of the model.
	// Below 2.5 x floor x sqrt(2), that is 16 %, no two engines differ.
	floor = 0.045
	// mostCells bounds how many are compared with each other.
	mostCells = 100
)

// chance is z of m among n equals, and some more.
func chance(m, n int) float64 {
	p := float64(m) / float64(n)
	q := math.Sqrt2 * math.Erfinv(1-2*p)
	return math.Exp(-q*q/2)/math.Sqrt(2*math.Pi)*math.Sqrt(float64(n)/(p*(1-p))) + surely
}

// Alike are the speeds of engines that could be equal, drawn together. mean is
// their mean request. Engines of whose speed nothing is known keep what they
// have. Slots that were learned as about the same are one number to engines of
// one speed, the highest, for an engine shows no more than it has; where they
// were not seen they are those of peers.
func Alike(speeds []route.Speed, mean Request) []route.Speed {
	out := slices.Clone(speeds)
	mean = mean.usable()
	var known []int
	for i := range speeds {
		if s := &speeds[i]; s.Answers > 0 && s.PerSeq > 0 {
			known = append(known, i)
		}
	}
	if len(known) < 2 {
		return out
	}
	kins := make([]*kin, len(known))
	for n, i := range known {
		kins[n] = kinOf(i, &speeds[i], mean)
	}
	root := joined(cells(kins))
	root.settle(root.speed, out)
	agreeOnSlots(out, known)
	return out
}

// atWork is at how many sequences latencies are compared, in logarithms: alone,
// at loads between, where speeds are best known, and so many that only they
// count, as in a full engine.
var atWork = [figures]float64{1, 4, 8, 16, 32, 64, 1000}

const figures = 7

// kin is an engine, or several that are taken together.
type kin struct {
	engines []int   // of a leaf
	of      [2]*kin // of a joint
	beyond  float64 // of a joint: z over that of chance
	count   int     // engines

	speed  vector // mean of alpha, beta and gamma
	weight float64
	log    [figures]float64 // of the mean
	sure   [figures]float64 // 1 / variance
	mean   Request
}

func kinOf(i int, s *route.Speed, mean Request) *kin {
	k := &kin{engines: []int{i}, count: 1, speed: vector{s.Step, s.PerSeq, s.PerToken}, mean: mean}
	k.look()
	for f, g := range k.costs() {
		k.sure[f] = 1 / (max(0, quadratic(s.Doubt, g))/math.Exp(2*k.log[f]) + floor*floor)
	}
	k.weight = slices.Max(k.sure[:])
	return k
}

// costs are the coefficients of alpha, beta and gamma in the figures.
func (k *kin) costs() (c [figures]vector) {
	for f, n := range atWork {
		steps := k.mean.Output + 0.5
		c[f] = vector{steps, steps * n, k.mean.uncached() * n}
	}
	return c
}

func (k *kin) look() {
	for f, g := range k.costs() {
		k.log[f] = math.Log(max(dot(g, k.speed), 1e-9))
	}
}

// quadratic is g'Sg, S the upper triangle of a symmetric matrix.
func quadratic(s [6]float64, g vector) float64 {
	return g[0]*g[0]*s[0] + g[1]*g[1]*s[3] + g[2]*g[2]*s[5] + 2*(g[0]*g[1]*s[1]+g[0]*g[2]*s[2]+g[1]*g[2]*s[4])
}

// errorsApart is how many standard errors two are apart: the figure that differs
// most counts.
func errorsApart(a, b *kin) float64 {
	most := 0.0
	for f := range figures {
		d := a.log[f] - b.log[f]
		most = max(most, d*d*a.sure[f]*b.sure[f]/(a.sure[f]+b.sure[f]))
	}
	return math.Sqrt(most)
}

// join makes one of two.
func join(a, b *kin) *kin {
	n := a.count + b.count
	k := &kin{of: [2]*kin{a, b}, beyond: errorsApart(a, b) / chance(a.count, n), count: n, weight: a.weight + b.weight, mean: a.mean}
	for i := range k.speed {
		k.speed[i] = (a.weight*a.speed[i] + b.weight*b.speed[i]) / k.weight
	}
	k.look()
	for f := range k.sure {
		k.sure[f] = a.sure[f] + b.sure[f]
	}
	return k
}

// cells joins engines beforehand that differ by a fraction of what is never
// taken for a difference, so that there are few to compare.
func cells(kins []*kin) []*kin {
	width := floor / 2
	for ; len(cellsOf(kins, width)) > mostCells; width *= 2 {
	}
	var list []*kin
	at := cellsOf(kins, width)
	for n := range at {
		at[n] = -1
	}
	for _, k := range kins {
		c := k.cell(width)
		if n := at[c]; n >= 0 {
			list[n] = join(list[n], k)
			list[n].beyond = 0
		} else {
			at[c] = len(list)
			list = append(list, k)
		}
	}
	return list
}

func cellsOf(kins []*kin, width float64) map[[figures]int16]int {
	at := make(map[[figures]int16]int)
	for _, k := range kins {
		at[k.cell(width)]++
	}
	return at
}

func (k *kin) cell(width float64) (c [figures]int16) {
	for f := range c {
		c[f] = int16(math.Floor(k.log[f] / width))
	}
	return c
}

// joined is all of them as one; the list is used up. Each knows which of the
// later ones is nearest to it.
func joined(list []*kin) *kin {
	nearest, far := make([]int, len(list)), make([]float64, len(list))
	look := func(i int) {
		nearest[i], far[i] = -1, math.Inf(1)
		for j := i + 1; j < len(list); j++ {
			if list[j] == nil {
				continue
			}
			if d := errorsApart(list[i], list[j]); nearest[i] < 0 || d < far[i] {
				nearest[i], far[i] = j, d
			}
		}
	}
	for i := range list {
		look(i)
	}
	for range len(list) - 1 {
		a := -1
		for i := range list {
			if list[i] != nil && nearest[i] >= 0 && (a < 0 || far[i] < far[a]) {
				a = i
			}
		}
		b := nearest[a]
		list[a], list[b] = join(list[a], list[b]), nil
		for i := range list[:max(a, b)+1] {
			switch {
			case list[i] == nil:
			case i == a || nearest[i] == a || nearest[i] == b:
				look(i)
			case i < a: // the joint may be nearer than its parts were
				if d := errorsApart(list[i], list[a]); d < far[i] {
					nearest[i], far[i] = a, d
				}
			}
		}
	}
	return list[0]
}

// believedPart is the part of a difference that is believed.
func believedPart(beyond float64) float64 {
	switch {
	case beyond <= 1:
		return 0
	case beyond >= 2:
		return 1
	}
	return 2 * (1 - 1/beyond)
}

// settle puts the engines of k where k is put.
func (k *kin) settle(at vector, out []route.Speed) {
	for _, i := range k.engines {
		out[i].Step, out[i].PerSeq, out[i].PerToken = at[0], at[1], at[2]
	}
	if k.of[0] == nil {
		return
	}
	part := believedPart(k.beyond)
	for _, side := range k.of {
		where := at
		if part > 0 {
			for i := range where {
				where[i] = max(0, at[i]+part*(side.speed[i]-k.speed[i]))
			}
		}
		side.settle(where, out)
	}
}

// agreeOnSlots gives engines of one speed whose slots were learned as about the
// same the highest of them, and those whose slots nobody has seen the median of
// those of their speed, else of all: but no fewer than they have had at work.
func agreeOnSlots(speeds []route.Speed, known []int) {
	of := func(i int) vector { return vector{speeds[i].Step, speeds[i].PerSeq, speeds[i].PerToken} }
	all, alike := []float64(nil), make(map[vector][]float64)
	for _, i := range known {
		if s := speeds[i].Slots; s > 0 {
			all, alike[of(i)] = append(all, s), append(alike[of(i)], s)
		}
	}
	slices.Sort(all)
	for _, list := range alike {
		slices.Sort(list)
	}
	for _, i := range known {
		s, seen := &speeds[i], alike[of(i)]
		if s.Slots > 0 {
			above, _ := slices.BinarySearch(seen, s.Slots*(1+likeSlots))
			s.Slots = max(s.Slots, seen[max(above-1, 0)])
			continue
		}
		if len(seen) == 0 {
			seen = all
		}
		if n := len(seen); n > 0 {
			s.Slots = max(seen[n/2], s.Held)
		}
	}
}

// likeSlots is how much slots that were learned of equal engines differ by
// chance.
const likeSlots = 0.15
