package balancer

import (
	"math"

	"penstock/route"
)

// Surge is by what factor demand is higher than gateways tell it together: more
// than 1 where the last seconds have brought them more requests than chance
// explains. Each for itself is slower to believe it, for it has seen fewer. What
// is not sure yet is believed less what chance may have in it.
func Surge(lately ...[route.LatelyWindows]route.Lately) float64 {
	factor := 1.0
	for w := range route.LatelyWindows {
		sum := route.Lately{}
		for i := range lately {
			l := &lately[i][w]
			sum.Requests += l.Requests
			sum.Expected += l.Expected
			sum.Variance += l.Variance
		}
		deviation := math.Sqrt(sum.Variance + 1)
		z := (sum.Requests - sum.Expected) / deviation
		chance := surgeSure * min(1, max(0, (stepSure-z)/(stepSure-surgeSure)))
		if sum.Expected > 0 {
			factor = max(factor, (sum.Requests-chance*deviation)/sum.Expected)
		}
	}
	return factor
}

// surgeSure is by how many standard deviations there must be more requests than
// told to raise the demand at all; from stepSure on it is raised to what came.
const surgeSure = 3

// surge raises the demand of each component by the factor that it shows as a
// whole. lately is that of the rows.
func surge(s *Situation, lately [][route.LatelyWindows]route.Lately) {
	for _, part := range partsOf(s) {
		var all [][route.LatelyWindows]route.Lately
		for _, c := range part.rows {
			all = append(all, lately[c])
		}
		if factor := Surge(all...); factor > 1 {
			for _, c := range part.rows {
				for p := range s.Rows[c].Rate {
					s.Rows[c].Rate[p] *= factor
				}
			}
		}
	}
}
