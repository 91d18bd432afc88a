package problem

// Plan is what is certified: where each row's demand goes, what is shed, and
// the prices that prove it.
type Plan struct {
	// The weights of row c are Weights[Start[c]:Start[c+1]], on engines in
	// ascending order; with Shed[c] they sum to 1.
	Start   []int
	Weights []Share
	Shed    []float64
	// Price is lambda_j, ms per unit of load at engine j, 0 or more.
	Price []float64
}

// Row is the weights of row c.
func (t *Plan) Row(c int) []Share { return t.Weights[t.Start[c]:t.Start[c+1]] }

// Reset makes room for a plan of so many rows and engines and keeps memory.
func (t *Plan) Reset(rows, engines int) {
	t.Start = append(t.Start[:0], 0)
	t.Weights = t.Weights[:0]
	t.Shed = resize(t.Shed, rows)
	t.Price = resize(t.Price, engines)
}

// resize gives a slice of n zeros, in the memory of s where it suffices.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
