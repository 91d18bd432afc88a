package proxy

import (
	rm "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine"
	"penstock/protect"
	"penstock/selector"
)

// gate is what stands before the engines of one model: how full they are, what
// repeating is paid from, and who waits.
type gate struct {
	model   string
	budget  protect.Budget
	u       protect.Utilisation
	firsts  atomic.Int64 // requests since the last look
	waiting atomic.Int32
	output  atomic.Int64 // tokens of the mean answer, in 1/256; 0 = not known

	planned [protect.Sheddable + 1]protect.Admission // of the table's sheds

	room atomic.Int64 // what the engines take at once, as last seen while any took some

	// Guarded by gates.mu.
	queue protect.Queue[*exchange]
	pace  protect.Pace
	idle  int // looks in a row without a request
}

// gates are those of all models, and the one place where requests wait. Its
// mutex is taken only while some do, and by the looks.
type gates struct {
	h       *Handler
	byModel atomic.Pointer[map[string]*gate]
	waiting atomic.Int32 // over all
	memory  int64        // that the process may use; 0 = not known
	strain  protect.Pressure
	spare   protect.Budget // of a model without a request yet
	nudge   chan struct{}  // an engine's cap was learned: it will grow soon

	mu      sync.Mutex // guards what is below, and the queues
	bytes   int64      // that waiting requests hold
	limited map[*engine.Live]*engine.Engine
	turn    int
}

const (
	lookEvery = 100 * time.Millisecond
	// lookOften is the pace while some request waits or some engine's cap may grow.
	lookOften = 20 * time.Millisecond
	// queueBytes bounds the bodies of waiting requests.
	queueBytes = 256 << 20
	// gateForgotten is after how many looks without a request a gate goes.
	gateForgotten = 6000
	outputShare   = 16 // a new answer counts as one in so many
	outputGuess   = 256
)

func newGates(h *Handler) *gates {
	g := &gates{h: h, nudge: make(chan struct{}, 1), limited: make(map[*engine.Live]*engine.Engine)}
	g.byModel.Store(&map[string]*gate{})
	return g
}

// of finds the gate of a model that engines serve.
func (gs *gates) of(model string) *gate {
	if g := (*gs.byModel.Load())[model]; g != nil {
		return g
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	old := *gs.byModel.Load()
	if g := old[model]; g != nil {
		return g
	}
	next := make(map[string]*gate, len(old)+1)
	for name, g := range old {
		next[name] = g
	}
	g := &gate{model: model}
	_, room := gs.h.selector.Load(model)
	g.room.Store(room)
	next[model] = g
	gs.byModel.Store(&next)
	return g
}

// full notes that an engine refused a request as full.
func (gs *gates) full(e *engine.Engine, sent time.Time, after time.Duration, now time.Time) {
	e.Full(e.InFlight()-1, sent, after, now)
	gs.mu.Lock()
	gs.limited[e.Live] = e
	gs.mu.Unlock()
	select {
	case gs.nudge <- struct{}{}:
	default:
	}
}

// run looks at all gates until stop is closed.
func (gs *gates) run(stop <-chan struct{}) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	last, weighed := time.Now(), time.Time{}
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-gs.nudge:
		}
		now := time.Now()
		if now.Sub(weighed) >= weighEvery {
			weighed = now
			gs.weigh()
		}
		busy := gs.grow(now)
		if gs.waiting.Load() > 0 {
			gs.dispatch(now)
			busy = true
		}
		if now.Sub(last) >= lookEvery {
			gs.look(now)
			last = now
		}
		wait := lookEvery - now.Sub(last)
		if busy {
			wait = min(wait, lookOften)
		}
		timer.Reset(wait)
	}
}

// weigh sees how short of memory the process is: by what the last collection
// found alive, since garbage goes by itself.
func (gs *gates) weigh() {
	if gs.memory <= 0 {
		return
	}
	sample := [1]rm.Sample{{Name: "/gc/heap/live:bytes"}}
	if rm.Read(sample[:]); sample[0].Value.Kind() != rm.KindUint64 {
		return
	}
	before := gs.strain.Level()
	if now := gs.strain.Set(int64(sample[0].Value.Uint64()), gs.memory); now != before {
		gs.h.log.Warn("memory", "state", now.String(), "live_bytes", sample[0].Value.Uint64(), "limit_bytes", gs.memory)
	}
}

const weighEvery = 250 * time.Millisecond

// grow lets learned caps grow; false where none is left.
func (gs *gates) grow(now time.Time) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for l := range gs.limited {
		if !l.Regrow(now) {
			delete(gs.limited, l)
		}
	}
	return len(gs.limited) > 0
}

