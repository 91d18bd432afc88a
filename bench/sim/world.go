package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"penstock/engine/enginetest"
	"penstock/protect"
	"penstock/selector"
)

// Options are what a run is made of, beside its requests.
type Options struct {
	Fleet    *Fleet // Complete has made it whole
	Policy   Policy
	Seed     uint64
	Clients  *Clients // nil: patient, and nobody tries again
	BlockTok int      // tokens of a KV block; 0: 16. The trace's where it has blocks
	Progress func(requests int)
	// Reweigh, where it is there, says now and then what engines are told to
	// carry, as factors by engine; each time for all gateways.
	Reweigh      func(n int) []float64
	ReweighEvery time.Duration
}

// Clients are what people's SDKs do.
type Clients struct {
	Streams        float64       // part of the requests that stream
	StreamPatience time.Duration // for the first token
	WholePatience  time.Duration // for all of it
	Retries        int
}

// request is one request on its way.
type request struct {
	id  int32
	gen uint32 // of its events
	Request
	gateway *gateway
	seq     *enginetest.Seq // nil: not in an engine
	at      int             // in its engine's list
	server  *server         // of the attempt under way
	sent    time.Duration   // the attempt
	first   time.Duration   // the first token, at the gateway; 0: none yet
	how     ending
	cached  int
	tries   int
	calls   int // of the client
	stream  bool
	begins  time.Duration // of the client's call

	lease  selector.Lease
	class  selector.Class
	ask    selector.Ask
	why    selector.Why
	waits  *protect.Waiting[*request]
	since  time.Duration // when it began to wait
	paid   bool          // the attempt was paid for by the retry budget
	from   int32         // in flight there when it was sent
	repeat bool          // the client's
}

// ending is how an attempt, or a request, ended. Closed.
type ending uint8

const (
	whole ending = iota
	failedGone
	failedBusy
	failedTooLong
	shedFull
	shedWait
	shedTimeout
	shedPlan
	refusedFilter
	leftClient
	endings
)

func (h ending) String() string {
	return [endings]string{"ok", "engine_gone", "engine_busy", "too_long", "queue_full", "queue_wait", "queue_timeout", "planned", "no_engine", "client_left"}[h]
}

func (h ending) shed() bool { return h >= shedFull && h <= shedPlan }

// world is one run under way.
type world struct {
	Options
	now      time.Duration
	events   events
	servers  []*server
	gateways []*gateway
	feed     Feed
	next     Request
	more     bool
	dice     *rand.Rand
	requests []*request
	free     []int32
	open     int // requests under way
	count    int
	shares   []float64
	homes    map[uint64]int32 // of conversations that came while shares swing
	reweighs int
	lasts    map[uint64]last // of conversations: where their last turn was
	records  []record
	stats    stats
	peers    *peers
}

// last is where a conversation was served.
type last struct {
	server int32
	turn   int32
}

// start of virtual time, in the calendar of the gateway's code.
var start = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time { return start.Add(w.now) }

// Run plays the feed on the fleet under the policy.
func Run(o Options, feed Feed) (*Result, error) {
	w := &world{Options: o, feed: feed, dice: rand.New(rand.NewPCG(o.Seed, 0x73696d)), lasts: make(map[uint64]last)}
	if err := w.pull(); err != nil {
		return nil, err
	}
	if !w.more {
		return nil, errors.New("the trace has no request")
	}
	block := o.BlockTok
	if w.next.BlockTokens > 0 {
		block = w.next.BlockTokens
	}
	if block == 0 {
		block = enginetest.BlockTokens
	}
	w.BlockTok = block
	w.build()
	for w.more || w.open > 0 {
		if len(w.events.heap) == 0 {
			return nil, fmt.Errorf("nothing happens any more while %d requests wait", w.open)
		}
		e := w.events.take()
		w.now = e.at
		if err := w.happen(e); err != nil {
			return nil, err
		}
	}
	return w.result(), nil
}

// pull reads the next request.
func (w *world) pull() error {
	was := w.next.At
	switch err := w.feed.Next(&w.next); {
	case errors.Is(err, io.EOF):
		w.more = false
		return nil
	case err != nil:
		return err
	}
	if w.next.At < was {
		return fmt.Errorf("request %d comes at %v, before the one ahead of it at %v", w.count+1, w.next.At, was)
	}
	w.more = true
	w.next.Output = max(1, w.next.Output)
	w.next.Prompt = max(1, w.next.Prompt)
	w.events.add(w.next.At, arrive, 0, 0)
	return nil
}

