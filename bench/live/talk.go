package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// turn is one request of a conversation, planned beforehand.
type turn struct {
	due  time.Duration // since the start of the run
	user int           // tokens of the user's new text
	out  int           // tokens of the answer
}

// conversation is who asks, when, and how long the texts are.
type conversation struct {
	id    int
	hot   bool // begins with the shared prompt
	turns []turn
}

// Lengths in tokens. With them a request has 1,100 tokens of prompt on
// average, of which 200 are new where the conversation stayed on its engine.
const (
	meanTurns  = 4
	mostTurns  = 24
	meanGap    = 6 * time.Second // from turn to turn
	firstLeast = 100             // of the opening, without the shared prompt
	firstMean  = 500
	firstMost  = 2500
	laterLeast = 20 // of the user's text in later turns
	laterMean  = 100
	laterMost  = 500
	outLeast   = 50
	outMean    = 100 // before the cut
	outMost    = 200
	hotTokens  = 400 // of the shared prompt, instead of as many of one's own
)

// talks plans all conversations that begin before the end: arrivals are
// Poisson, turns geometric, lengths exponential above a least one.
func talks(s *scenario, seed uint64, stretch float64, warm, measure time.Duration) []conversation {
	dice := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	change := warm + time.Duration(changeAt*float64(measure))
	var all []conversation
	for at := time.Duration(0); ; {
		rate := s.rate() / stretch / meanTurns
		if s.step > 0 && at >= change {
			rate *= s.step
		}
		wait := time.Duration(dice.ExpFloat64() / rate * float64(time.Second))
		if s.step > 0 && at < change && at+wait > change {
			at = change // memoryless: the rest of the wait is drawn anew at the new rate
			continue
		}
		if at += wait; at > warm+measure+tail {
			return all
		}
		all = append(all, talk(s, dice, len(all), at, stretch))
	}
}

func talk(s *scenario, dice *rand.Rand, id int, at time.Duration, stretch float64) conversation {
	c := conversation{id: id, hot: dice.Float64() < s.hot}
	for n := 0; n < mostTurns; n++ {
		t := turn{due: at, user: length(dice, laterLeast, laterMean, laterMost), out: length(dice, outLeast, outMean, outMost)}
		if n == 0 {
			t.user = length(dice, firstLeast, firstMean, firstMost)
			if c.hot {
				t.user = max(laterLeast, t.user-hotTokens)
			}
		}
		c.turns = append(c.turns, t)
		if dice.Float64() < 1.0/meanTurns {
			break
		}
		at += time.Duration((5.0/6 + dice.Float64()/3) * float64(meanGap) * stretch)
	}
	return c
}

// length draws from least + Exp, cut at most, with that mean before the cut.
func length(dice *rand.Rand, least, mean, most int) int {
	return min(most, least+int(math.Round(dice.ExpFloat64()*float64(mean-least))))
}

// promptTokens is the prompt of a conversation's n-th turn: all texts so far
// and a token for each message and for the answer to come.
func (c *conversation) promptTokens(n int) int {
	tokens := 1
	if c.hot {
		tokens += 1 + hotTokens
	}
	for i := range n + 1 {
		tokens += 1 + c.turns[i].user
		if i < n {
			tokens += 1 + c.turns[i].out
		}
	}
	return tokens
}
