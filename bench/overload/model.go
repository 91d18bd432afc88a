package main

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"penstock/protect"
)

type policy string

const (
	naive     policy = "five-retries" // no admission, tries again where an engine's queue is full
	admitting policy = "penstock"
)

const (
	engines      = 8
	slots        = 16
	headroom     = 3 // attempts at an engine beyond its slots: ceil(0.15 x 16)
	engineQueue  = 100
	meanService  = 8.0 // s
	sigma        = 0.5
	sdkRetries   = 2
	streamWaits  = 20.0 // s, for the first token
	wholeWaits   = 30.0 // s, for all of it
	quiet        = 0.7
	settle       = 60.0 // s of the overload that are not counted
	after        = 120.0
	routerTries  = 5
	criticalPart = 0.1
	recoveryOver = 30 // s in which 99 of 100 requests succeed
	standardPart = 0.6
)

// result is what one policy came to.
type result struct {
	Policy     policy     `json:"policy"`
	Goodput    float64    `json:"goodput"`            // service that reached its client, over what the slots could give
	Success    [3]float64 `json:"success"`            // of requests in the overload, by priority, retries of their clients included
	Recovery   float64    `json:"recovery_seconds"`   // from its end until 99 in 100 requests of the next half minute succeed
	PerRequest float64    `json:"dispatches_request"` // attempts at engines per request
}

// request is what one client wants, over all calls that its SDK makes.
type request struct {
	priority protect.Priority
	born     float64
	service  float64
	held     float64 // of its service, for which its engine stood still
	stream   bool
	calls    int
	tries    int // of the naive router, this call
	engine   *slotEngine
	began    float64 // of service; NaN while it waits
	gone     int     // events of earlier calls are void
	waits    *protect.Waiting[*request]
}

// slotEngine serves slots at once and queues the others.
type slotEngine struct {
	busy  int
	works []*request // that it serves
	queue []*request
	dead  bool
}

// drop takes one off those that it serves.
func (e *slotEngine) drop(x *request) {
	e.busy--
	e.works = slices.DeleteFunc(e.works, func(y *request) bool { return y == x })
}

func (e *slotEngine) held() int { return e.busy + len(e.queue) }

