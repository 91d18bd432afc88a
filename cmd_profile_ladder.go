package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"penstock/balancer/profile"
	"penstock/bench/load"
	"penstock/engine"
)

// ladder loads one engine with more and more streams at once.
type ladder struct {
	base, key, model     string
	most, prompt, answer int
	screen               *screen

	client  *load.Client
	rungs   []*rung
	ended   string // why it ended
	learner profile.Learner

	mu      sync.Mutex // guards what is below, and the last rung
	flight  int32
	answers []engine.Answer
	broke   error // the first failure that is not the engine being full
}

// rung is what so many streams at once showed: sums over whole answers, in ms
// and tokens.
type rung struct {
	streams                int
	whole, failed          int
	full                   bool // the engine said so
	ttft, tbot, total      float64
	prompt, cached, output float64
}

// climb goes up rung by rung until the last, or until there is nothing to gain,
// and never longer than that. The error is one that left nothing to learn from.
func (l *ladder) climb(ctx context.Context, length time.Duration) error {
	until := time.Now().Add(length)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	l.client = load.NewClient(l.base, l.key, nil)
	defer l.client.Close()
	if l.model == "" {
		var err error
		if l.model, err = l.client.FirstModel(ctx); err != nil {
			return err
		}
	}
	var sizes []int
	for n := 1; n < l.most; n *= 2 {
		sizes = append(sizes, n)
	}
	sizes = append(sizes, l.most)
	// The first answer of an engine may take long: it is none to learn from.
	if _, err := l.ask(ctx, 1); err != nil {
		return err
	}
	l.ended = "all rungs"
	for i, n := range sizes {
		share := time.Until(until) / time.Duration(len(sizes)-i)
		if share < 100*time.Millisecond {
			l.ended = "the time was over"
			break
		}
		g := &rung{streams: n}
		l.rungs = append(l.rungs, g)
		l.run(ctx, g, share, float64(i)/float64(len(sizes)), 1/float64(len(sizes)))
		l.learner.Answers(l.answers, time.Now())
		l.answers = l.answers[:0]
		if l.broke != nil && l.whole() == 0 {
			return l.broke
		}
		if ctx.Err() != nil {
			if l.ended = "the time was over"; ctx.Err() == context.Canceled {
				l.ended = "interrupted"
			}
			break
		}
		if g.full {
			l.ended = "the engine said that it is full"
			break
		}
		if l.broke != nil {
			l.ended = "an error: " + l.broke.Error()
			break
		}
		if i >= 2 && l.flat(i) {
			l.ended = fmt.Sprintf("more than %d streams at once got no more through", sizes[i-1])
			break
		}
	}
	l.learner.Answers(nil, time.Now().Add(time.Hour)) // nothing more is to come
	l.screen.progress(1, "")
	return nil
}

// flat reports whether the last rung got through hardly more than the one before.
func (l *ladder) flat(i int) bool {
	load := func(g *rung) float64 {
		if g.whole == 0 {
			return 0
		}
		return float64(g.streams*g.whole) / g.total
	}
	return load(l.rungs[i]) < 1.02*load(l.rungs[i-1]) && load(l.rungs[i-1]) < 1.1*load(l.rungs[i-2])
}

func (l *ladder) whole() int {
	n := 0
	for _, g := range l.rungs {
		n += g.whole
	}
	return n
}

// mean is the mean request of all rungs.
func (l *ladder) mean() profile.Request {
	var m profile.Request
	for _, g := range l.rungs {
		m.Prompt, m.Cached, m.Output = m.Prompt+g.prompt, m.Cached+g.cached, m.Output+g.output
	}
	n := float64(max(1, l.whole()))
	return profile.Request{Prompt: m.Prompt / n, Cached: m.Cached / n, Output: m.Output / n}
}

// run keeps g.streams streams open for a time; those that are open then end.
func (l *ladder) run(ctx context.Context, g *rung, length time.Duration, done, share float64) {
	start := time.Now()
	end := start.Add(length)
	var streams sync.WaitGroup
	for range g.streams {
		streams.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				a, err := l.ask(ctx, 0)
				if !l.note(ctx, g, a, err) {
					return
				}
			}
		})
	}
	idle := make(chan struct{})
	go func() { streams.Wait(); close(idle) }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-idle:
			return
		case now := <-tick.C:
			part := min(1, float64(now.Sub(start))/float64(length))
			l.screen.progress(done+share*part, fmt.Sprintf("%d streams", g.streams))
		}
	}
}

// note adds an answer to its rung; false ends the stream.
func (l *ladder) note(ctx context.Context, g *rung, a asked, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case err == nil:
		g.whole++
		g.ttft += float64(a.TTFT) / 1e6
		g.tbot += float64(a.TBOT) / 1e6
		g.total += float64(a.Total) / 1e6
		g.prompt += float64(a.Prompt)
		g.cached += float64(a.Cached)
		g.output += float64(a.Output)
		return true
	case a.full:
		g.full = true
	case l.broke == nil:
		l.broke = err
	}
	g.failed++
	return false
}

// asked is an answer, and whether it was that the engine is full.
type asked struct {
	engine.Answer
	full bool
}

// ask streams one answer. With words = 0 prompt and answer have their usual
// lengths, a quarter to seven quarters of the mean and half to all of the most,
// so that what they cost can be told apart; it is learned from.
func (l *ladder) ask(ctx context.Context, length int) (a asked, err error) {
	prompt, limit := length, 2
	if length == 0 {
		prompt = max(1, int(float64(l.prompt)*(0.25+1.5*rand.Float64())))
		limit = max(2, int(float64(l.answer)*(0.5+0.5*rand.Float64())))
	}
	text := fmt.Sprintf("%x ", rand.Uint64()) + load.Text(rand.Uint64(), prompt)
	body, err := json.Marshal(map[string]any{
		"model": l.model, "stream": true, "max_tokens": limit, "temperature": 1, "stream_options": map[string]bool{"include_usage": true},
		"messages": []map[string]string{{"role": "user", "content": text + "\n\nContinue this list of words, as long as you can."}},
	})
	if err != nil {
		return a, err
	}
	l.mu.Lock()
	l.flight++
	a.InFlightFrom = l.flight
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		a.InFlightTo = l.flight
		l.flight--
		if length == 0 {
			if err != nil {
				a.How = engine.EndedElse
			}
			l.answers = append(l.answers, a.Answer)
		}
		l.mu.Unlock()
	}()
	sent := time.Now()
	got := l.client.Stream(ctx, body, "", false, false)
	a.At, a.Total = got.End, got.End.Sub(sent)
	if a.full = got.Outcome == load.Shed; got.Outcome != load.OK {
		return a, fmt.Errorf("%s: %s", got.Outcome, plainText(got.Why))
	}
	a.Prompt, a.Cached, a.Output, a.Counted = int32(got.Prompt), int32(got.Cached), int32(got.Output), got.Counted
	if !a.Counted {
		a.Prompt = int32(len(body) / 4)
	}
	a.TTFT = got.First.Sub(sent)
	if a.Output > 1 {
		a.TBOT = got.Last.Sub(got.First) / time.Duration(a.Output-1)
	}
	return a, nil
}

// progress draws a bar, on a terminal only: a file has no use for one.
func (s *screen) progress(share float64, what string) {
	if !s.tty {
		return
	}
	const width = 40
	filled := int(share * width)
	if share >= 1 {
		fmt.Fprint(s.w, "\r\x1b[K")
		return
	}
	fmt.Fprintf(s.w, "\r\x1b[K%s%s %3.0f%%  %s", strings.Repeat("█", filled), strings.Repeat("·", width-filled), 100*share, what)
}
