package selector

// What is counted of a class's requests for the control plane. A class that
// nobody counts takes calls and does nothing.

// Offered counts a request, before any shed: prompt is a guess of its prompt
// tokens, limit its bound on the answer's tokens, 0 for none. One that its
// client repeats is counted apart: else what is shed would come back as demand.
func (c Class) Offered(priority uint8, repeated bool, prompt, limit int) {
	switch {
	case c.traffic == nil:
	case repeated:
		c.traffic.Retry(priority)
	default:
		c.traffic.Offer(priority, prompt, limit)
	}
}

// Answered counts the tokens of a whole answer.
func (c Class) Answered(priority uint8, prompt, cached, output int) {
	if c.traffic != nil {
		c.traffic.Answer(priority, prompt, cached, output)
	}
}