// look takes the utilisation of each model's engines, closes the interval of
// its pace, and refuses those for whom waiting is worth nothing any more.
func (gs *gates) look(now time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	byModel := *gs.byModel.Load()
	stale := 0
	for _, g := range byModel {
		firsts := g.firsts.Swap(0)
		waiting := g.queue.Len()
		if g.idle++; firsts > 0 || waiting > 0 {
			g.idle = 0
		}
		if g.idle > gateForgotten {
			stale++
		}
		inFlight, room := gs.h.selector.Load(g.model)
		if room > 0 { // that all are left alone for a moment makes nobody's queue shorter
			g.room.Store(room)
		}
		g.u.Update(float64(inFlight)+float64(waiting), float64(room), now)
		g.pace.Came(float64(firsts))
		g.pace.Tick(waiting > 0, now)
		for p := range g.planned {
			g.planned[p].Tick(now)
		}
		gs.expireLocked(g, now)
	}
	if stale > 0 {
		gs.forgetLocked(byModel)
	}
	gs.probeHeldLocked(now)
}

func (gs *gates) forgetLocked(byModel map[string]*gate) {
	next := make(map[string]*gate, len(byModel))
	for name, g := range byModel {
		if g.idle <= gateForgotten {
			next[name] = g
		}
	}
	gs.byModel.Store(&next)
}

// expireLocked refuses those who have waited for as long as it is worth.
func (gs *gates) expireLocked(g *gate, now time.Time) {
	for p := protect.Critical; p <= protect.Sheddable; p++ {
		for {
			w := g.queue.Oldest(p)
			if w == nil || now.Sub(w.Since) < g.pace.Worth(w.Value.patience(), now) {
				break
			}
			gs.leaveLocked(g, w)
			w.Value.turn <- turn{shed: shedQueueTimeout}
		}
	}
}

// probeHeldLocked ends a hold early where requests wait that no other engine
// can take: one of them asks.
func (gs *gates) probeHeldLocked(now time.Time) {
	if gs.waiting.Load() == 0 {
		return
	}
	for l := range gs.limited {
		if until, since := l.Held(); until.After(now) && now.Sub(since) >= probeHeldAfter && l.InFlight() == 0 {
			l.LetGo(now)
		}
	}
}

// probeHeldAfter is the least time between two questions to a full engine of
// which nobody knows better.
const probeHeldAfter = time.Second

// dispatch gives places to those who wait, as far as there is room.
func (gs *gates) dispatch(now time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dispatchLocked(now)
}

func (gs *gates) dispatchLocked(now time.Time) {
	if gs.waiting.Load() == 0 {
		return
	}
	var open [8]*gate
	list := open[:0]
	for _, g := range *gs.byModel.Load() {
		if g.queue.Len() > 0 {
			list = append(list, g)
		}
	}
	for len(list) > 0 {
		at := mostUrgent(list, gs.turn)
		gs.turn++
		if !gs.dispatchOneLocked(list[at], now) {
			list[at] = list[len(list)-1]
			list = list[:len(list)-1]
		}
	}
}

// mostUrgent is the gate at which the highest priority waits; of several by turn.
func mostUrgent(list []*gate, turn int) int {
	best, least := 0, protect.Sheddable+1
	for i := range list {
		i = (i + turn) % len(list)
		for p := protect.Critical; p < least; p++ {
			if list[i].queue.Oldest(p) != nil {
				best, least = i, p
			}
		}
	}
	return best
}

func (gs *gates) dispatchOneLocked(g *gate, now time.Time) bool {
	var lease selector.Lease
	w := g.queue.Next(func(p protect.Priority) bool {
		o := g.queue.Oldest(p)
		return now.Sub(o.Since) > g.pace.Worth(o.Value.patience(), now)/2
	}, func(w *protect.Waiting[*exchange]) bool {
		x := w.Value
		x.class = gs.h.selector.Current(x.class)
		lease, _ = x.choose()
		return lease.Engine != nil
	})
	if w == nil {
		return false
	}
	gs.leftLocked(g, w)
	g.pace.Began(w.Cost)
	w.Value.turn <- turn{lease: lease}
	return true
}

func (gs *gates) leaveLocked(g *gate, w *protect.Waiting[*exchange]) bool {
	if !g.queue.Remove(w) {
		return false
	}
	gs.leftLocked(g, w)
	return true
}

func (gs *gates) leftLocked(g *gate, w *protect.Waiting[*exchange]) {
	gs.bytes -= w.Bytes
	g.waiting.Add(-1)
	gs.waiting.Add(-1)
}

// cost is what a request takes of an engine, in tokens of prompt: an output
// token takes as much as four.
func (g *gate) cost(env *Envelope) float64 {
	out := float64(g.output.Load()) / 256
	if out == 0 {
		out = outputGuess
	}
	if env.MaxTokens > 0 {
		out = min(out, float64(env.MaxTokens))
	}
	return float64(env.PromptBytes/guessedBytesPerToken) + costOfOutput*out*float64(max(env.N, 1))
}

const costOfOutput = 4

// answered learns the length of answers.
func (g *gate) answered(tokens int64) {
	if tokens <= 0 {
		return
	}
	old := g.output.Load()
	if old == 0 {
		g.output.CompareAndSwap(0, tokens*256)
		return
	}
	g.output.CompareAndSwap(old, old+(tokens*256-old)/outputShare) // lost to another answer: no matter
}
