package sim

import (
	"io"
	"math"
	"math/rand/v2"
	"time"

	"penstock/protect"
)

// Traffic makes requests by chance: a Poisson process of conversations, each of
// turns with pauses between, lengths log-normal. It is a Feed; one run has one
// of its own.
type Traffic struct {
	Rate     float64 // requests/s, on average
	Requests int     // in all
	Seed     uint64

	Prompt, Output           float64 // tokens of the mean
	PromptSigma, OutputSigma float64 // of their logarithm; 0: all alike
	Turns                    float64 // of the mean conversation; 0 or 1: requests without one
	Pause                    time.Duration
	System                   int // tokens that all prompts begin with
	BlockTokens              int // of the hashes; 0: none
	Critical, Sheddable      float64

	dice    *rand.Rand
	now     time.Duration
	made    int
	talks   uint64
	pending talks
}

// talk is a conversation with a turn to come.
type talk struct {
	at    time.Duration
	id    uint64
	turn  int
	left  int
	chain []uint64
	size  int // tokens so far
	prio  protect.Priority
}

// talks is a heap by time, then id.
type talks []talk

func (q talks) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].id < q[j].id
}

func (q *talks) push(t talk) {
	*q = append(*q, t)
	h := *q
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (q *talks) pop() talk {
	h := *q
	top := h[0]
	n := len(h) - 1
	h[0] = h[n]
	*q = h[:n]
	h = *q
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return top
		}
		if c+1 < n && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func lengthOf(dice *rand.Rand, mean, sigma float64) int {
	if sigma > 0 {
		mean *= math.Exp(sigma*dice.NormFloat64() - sigma*sigma/2)
	}
	return max(1, int(math.Round(mean)))
}

// Next implements Feed.
func (t *Traffic) Next(r *Request) error {
	if t.made >= t.Requests {
		return io.EOF
	}
	if t.dice == nil {
		t.dice = rand.New(rand.NewPCG(t.Seed, 0x7472616666))
		t.now = t.gap()
	}
	t.made++
	for len(t.pending) == 0 || t.now <= t.pending[0].at {
		n := 1
		if t.Turns > 1 {
			n = 1 + int(math.Log(1-t.dice.Float64())/math.Log(1-1/t.Turns)) // geometric
		}
		t.talks++
		next := talk{at: t.now, id: t.talks, left: n, size: t.System}
		switch p := t.dice.Float64(); {
		case p < t.Critical:
			next.prio = protect.Critical
		case p >= 1-t.Sheddable:
			next.prio = protect.Sheddable
		default:
			next.prio = protect.Standard
		}
		t.pending.push(next)
		t.now += t.gap()
	}
	c := t.pending.pop()
	*r = Request{At: c.at, Turn: c.turn, Prompt: c.size + lengthOf(t.dice, t.Prompt, t.PromptSigma), Output: lengthOf(t.dice, t.Output, t.OutputSigma),
		Priority: c.prio, BlockTokens: t.BlockTokens}
	if t.Turns > 1 {
		r.Conversation = c.id
	}
	if t.BlockTokens > 0 {
		c.extend(t, r.Prompt)
		r.Blocks = c.chain
	}
	if c.left > 1 {
		c.left--
		c.turn++
		c.size = r.Prompt + r.Output
		c.at += time.Duration((0.5 + t.dice.ExpFloat64()/2) * float64(t.Pause))
		t.pending.push(c)
	}
	return nil
}

// extend names the blocks of a prompt: those of before stay.
func (c *talk) extend(t *Traffic, prompt int) {
	blocks := prompt / t.BlockTokens
	chain := make([]uint64, blocks)
	n := copy(chain, c.chain)
	for ; n < blocks; n++ {
		if (n+1)*t.BlockTokens <= t.System {
			chain[n] = mix(uint64(n) + 1)
		} else {
			chain[n] = mix(c.id<<20 + uint64(n) + t.Seed<<48)
		}
	}
	c.chain = chain
}

// gap is the time to the next conversation.
func (t *Traffic) gap() time.Duration {
	return time.Duration(t.dice.ExpFloat64() * max(t.Turns, 1) / t.Rate * float64(time.Second))
}