func (w *world) build() {
	f := w.Fleet
	region := make(map[string]int)
	for i, r := range f.Regions {
		region[r.Name] = i
		w.shares = append(w.shares, r.Share)
		if r.Swing > 0 && w.homes == nil {
			w.homes = make(map[uint64]int32)
		}
	}
	for i, e := range f.Engines {
		w.servers = append(w.servers, newServer(e, int32(i), region[e.Region], w.BlockTok))
	}
	w.stats.load = make([]float64, len(w.servers))
	w.peers = &peers{}
	for i := range f.Regions {
		w.gateways = append(w.gateways, newGateway(w, i))
	}
	for i, x := range f.Faults {
		w.events.add(time.Duration(x.At), fault, int32(i), 0)
		if x.For > 0 {
			w.events.add(time.Duration(x.At+x.For), fault, int32(i), 1)
		}
	}
	w.cycled()
	w.looked()
}

func (w *world) happen(e event) error {
	switch e.kind {
	case arrive:
		w.come()
		return w.pull()
	case step:
		if s := w.servers[e.who]; s.gen == e.gen {
			w.stepped(s)
		}
	case cycle:
		w.cycled()
	case look:
		w.looked()
	case fault:
		w.befall(&w.Fleet.Faults[e.who], e.gen == 1)
	default:
		r := w.requests[e.who]
		if r.gen != e.gen {
			return nil
		}
		switch e.kind {
		case reach:
			w.reached(r)
		case back:
			w.returned(r)
		case impatient:
			w.leave(r)
		case again:
			w.call(r)
		case resend:
			r.gateway.routeOn(w, r)
		}
	}
	return nil
}

// come makes a request of what the feed gave.
func (w *world) come() {
	w.count++
	if w.Progress != nil && w.count&0x3ff == 0 {
		w.Progress(w.count)
	}
	r := w.take()
	r.Request = w.next
	r.gateway = w.gateways[w.home(&w.next)]
	if home := &w.Fleet.Regions[r.gateway.region]; home.Bound {
		r.Require = home.Name
	}
	r.stream = true
	if c := w.Clients; c != nil {
		r.stream = w.dice.Float64() < c.Streams
	}
	w.open++
	w.call(r)
}

// take makes a request, of the memory of one that is over where there is one.
func (w *world) take() *request {
	if n := len(w.free); n > 0 {
		old := w.requests[w.free[n-1]]
		w.free = w.free[:n-1]
		*old = request{id: old.id, gen: old.gen + 1, seq: old.seq}
		return old
	}
	r := &request{id: int32(len(w.requests))}
	w.requests = append(w.requests, r)
	return r
}

// home is the region where a request enters: what it says, else by the shares,
// the same for all of a conversation.
func (w *world) home(r *Request) int32 {
	if r.Source != "" {
		for i := range w.Fleet.Regions {
			if w.Fleet.Regions[i].Name == r.Source {
				return int32(i)
			}
		}
	}
	if len(w.shares) == 1 {
		return 0
	}
	key := r.Conversation
	if key == 0 {
		key = uint64(w.count)
	}
	if h, ok := w.homes[key]; ok && r.Conversation != 0 {
		return h
	}
	sum := 0.0
	part := func(i int) float64 {
		g := &w.Fleet.Regions[i]
		if g.Swing == 0 {
			return w.shares[i]
		}
		return w.shares[i] * (1 + g.Swing*math.Sin(2*math.Pi*(float64(r.At)/float64(Day)+g.Phase)))
	}
	for i := range w.shares {
		sum += part(i)
	}
	at := float64(mix(key^w.Seed*0x9e3779b97f4a7c15)>>11) / (1 << 53) * sum
	h := int32(0)
	for i := range w.shares {
		if at -= part(i); at < 0 {
			h = int32(i)
			break
		}
	}
	if w.homes != nil && r.Conversation != 0 {
		w.homes[r.Conversation] = h
	}
	return h
}

// mix spreads the bits of a number (splitmix64).
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// trip is the way from a gateway to an engine, one of the two.
func (w *world) trip(g *gateway, e *server) time.Duration {
	return w.Fleet.Network.trips[g.region][e.region] / 2
}

// call is one call of the request's client.
func (w *world) call(r *request) {
	r.calls++
	r.gen++
	r.tries, r.first, r.server, r.ask.Tries = 0, 0, nil, 0
	r.begins = w.now
	if c := w.Clients; c != nil {
		wait := c.WholePatience
		if r.stream {
			wait = c.StreamPatience
		}
		w.events.add(w.now+wait, impatient, r.id, r.gen)
	}
	r.gateway.enter(w, r)
}

