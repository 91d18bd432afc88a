package trace

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Summary is a trace at a glance. Its JSON fields are the outward interface.
type Summary struct {
	File     string         `json:"file"`
	Format   string         `json:"format"`
	Requests int            `json:"requests"`
	Skipped  map[string]int `json:"skipped,omitempty"` // rows that are no request to replay, by reason
	Seconds  float64        `json:"seconds"`           // from the first request to the last
	Rate     float64        `json:"rate"`              // requests/s, mean
	Peak     float64        `json:"peak_rate"`         // requests/s in the busiest minute
	CV       float64        `json:"interarrival_cv"`   // 1: Poisson

	Prompt Lengths `json:"prompt_tokens"`
	Output Lengths `json:"output_tokens"`

	Conversations int     `json:"conversations"` // 0: the trace names none
	Turns         Lengths `json:"turns"`         // of a conversation
	// Prefix is the share of prompt tokens that begin as a prompt before them
	// did: what a cache without bounds would save. Of the first PrefixOf requests.
	Prefix   *float64 `json:"prefix_share,omitempty"`
	PrefixOf int      `json:"prefix_requests,omitempty"`

	Classes []ClassCount `json:"classes,omitempty"` // most requests first
}

// Lengths are the quantiles of a number of tokens, or of turns.
type Lengths struct {
	Mean float64 `json:"mean"`
	P50  int     `json:"p50"`
	P95  int     `json:"p95"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
}

// ClassCount is a class and how many requests it has.
type ClassCount struct {
	Class    string `json:"class"`
	Requests int    `json:"requests"`
}

// mostBlocks bounds the different blocks that a summary remembers: 100 MB.
const mostBlocks = 4 << 20

// Summarise reads r to its end or until a time; until 0 is the end.
func Summarise(r *Reader, until time.Duration) (Summary, error) {
	s := Summary{File: r.file, Format: r.Format().String()}
	var prompts, outputs []int
	var gaps moments
	var first, last time.Duration
	minutes, turns, classes := map[int]int{}, map[uint64]int{}, map[string]int{}
	prefix := prefixes{seen: map[uint64]struct{}{}}
	for {
		q, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && until > 0 && q.At > until {
			break
		}
		if err != nil {
			return s, err
		}
		if s.Requests == 0 {
			first = q.At
		} else {
			gaps.add((q.At - last).Seconds())
		}
		last = q.At
		s.Requests++
		prompts, outputs = append(prompts, q.Prompt), append(outputs, q.Output)
		minutes[int(q.At/time.Minute)]++
		if q.Conversation != 0 {
			turns[q.Conversation]++
		}
		if q.Class != "" {
			classes[q.Class]++
		}
		prefix.add(&q)
	}
	s.Skipped = r.Skipped()
	s.Seconds = (last - first).Seconds()
	if s.Seconds > 0 {
		s.Rate = float64(s.Requests-1) / s.Seconds
	}
	for _, n := range minutes {
		s.Peak = max(s.Peak, float64(n)/min(60, max(s.Seconds, 1)))
	}
	s.CV = gaps.cv()
	s.Prompt, s.Output = lengthsOf(prompts), lengthsOf(outputs)
	s.Conversations = len(turns)
	var talks []int
	for _, n := range turns {
		talks = append(talks, n)
	}
	s.Turns = lengthsOf(talks)
	if prefix.of > 0 {
		share := float64(prefix.found) / float64(max(1, prefix.tokens))
		s.Prefix, s.PrefixOf = &share, prefix.of
	}
	for class, n := range classes {
		s.Classes = append(s.Classes, ClassCount{class, n})
	}
	slices.SortFunc(s.Classes, func(a, b ClassCount) int {
		if a.Requests != b.Requests {
			return b.Requests - a.Requests
		}
		return strings.Compare(a.Class, b.Class)
	})
	return s, nil
}

func lengthsOf(all []int) Lengths {
	if len(all) == 0 {
		return Lengths{}
	}
	slices.Sort(all)
	sum := 0.0
	for _, n := range all {
		sum += float64(n)
	}
	at := func(q float64) int { return all[min(len(all)-1, int(q*float64(len(all))))] }
	return Lengths{Mean: sum / float64(len(all)), P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: all[len(all)-1]}
}

// moments are the sums for a mean and a variance.
type moments struct{ n, mean, m2 float64 }

func (m *moments) add(v float64) {
	m.n++
	d := v - m.mean
	m.mean += d / m.n
	m.m2 += d * (v - m.mean)
}

// cv is the coefficient of variation.
func (m *moments) cv() float64 {
	if m.n < 2 || m.mean == 0 {
		return 0
	}
	return math.Sqrt(m.m2/(m.n-1)) / m.mean
}

// prefixes counts what of the prompts was there before.
type prefixes struct {
	seen          map[uint64]struct{}
	of            int // requests
	tokens, found int
}

func (p *prefixes) add(q *Request) {
	if len(q.Blocks) == 0 || len(p.seen) > mostBlocks {
		return
	}
	p.of++
	p.tokens += q.Prompt
	known := 0
	for i, b := range q.Blocks {
		if _, ok := p.seen[b]; ok && known == i {
			known++
		} else {
			p.seen[b] = struct{}{}
		}
	}
	p.found += min(known*q.BlockTokens, q.Prompt)
}
