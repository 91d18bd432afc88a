package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine/enginetest"
)

// flight is a request at an engine, as a placement sees it.
type flight struct {
	conv        *conversation
	turn        int           // of the conversation, from 0
	sent        time.Duration // since the start of the run
	prompt, out int
	uncached    int          // prompt tokens that the engine was expected to compute
	produced    atomic.Int64 // tokens of the answer so far
	engine      int
}

// refused is no engine.
const refused = -1

// placement chooses engines without a gateway. place is told of every
// request, done of its end. Those for real time are safe for concurrent use.
type placement interface {
	place(f *flight) (engine int)
	done(f *flight)
	lose(engine int) // it is gone for good
}

// leastRequest sends to the engine with the fewest requests.
type leastRequest struct {
	mu    sync.Mutex
	count []int
	gone  []bool
	turn  int // begins the search elsewhere each time
}

func newLeastRequest(engines int) *leastRequest {
	return &leastRequest{count: make([]int, engines), gone: make([]bool, engines)}
}

func (p *leastRequest) place(f *flight) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	best := -1
	for k := range p.count {
		i := (p.turn + k) % len(p.count)
		if !p.gone[i] && (best < 0 || p.count[i] < p.count[best]) {
			best = i
		}
	}
	p.count[best]++
	f.engine = best
	return best
}

func (p *leastRequest) done(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count[f.engine]--
}

func (p *leastRequest) lose(engine int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[engine] = true
}

// omniscient knows every engine's speed, what is in its queue and its cache,
// and how long all answers will be. It takes the engine where one more
// request costs the least time: its own and what the others on the engine lose.
type omniscient struct {
	mu      sync.Mutex
	engines []*known
}

// known is an engine as the omniscient placement has it before its eyes.
type known struct {
	enginetest.Model
	rtt     time.Duration
	gone    bool
	flights []*flight
	cached  []cachedTalk // least recently used first
	hot     bool         // the shared prompt is in its cache
}

type cachedTalk struct{ conv, tokens int }

func newOmniscient(s *scenario, stretch float64) *omniscient {
	p := &omniscient{}
	for i := range s.speeds {
		p.engines = append(p.engines, &known{Model: s.model(i, stretch), rtt: s.rtt(i)})
	}
	return p
}

func (p *omniscient) place(f *flight) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, least, uncached := -1, 0.0, 0
	for i, e := range p.engines {
		if e.gone {
			continue
		}
		fresh := e.fresh(f)
		if c := e.cost(f, fresh); best < 0 || c < least {
			best, least, uncached = i, c, fresh
		}
	}
	f.engine, f.uncached = best, uncached
	e := p.engines[best]
	e.flights = append(e.flights, f)
	e.use(f)
	return best
}

func (p *omniscient) done(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.engines[f.engine]
	if i := slices.Index(e.flights, f); i >= 0 {
		e.flights = slices.Delete(e.flights, i, i+1)
	}
}

func (p *omniscient) lose(engine int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engines[engine].gone = true
}

// fresh is how many prompt tokens the engine would have to compute.
func (e *known) fresh(f *flight) int {
	hit := 0
	if f.conv.hot && e.hot {
		hit = hotTokens
	}
	for _, c := range e.cached {
		if c.conv == f.conv.id {
			hit = max(hit, c.tokens)
		}
	}
	hit = min(hit, f.prompt-1) / enginetest.BlockTokens * enginetest.BlockTokens
	return f.prompt - hit
}

// use notes that the conversation's text is in the cache from now on, and
// what has to go for it: the cache is what the running requests leave.
func (e *known) use(f *flight) {
	e.cached = slices.DeleteFunc(e.cached, func(c cachedTalk) bool { return c.conv == f.conv.id })
	e.cached = append(e.cached, cachedTalk{f.conv.id, f.prompt + f.out - 1})
	e.hot = e.hot || f.conv.hot
	room := e.Blocks * enginetest.BlockTokens
	for i := len(e.cached) - 1; i >= 0; i-- {
		if room -= e.cached[i].tokens; room < 0 {
			e.cached = slices.Delete(e.cached, 0, i+1)
			break
		}
	}
}

// cost is the time in ms that one more request takes on the engine: until it
// has its answer, and by how much the requests there get theirs later. What
// ends is taken to be replaced by its like.
func (e *known) cost(f *flight, fresh int) float64 {
	base, perSeq, perToken := msOf(e.Base), msOf(e.PerSeq), msOf(e.PerPrefill)
	n := len(e.flights)
	prefill, remaining := 0.0, make([]float64, 0, n)
	for _, g := range e.flights {
		made := float64(g.produced.Load())
		if made == 0 {
			prefill += float64(g.uncached)
		}
		remaining = append(remaining, float64(g.out)-made)
	}
	decoding := float64(min(n+1, e.Slots))
	step := base + perSeq*decoding
	own := msOf(e.rtt) + (prefill+float64(fresh))*perToken + float64(f.out+1)*step
	if n >= e.Slots { // a place is free when as many as are ahead have ended
		slices.Sort(remaining)
		own += remaining[min(n-e.Slots, len(remaining)-1)] * step
	}
	others := 0.0
	for _, r := range remaining {
		others += perSeq*min(r, float64(f.out)) + float64(fresh)*perToken
	}
	// Those who come while it is there meet it, as it meets those who are there.
	others += perSeq * float64(f.out) * max(0, float64(n)-sumMin(remaining, float64(f.out))/float64(f.out))
	return own + others
}

func sumMin(r []float64, most float64) (sum float64) {
	for _, x := range r {
		sum += min(x, most)
	}
	return sum
}

func msOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