type event struct {
	at  float64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { old := *e; x := old[len(old)-1]; *e = old[:len(old)-1]; return x }

// model is one run under way.
type model struct {
	policy  policy
	random  *rand.Rand
	now     float64
	seq     int
	events  events
	engines [engines]*slotEngine
	queue   protect.Queue[*request]
	pace    protect.Pace

	trigger            trigger
	overload           float64 // its length
	useful             float64 // service in the counted time that reached its client
	born, done         [3]int  // of requests in the counted time
	requests, attempts int
	late               [int(after)][2]int // after the overload, by second of birth: born, done
}

func run(p policy, load float64, length time.Duration, with trigger, seed uint64) result {
	m := &model{policy: p, random: rand.New(rand.NewPCG(seed, 1)), overload: length.Seconds(), trigger: with}
	for i := range m.engines {
		m.engines[i] = &slotEngine{}
	}
	rate := float64(engines*slots) / meanService
	var arrive func()
	arrive = func() {
		m.come()
		r := load * rate
		if m.now >= m.overload {
			r = quiet * rate
		}
		if m.now < m.overload+after {
			m.at(m.random.ExpFloat64()/r, arrive)
		}
	}
	m.at(0, arrive)
	var look func()
	look = func() {
		m.pace.Tick(m.queue.Len() > 0, m.clock())
		m.expire()
		if m.now < m.overload+after+60 {
			m.at(0.1, look)
		}
	}
	m.at(0, look)
	m.at(max(0, m.overload-triggerLasts), m.strike)
	for len(m.events) > 0 {
		e := heap.Pop(&m.events).(event)
		m.now = e.at
		e.do()
	}
	return m.result()
}

func (m *model) at(in float64, do func()) {
	m.seq++
	heap.Push(&m.events, event{m.now + in, m.seq, do})
}

var zero = time.Unix(1_700_000_000, 0)

func (m *model) clock() time.Time { return zero.Add(time.Duration(m.now * float64(time.Second))) }

func (m *model) counted(born float64) bool {
	return born >= min(settle, m.overload/2) && born < m.overload
}

func (m *model) come() {
	x := &request{born: m.now, stream: m.random.IntN(2) == 0, began: math.NaN(),
		service: meanService * math.Exp(sigma*m.random.NormFloat64()-sigma*sigma/2)}
	switch p := m.random.Float64(); {
	case p < criticalPart:
		x.priority = protect.Critical
	case p < criticalPart+standardPart:
		x.priority = protect.Standard
	default:
		x.priority = protect.Sheddable
	}
	m.requests++
	if m.counted(x.born) {
		m.born[x.priority]++
	} else if s := int(m.now - m.overload); s >= 0 && s < len(m.late) {
		m.late[s][0]++
	}
	m.call(x)
}

// call is one call of the client's SDK, which gives up in its time.
func (m *model) call(x *request) {
	x.calls++
	x.tries, x.began, x.engine = 0, math.NaN(), nil
	x.gone++
	mine, wait := x.gone, wholeWaits
	if x.stream {
		wait = streamWaits
	}
	m.at(wait, func() {
		if x.gone == mine && (math.IsNaN(x.began) || !x.stream) {
			m.leave(x)
			m.again(x, 0)
		}
	})
	if m.policy == naive {
		m.send(x)
		return
	}
	m.admit(x)
}

// again is what the SDK does after a call that failed.
func (m *model) again(x *request, told float64) {
	x.gone++
	if x.calls > sdkRetries {
		return
	}
	wait := told
	if wait == 0 {
		wait = min(0.5*math.Pow(2, float64(x.calls-1)), 8) * (1 - m.random.Float64()/4)
	}
	m.at(wait, func() { m.call(x) })
}

// leave takes a request whose client has left off its engine, or out of the queue.
func (m *model) leave(x *request) {
	if x.waits != nil {
		m.queue.Remove(x.waits)
		x.waits = nil
	}
	e := x.engine
	if e == nil {
		return
	}
	x.engine = nil
	if !math.IsNaN(x.began) {
		e.drop(x)
	} else {
		for i := range e.queue {
			if e.queue[i] == x {
				e.queue = append(e.queue[:i], e.queue[i+1:]...)
				break
			}
		}
	}
	m.next(e)
}

func (m *model) lightest() *slotEngine {
	best := m.engines[m.random.IntN(engines)]
	for _, e := range m.engines {
		if !e.dead && (best.dead || e.held() < best.held()) {
			best = e
		}
	}
	return best
}

// send is the naive router: anywhere, and five times more where an engine's
// own queue is full.
func (m *model) send(x *request) {
	m.attempts++
	e := m.lightest()
	if e.held() >= slots+engineQueue {
		mine := x.gone
		if x.tries++; x.tries > routerTries {
			m.again(x, 0)
			return
		}
		m.at(0.05*math.Pow(1.5, float64(x.tries)), func() {
			if x.gone == mine {
				m.send(x)
			}
		})
		return
	}
	m.put(x, e)
}

func (m *model) put(x *request, e *slotEngine) {
	x.engine = e
	e.queue = append(e.queue, x)
	m.next(e)
}

// next begins what the engine has slots for, then lets the gateway fill it.
func (m *model) next(e *slotEngine) {
	for !e.dead && e.busy < slots && len(e.queue) > 0 {
		x := e.queue[0]
		e.queue = e.queue[1:]
		e.busy++
		e.works = append(e.works, x)
		x.began, x.held = m.now, 0
		m.serve(x, x.service*m.slowness())
	}
	if m.policy == admitting {
		m.dispatch()
	}
}

// serve ends a request after its service, and what its engine has stood still.
func (m *model) serve(x *request, service float64) {
	mine := x.gone
	m.at(service, func() {
		if x.gone != mine {
			return
		}
		if still := m.stillness(x.began) - x.held; still > 0 {
			x.held += still
			m.serve(x, still)
			return
		}
		m.finish(x)
	})
}

func (m *model) finish(x *request) {
	x.gone++
	if from := max(x.began, min(settle, m.overload/2)); from < min(m.now, m.overload) {
		m.useful += min(m.now, m.overload) - from
	}
	if m.counted(x.born) {
		m.done[x.priority]++
	} else if s := int(x.born - m.overload); s >= 0 && s < len(m.late) {
		m.late[s][1]++
	}
	e := x.engine
	x.engine = nil
	e.drop(x)
	m.next(e)
}

// patience is that of the gateway's queue, by priority.
func patience(p protect.Priority) time.Duration {
	if p == protect.Critical {
		return 10 * time.Second
	}
	return 8 * time.Second
}

// admit is the gateway: to an engine with room, else into the queue, else refused.
func (m *model) admit(x *request) {
	m.pace.Came(1)
	w := &protect.Waiting[*request]{Value: x, Priority: x.priority, Cost: 1, Since: m.clock()}
	if m.queue.Len() > 0 {
		worth := m.pace.Worth(patience(x.priority), m.clock())
		ahead := m.queue.Ahead(x.priority)
		if ahead > 0 && m.pace.Wait(ahead+1) > worth {
			m.refuse(x)
			return
		}
		if m.queue.Len() >= 2*engines*(slots+headroom) {
			least := m.queue.Least(x.priority)
			if least == nil {
				m.refuse(x)
				return
			}
			m.queue.Remove(least)
			m.refuse(least.Value)
		}
	}
	x.waits = w
	m.queue.Push(w)
	m.dispatch()
}

func (m *model) refuse(x *request) {
	x.waits = nil
	if x.calls > sdkRetries || x.priority == protect.Sheddable && m.pace.Over() > 2 {
		x.gone++ // told not to come again
		return
	}
	m.again(x, math.Ceil((2+4*m.random.Float64())*float64(x.calls)))
}

func (m *model) dispatch() {
	for m.queue.Len() > 0 {
		e := m.lightest()
		if e.dead || e.held() >= slots+headroom {
			return
		}
		w := m.queue.Next(func(p protect.Priority) bool {
			return m.clock().Sub(m.queue.Oldest(p).Since) > m.pace.Worth(patience(p), m.clock())/2
		}, func(*protect.Waiting[*request]) bool { return true })
		m.pace.Began(w.Cost)
		m.attempts++
		w.Value.waits = nil
		m.put(w.Value, e)
	}
}

func (m *model) expire() {
	for p := protect.Critical; p <= protect.Sheddable; p++ {
		for w := m.queue.Oldest(p); w != nil && m.clock().Sub(w.Since) >= m.pace.Worth(patience(p), m.clock()); w = m.queue.Oldest(p) {
			m.queue.Remove(w)
			m.refuse(w.Value)
		}
	}
}

func (m *model) result() result {
	r := result{Policy: m.policy, PerRequest: float64(m.attempts) / float64(m.requests), Recovery: after}
	r.Goodput = m.useful / (engines * slots * (m.overload - min(settle, m.overload/2)))
	for p := range r.Success {
		r.Success[p] = float64(m.done[p]) / float64(max(m.born[p], 1))
	}
	for s := 0; s+recoveryOver <= len(m.late); s++ {
		born, done := 0, 0
		for _, second := range m.late[s : s+recoveryOver] {
			born, done = born+second[0], done+second[1]
		}
		if float64(done) >= 0.99*float64(born) {
			r.Recovery = float64(s)
			break
		}
	}
	return r
}
