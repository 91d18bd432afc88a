package profile

import "math"

// stepping is an engine that works in steps, with its mean request; the letters
// are those of the package's comment. Times are in ms, loads in requests/ms.
type stepping struct {
	alpha, beta, gamma float64
	o, u               float64
	slots              float64 // 0 = no bound
}

func (s *stepping) steps() float64 { return s.o + 0.5 } // L

// zero is T(0).
func (s *stepping) zero() float64 { return s.steps()*(s.alpha+s.beta) + s.gamma*s.u }

// unbounded is Y, the load that no number of slots can carry.
func (s *stepping) unbounded() float64 { return 1 / (s.beta*s.o + s.gamma*s.u) }

// limit is the load at which all slots are busy all the time.
func (s *stepping) limit() float64 {
	if s.slots == 0 {
		return s.unbounded()
	}
	return 1 / (s.o*(s.alpha/s.slots+s.beta) + s.gamma*s.u)
}

// marginal is d(y T)/dy. The mean of the chain's occupancy grows by its variance
// as the logarithm of the load grows.
func (s *stepping) marginal(y float64) float64 {
	at := min(y, 0.98*s.limit()) // at the limit itself nothing is finite
	_, variance := s.occupancy(at)
	d := 1 - s.gamma*s.u*at
	return variance/(at*d) + s.gamma*s.u/(d*d)
}

// latency is T(y) of the chain; infinite from the limit on.
func (s *stepping) latency(y float64) float64 {
	if y <= 0 {
		return s.zero()
	}
	if y >= s.limit() {
		return math.Inf(1)
	}
	n, _ := s.occupancy(y)
	return n/y + s.gamma*s.u/(1-s.gamma*s.u*y)
}

// occupancy is the mean and the variance of the number of sequences at a load
// below the limit.
func (s *stepping) occupancy(y float64) (mean, variance float64) {
	d := 1 - s.gamma*s.u*y
	load := y * s.steps() / d
	if s.slots == 0 {
		// Negative binomial of shape r.
		r, rho := 1+s.alpha/s.beta, load*s.beta
		mean = r * rho / (1 - rho)
		return mean, mean / (1 - rho)
	}
	// Unnormalised probabilities p of n sequences and their moments.
	p, total, first, second := 1.0, 1.0, 0.0, 0.0
	slots := math.Floor(s.slots)
	for n := 1.0; n <= slots; n++ {
		p *= load * (s.alpha + s.beta*n) / n
		total, first, second = total+p, first+n*p, second+n*n*p
		if p < 1e-13*total && load*(s.alpha+s.beta*n) < n {
			break // less and less likely from here: what is left changes no digit
		}
		if total > 1e200 {
			p, total, first, second = p*1e-200, total*1e-200, first*1e-200, second*1e-200
		}
	}
	// Beyond the slots each further one is less likely by q.
	q := load * (s.alpha + s.beta*slots) / slots
	if q >= 1 {
		return math.Inf(1), math.Inf(1)
	}
	t0 := p * q / (1 - q)
	t1 := t0 / (1 - q)
	t2 := t1 * (1 + q) / (1 - q)
	total += t0
	first += slots*t0 + t1
	second += slots*slots*t0 + 2*slots*t1 + t2
	mean = first / total
	return mean, max(0, second/total-mean*mean)
}
