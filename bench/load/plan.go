package load

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"penstock/bench/trace"
)

// Workload is what traffic is made of where no trace says.
type Workload struct {
	Rate     float64 // requests/s, all turns
	Arrivals Arrivals
	Turns    float64       // of a conversation, mean; geometric
	Think    time.Duration // between an answer and the next turn, mean; exponential
	Shared   int           // tokens of a system prompt that conversations share
	Prefixes int           // how many such prompts there are; the n-th is asked for 1/n as often
	Prompt   Lengths       // of the text that opens a conversation, tokens
	Later    Lengths       // of the user's text in later turns
	Output   Lengths
}

// Plan is the traffic of one round.
type Plan struct {
	Talks    []Talk // by Begin
	Requests int    // all turns
}

// Talk is a conversation.
type Talk struct {
	ID     uint64
	Begin  time.Duration
	Shared []uint64 // blocks whose text others have too, the opening's beginning
	Block  int      // tokens of each
	Turns  []Turn
}

// Turn is a request of a conversation.
type Turn struct {
	At     time.Duration // from the start of the run where Think < 0
	Think  time.Duration // after the answer before
	User   int           // tokens of new text
	Output int           // tokens to ask for
	Total  int           // tokens of the whole prompt, where a trace says; else 0
}

// most bounds a plan: the memory of its turns, and of the results.
const most = 5_000_000

// Make plans conversations that begin within a time, with requests turns at most (0: no bound).
func (w *Workload) Make(seed uint64, length time.Duration, requests int) (*Plan, error) {
	if requests <= 0 || requests > most {
		requests = most
	}
	if w.Rate*length.Seconds() > most {
		return nil, fmt.Errorf("%.0f requests: more than %d in one round", w.Rate*length.Seconds(), most)
	}
	dice := rand.New(rand.NewPCG(seed, 0x6c6f6164))
	p := &Plan{}
	for at := w.Arrivals.gap(dice, w.Rate/w.Turns); at < length && p.Requests < requests; at += w.Arrivals.gap(dice, w.Rate/w.Turns) {
		t := Talk{ID: seed<<24 + uint64(len(p.Talks)) + 1, Begin: at}
		if w.Shared > 0 {
			t.Shared, t.Block = []uint64{zipf(dice, w.Prefixes)}, w.Shared
		}
		for n := 0; p.Requests < requests; n++ {
			turn := Turn{Think: time.Duration(dice.ExpFloat64() * float64(w.Think)), User: w.Later.draw(dice), Output: w.Output.draw(dice)}
			if n == 0 {
				turn.At, turn.Think, turn.User = at, -1, w.Prompt.draw(dice)
			}
			t.Turns = append(t.Turns, turn)
			p.Requests++
			if dice.Float64()*w.Turns < 1 {
				break
			}
		}
		p.Talks = append(p.Talks, t)
	}
	if p.Requests == 0 {
		return nil, fmt.Errorf("no request begins within %s at %g requests/s: want more time or a higher rate", length, w.Rate)
	}
	return p, nil
}

// zipf draws 1..n with weights 1/k.
func zipf(dice *rand.Rand, n int) uint64 {
	sum := 0.0
	for k := 1; k <= n; k++ {
		sum += 1 / float64(k)
	}
	left := dice.Float64() * sum
	for k := 1; k < n; k++ {
		if left -= 1 / float64(k); left < 0 {
			return uint64(k)
		}
	}
	return uint64(max(n, 1))
}

// OfTrace plans the requests of a trace up to a time of the run, speed times as
// fast as they were. Those without a conversation are one each.
func OfTrace(r *trace.Reader, speed float64, length time.Duration, requests int) (*Plan, error) {
	if requests <= 0 || requests > most {
		requests = most
	}
	p := &Plan{}
	at := map[uint64]int{} // of conversations in p.Talks
	began := time.Duration(-1)
	for p.Requests < requests {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if began < 0 {
			began = q.At
		}
		due := time.Duration(float64(q.At-began) / speed)
		if due >= length {
			break
		}
		if q.Prompt > mostTokens || q.Output > mostTokens {
			return nil, fmt.Errorf("a request of %d and %d tokens: want at most %d to send them", q.Prompt, q.Output, mostTokens)
		}
		i, known := at[q.Conversation]
		if !known || q.Conversation == 0 {
			i = len(p.Talks)
			at[q.Conversation] = i
			p.Talks = append(p.Talks, Talk{ID: uint64(i) + 1, Begin: due, Shared: q.Blocks, Block: q.BlockTokens})
		}
		turn := Turn{At: due, Think: -1, User: max(1, q.Prompt), Output: max(1, q.Output), Total: max(1, q.Prompt)}
		p.Talks[i].Turns = append(p.Talks[i].Turns, turn)
		p.Requests++
	}
	return p, nil
}

// Span is how long the plan's arrivals last, as far as it is known before.
func (p *Plan) Span() time.Duration {
	last := time.Duration(0)
	for i := range p.Talks {
		last = max(last, p.Talks[i].Begin)
		for _, t := range p.Talks[i].Turns {
			last = max(last, t.At)
		}
	}
	return last
}

// rate of whole numbers that are shown.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }
