package route

// Cost is what one more request costs on an engine that works in steps, in ms
// of latency: its own, and what those that are there lose by it. With n
// requests there and prompts of b tokens that it has not begun to answer, a
// request with a prompt of p tokens costs
//
//	Alone + n PerSeq + (b + p (1 + n)) PerToken
//
// for the engine computes prompts one after the other, and while it computes one
// the answers of all others stand still. An answer of o tokens takes o steps
// of alpha + beta n ms (optimizer.md 1): Alone is o (alpha + beta), PerSeq is
// 2 o beta, half of it the request's own, half that of the others. Beyond its
// Slots a request also waits until one of those ahead of it has ended. It is the
// marginal cost that the plan equalises over engines, at what is there now instead of at
// the mean. The zero value is not known.
type Cost struct {
	Alone    float32 // ms, but for its prompt
	PerSeq   float32 // ms for each request that is there
	PerToken float32 // ms of a prompt token; 0: not known
	Slots    float32 // requests at once
}

// Known reports whether there is anything to compare by.
func (c *Cost) Known() bool { return c.PerToken > 0 }

// Of is the cost of a request with a prompt of p tokens where n are there and
// pending tokens of their prompts are to be computed.
func (c *Cost) Of(p, n, pending float64) float64 {
	alone, perSeq, slots := float64(c.Alone), float64(c.PerSeq), float64(c.Slots)
	cost := alone + n*perSeq + float64(c.PerToken)*(pending+p*(1+n))
	if beyond := n + 1 - slots; beyond > 0 {
		// One of its slots comes free each time that a full engine has made a mean
		// answer, over its slots.
		cost += beyond * (alone + (slots-1)*perSeq/2) / slots
	}
	return cost
}
