package trace

import "time"

// Request is one request of a trace.
type Request struct {
	At           time.Duration // from the trace's start; never less than that of the request before
	Conversation uint64        // 0: none is known
	Turn         int           // within its conversation, from 0
	// Think is the pause between the answer of the turn before and this request;
	// negative: the trace does not say. A replay that keeps the order of turns
	// waits for it, others go by At.
	Think  time.Duration
	Prompt int // tokens, all of them
	Output int // tokens
	// Blocks are the prompt's blocks from its start, BlockTokens tokens each:
	// equal numbers mean equal prompts up to the block's end, across all requests
	// of the trace. The last one may be partial. Nil: the trace does not say.
	Blocks      []uint64
	BlockTokens int
	Class       string // model, workload or type as the trace names it; may be empty
	Source      string // where it entered; empty in all public traces
	Priority    string // critical, standard, sheddable; empty: not said
}

// unknownThink is the Think of a request whose trace does not say.
const unknownThink = -1

// mix64 is a bijection that spreads the bits of x (the finaliser of splitmix64).
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// mix folds numbers into one that is never 0.
func mix(numbers ...uint64) uint64 {
	h := uint64(len(numbers))
	for _, n := range numbers {
		h = mix64(h ^ mix64(n))
	}
	return max(h, 1)
}
