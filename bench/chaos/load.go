package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"penstock/bench/witness"
)

// asking is one request and what its client saw.
type asking struct {
	kind    witness.Kind
	client  int // by its protocol
	stays   bool
	inner   bool // said to be repeated by a gateway before this one
	begun   time.Duration
	ended   time.Duration
	left    time.Time // when its client left, if it did
	saw     string
	wrong   string
	reason  string // x-penstock-reason
	engine  string
	attempt string // x-penstock-attempts
}

// idOf is the name of the i-th request of a part.
func (p *part) idOf(i int) string { return fmt.Sprintf("%s-%d-%d", p.name, p.seed, i) }

// plan says what the i-th request is: half of them streams, one in six a
// stored response, which may not be done twice, one in ten under the word of a
// gateway in front that repeats by itself; one client in ten leaves.
func (p *part) plan(i int) (q asking, when witness.Leaving) {
	dice := rand.New(rand.NewPCG(p.seed, uint64(i)))
	switch dice.IntN(6) {
	case 0, 1, 2:
		q.kind = witness.ChatStream
	case 3, 4:
		q.kind = witness.Chat
	default:
		q.kind = witness.Response
	}
	q.client = dice.IntN(2)
	q.inner = dice.IntN(10) == 0
	q.stays = dice.IntN(10) > 0
	switch {
	case q.stays:
	case q.kind == witness.ChatStream && dice.IntN(2) == 0:
		when = witness.LeavesMid
	default:
		when = witness.LeavesSoon
	}
	return q, when
}

func body(kind witness.Kind, id string, tokens int) (path, text string) {
	if kind == witness.Response {
		return "/v1/responses", fmt.Sprintf(`{"model":%q,"nonce":%q,"max_output_tokens":%d,"input":"What is %s?"}`, modelName, id, tokens, id)
	}
	return "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"stream":%t,"nonce":%q,"max_tokens":%d,"messages":[{"role":"user","content":"What is %s?"}]}`,
		modelName, kind == witness.ChatStream, id, tokens, id)
}

// leavesWithin is the longest that a client stays which leaves before content.
const leavesWithin = 200 * time.Millisecond

// ask sends the i-th request and judges what its client sees.
func (s *site) ask(ctx context.Context, i int, began time.Time) asking {
	q, when := s.part.plan(i)
	id := s.part.idOf(i)
	path, text := body(q.kind, id, s.part.tokens+i%2)
	ask := witness.Question{Path: path, ID: id, Body: text, When: when}
	if q.inner {
		ask.Header = http.Header{"X-Gateway-Attempt": {"1"}}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var soon atomic.Pointer[time.Time]
	if when == witness.LeavesSoon {
		timer := time.AfterFunc(rand.N(leavesWithin), func() {
			now := time.Now()
			soon.Store(&now)
			cancel()
		})
		defer timer.Stop()
	}
	q.begun = time.Since(began)
	a := witness.Ask(ctx, s.clients[q.client], s.url, ask)
	q.ended = time.Since(began)
	q.left = a.Left
	if at := soon.Load(); at != nil {
		q.left = *at
	}
	if q.saw, q.wrong = witness.Judge(a, id, q.kind); q.wrong == "" && a.Status != 0 && a.Header.Get("X-Request-Id") != id {
		q.wrong = "the answer is called " + a.Header.Get("X-Request-Id")
	}
	if q.wrong != "" {
		q.wrong = fmt.Sprintf("%s: %s: %s (status %d, %v)\n%.600s", id, q.saw, q.wrong, a.Status, a.Err, a.Body)
	}
	q.reason, q.engine, q.attempt = a.Header.Get("X-Penstock-Reason"), a.Header.Get("X-Penstock-Engine"), a.Header.Get("X-Penstock-Attempts")
	return q
}

// atOnce sends n requests, the first of them by that number, so many at a time
// until ctx ends.
func (s *site) atOnce(ctx context.Context, from, n, workers int, began time.Time, progress func(done int)) []asking {
	all := make([]asking, n)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				all[i] = s.ask(ctx, from+i, began)
				progress(int(done.Add(1)))
			}
		})
	}
	wg.Wait()
	return all[:min(n, int(done.Load()))]
}

// steadily sends requests at a rate, whatever becomes of those before, until
// the time is over; no more than most at a time, so that on a slow machine it
// lasts longer instead.
func (s *site) steadily(ctx context.Context, from int, rate float64, length time.Duration, most int, began time.Time, progress func(done int)) []asking {
	n := int(rate * length.Seconds())
	all := make([]asking, n)
	places := make(chan struct{}, most)
	var wg sync.WaitGroup
	sent := 0
	for ; sent < n; sent++ {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(time.Duration(float64(sent) / rate * float64(time.Second))))):
		}
		if ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		i := sent
		wg.Go(func() {
			defer func() { <-places }()
			all[i] = s.ask(ctx, from+i, began)
		})
		progress(sent)
	}
	wg.Wait()
	return all[:sent]
}
