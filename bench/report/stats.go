package report

import "math"

// Estimate is a mean over seeds with the half of its 95 % confidence interval
// (Student's t). Half is NaN where there are fewer than two.
type Estimate struct {
	N    int
	Mean float64
	Half float64
}

func estimate(values []float64) Estimate {
	e := Estimate{N: len(values), Mean: math.NaN(), Half: math.NaN()}
	if e.N == 0 {
		return e
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	e.Mean = sum / float64(e.N)
	if e.N < 2 {
		return e
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - e.Mean) * (v - e.Mean)
	}
	n := float64(e.N)
	e.Half = t975(e.N-1) * math.Sqrt(squares/(n-1)/n)
	return e
}

// sure reports whether the interval leaves zero out. A spread of nothing at all
// over several seeds is a sure difference, unless there is none.
func (e Estimate) sure() bool {
	return !math.IsNaN(e.Half) && math.Abs(e.Mean) > e.Half && math.Abs(e.Mean) > 1e-12
}

// t975 is the 97.5th percentile of Student's t with n degrees of freedom: exact
// for 1 and 2, from the table to 10, else the expansion of Cornish and Fisher
// (within 0.001 from 11 on).
func t975(n int) float64 {
	table := [...]float64{0, 12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281}
	if n < len(table) {
		return table[n]
	}
	const z = 1.959964
	v := float64(n)
	return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v) + (3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*v*v*v)
}