// send puts an attempt on its way.
func (w *world) send(r *request, e *server) {
	r.server, r.sent, r.first, r.how = e, w.now, 0, whole
	r.tries++
	r.gateway.out[e.index]++
	r.from = r.gateway.out[e.index]
	w.stats.dispatches++
	w.events.add(w.now+w.trip(r.gateway, e), reach, r.id, r.gen)
}

func (w *world) reached(r *request) {
	e := r.server
	if e.down {
		w.answer(r, failedGone)
		return
	}
	if e.QueueLimit > 0 && e.batch.Excess() >= e.QueueLimit {
		w.answer(r, failedBusy)
		return
	}
	if r.seq == nil {
		r.seq = &enginetest.Seq{Owner: r}
	}
	chain := r.Blocks
	if full := r.Prompt / w.BlockTok; len(chain) > full {
		chain = chain[:full]
	}
	r.seq.Reuse(chain, r.Prompt, r.Output)
	w.add(e, r)
}

// firstToken is told of the first token of a request, in its engine.
func (w *world) firstToken(r *request) {
	r.first = w.now + w.trip(r.gateway, r.server)
	if r.first == 0 {
		r.first = 1
	}
	r.lease.Began() // what the gateway hears on the way back
}

// answer ends an attempt in its engine; the gateway hears of it later.
func (w *world) answer(r *request, how ending) {
	r.how = how
	if how == whole {
		r.cached = r.seq.Cached
		r.server.took(w.now - r.sent)
	}
	w.events.add(w.now+w.trip(r.gateway, r.server), back, r.id, r.gen)
}

// returned is the end of an attempt, at its gateway.
func (w *world) returned(r *request) {
	g := r.gateway
	g.out[r.server.index]--
	g.ended(w, r)
}

// leave is what a client does whose patience ends.
func (w *world) leave(r *request) {
	if r.stream && r.first != 0 && r.first <= w.now {
		return
	}
	r.gen++
	g := r.gateway
	g.forget(w, r)
	if r.server != nil {
		g.out[r.server.index]--
		if r.seq != nil && r.at < len(r.server.requests) && r.server.requests[r.at] == r {
			w.abort(r.server, r)
		}
		r.how = leftClient
		g.gone(w, r)
	}
	w.over(r, leftClient, 0)
}

// over ends a client's call. told is how long the gateway asked to wait.
func (w *world) over(r *request, how ending, told time.Duration) {
	if c := w.Clients; c != nil && how != whole && how != refusedFilter && r.calls <= c.Retries && told >= 0 {
		wait := told
		if wait == 0 {
			wait = min(500*time.Millisecond<<(r.calls-1), 8*time.Second)
			wait -= time.Duration(w.dice.Float64() / 4 * float64(wait))
		}
		r.repeat = true
		r.gen++
		w.events.add(w.now+wait, again, r.id, r.gen)
		return
	}
	w.note(r, how)
	r.gen++
	w.open--
	w.free = append(w.free, r.id)
}

// befall begins or ends a fault.
func (w *world) befall(x *Fault, ends bool) {
	for _, e := range w.servers {
		if x.Engine != e.Name && (x.Region == "" || x.Region != w.Fleet.Regions[e.region].Name) {
			continue
		}
		switch {
		case x.Kind == "down" && !ends:
			w.fail(e)
		case x.Kind == "down":
			e.down = false
			e.start(w.BlockTok)
		case x.Kind == "slow" && ends:
			e.slow = 1
		case x.Kind == "slow":
			e.slow = x.Factor
		case !ends:
			w.flush(e)
		}
	}
}

// fail takes an engine down with all that is in it.
func (w *world) fail(e *server) {
	e.down, e.under = true, false
	e.gen++
	for len(e.requests) > 0 {
		r := e.requests[0]
		e.drop(r)
		r.seq = nil
		w.answer(r, failedGone)
	}
}

// flush empties the prefix cache of an engine: what runs is computed again.
func (w *world) flush(e *server) {
	w.settle(e)
	e.start(w.BlockTok)
	e.under = false
	e.gen++
	for _, r := range e.requests {
		r.seq = &enginetest.Seq{Owner: r}
		r.seq.Reuse(r.Blocks[:min(len(r.Blocks), r.Prompt/w.BlockTok)], r.Prompt, r.Output)
		if err := e.batch.Add(r.seq); err != nil {
			panic(err) // it fitted before
		}
	}
	w.begin(e)
}
