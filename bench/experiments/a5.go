package experiments

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"text/tabwriter"

	"penstock/selector"
)

// A5: the slots of a table against its weights, and what keys make of them
// through the gateway's pick. A table that was made at once, and one behind
// twenty reweightings.

const (
	a5Engines  = 200
	a5Reweighs = 20
	noticeable = 0.01 // weights from which on the relative error counts
)

type a5Row struct {
	Table     string  `json:"table"`
	Seed      uint64  `json:"seed"`
	TV        float64 `json:"tv"`             // slots against weights
	Worst     float64 `json:"worst"`          // relative error of an engine with x >= 1 %
	Keys      int     `json:"keys"`           // distinct
	KeysTV    float64 `json:"keys_tv"`        // picks against weights
	ChanceTV  float64 `json:"keys_tv_chance"` // what chance alone gives on average
	PValue    float64 `json:"chi_square_p"`   // of picks against weights
	Statistic float64 `json:"chi_square"`     // with engines-1 degrees of freedom
	Elsewhere int     `json:"not_by_slot"`    // picks by another rule than the slot
}

type a5Result struct {
	Engines int     `json:"engines"`
	Rows    []a5Row `json:"rows"`
}

func runA5(o Options) (result, error) {
	keys := 1_000_000
	if o.Short {
		keys, o.Seeds = 200_000, min(o.Seeds, 2)
	}
	r := &a5Result{Engines: a5Engines}
	for seed := range uint64(o.Seeds) {
		dice := rand.New(rand.NewPCG(seed, 0xa5))
		f := newTabled(a5Engines)
		weights := drawWeights(dice, a5Engines)
		f.publish(weights, 0)
		r.Rows = append(r.Rows, f.split("fresh", seed, weights, keys, 0))
		now := int64(0)
		for range a5Reweighs {
			now += 5
			weights = jitter(dice, weights, 0.1)
			f.publish(weights, now)
		}
		r.Rows = append(r.Rows, f.split("reweighted", seed, weights, keys, now))
	}
	return r, nil
}

// jitter changes every weight by up to so much of itself.
func jitter(dice *rand.Rand, w []float64, by float64) []float64 {
	next := slices.Clone(w)
	for i := range next {
		next[i] *= 1 + by*(2*dice.Float64()-1)
	}
	return normalise(next)
}

// split compares the table in use with the weights that it was made of.
func (f *tabled) split(name string, seed uint64, weights []float64, keys int, now int64) a5Row {
	s := selector.New(f.tables, nil)
	keyer := selector.NewKeyer("", "")
	class := f.class(s, now)
	slots := sharesOf(f.tables.Load().Classes[classKey].SlotCounts())
	row := a5Row{Table: name, Seed: seed, Keys: keys, TV: variation(weights, slots)}
	for i, x := range weights {
		if x >= noticeable {
			row.Worst = max(row.Worst, math.Abs(slots[i]/x-1))
		}
	}
	counts := make([]int, len(weights))
	var d selector.Decision
	for k := range keys {
		ask := selector.Ask{Key: keyer.Key(tabledModel, "", selector.DomainID, fmt.Sprintf("conversation-%d-%d", seed, k)), Keyed: true, Now: now}
		lease := s.Pick(class, &ask, &d)
		counts[lease.Engine.Live.ID]++
		if d.Why != selector.WhySlot {
			row.Elsewhere++
		}
		lease.Release()
	}
	row.KeysTV = variation(weights, sharesOf(counts))
	for i, x := range weights {
		expected := x * float64(keys)
		row.Statistic += (float64(counts[i]) - expected) * (float64(counts[i]) - expected) / expected
		// E|X - EX| of a binomial that is nearly normal; half of their sum is the distance.
		row.ChanceTV += math.Sqrt(x*(1-x)/float64(keys)*2/math.Pi) / 2
	}
	row.PValue = chiSquareTail(row.Statistic, len(weights)-1)
	return row
}

// chiSquareTail is the chance of a chi-square at least so large: Q(k/2, x/2),
// by its series below k/2 + 1 and its continued fraction above.
func chiSquareTail(x float64, degrees int) float64 {
	a, z := float64(degrees)/2, x/2
	if z <= 0 {
		return 1
	}
	lg, _ := math.Lgamma(a)
	front := math.Exp(a*math.Log(z) - z - lg)
	if z < a+1 {
		term, total := 1/a, 1/a
		for n := 1; n < 10_000 && term > total*1e-15; n++ {
			term *= z / (a + float64(n))
			total += term
		}
		return 1 - front*total
	}
	const tiny = 1e-300
	b := z + 1 - a
	c, d := 1/tiny, 1/b
	h := d
	for n := 1; n < 10_000; n++ {
		k := -float64(n) * (float64(n) - a)
		b += 2
		d = k*d + b
		if math.Abs(d) < tiny {
			d = tiny
		}
		c = b + k/c
		if math.Abs(c) < tiny {
			c = tiny
		}
		d = 1 / d
		h *= d * c
		if math.Abs(d*c-1) < 1e-15 {
			break
		}
	}
	return front * h
}

func (r *a5Result) missed() (bad []string) {
	for _, w := range r.Rows {
		where := fmt.Sprintf("%s table, seed %d: ", w.Table, w.Seed)
		if w.TV > 0.003 {
			bad = append(bad, where+fmt.Sprintf("slots within 0.3 %% of the weights, TV is %.3f %%", 100*w.TV))
		}
		if w.Worst > 0.02 {
			bad = append(bad, where+fmt.Sprintf("every engine with 1 %% or more within 2 %%, one is off by %.2f %%", 100*w.Worst))
		}
		if w.PValue <= 0.001 {
			bad = append(bad, where+fmt.Sprintf("keys no further than chance: p = %.2g", w.PValue))
		}
	}
	return bad
}

func (r *a5Result) print(w io.Writer) {
	fmt.Fprintf(w, "%d engines of log-normal weights\n\n", r.Engines)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "table\tseed\tslots: TV\tworst engine of 1 % or more\tkeys\tTV\tby chance\tchi-square p\t")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.3f %%\t%.2f %%\t%d\t%.2f %%\t%.2f %%\t%.3f\t\n", row.Table, row.Seed, 100*row.TV, 100*row.Worst, row.Keys, 100*row.KeysTV, 100*row.ChanceTV, row.PValue)
	}
	_ = t.Flush()
}
