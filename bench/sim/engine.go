package sim

import (
	"time"

	"penstock/engine/enginetest"
)

// server is one engine on virtual time: the batch, and the step or the plain
// steps that are under way.
type server struct {
	EngineSpec
	index  int32
	region int
	batch  *enginetest.Batch
	down   bool
	slow   float64

	under  bool // something is under way
	gen    uint32
	events []enginetest.Event
	plain  int           // steps of the run under way; 0: one step, with events
	each   time.Duration // of a plain step
	from   time.Duration // when the run began
	// pending is how many requests its last schedule left waiting. What came
	// since is not in its figures: an engine looks at its inbox between steps.
	pending int

	requests []*request // in the engine, for when it fails
	recent   [16]float32
	recents  int
}

func newServer(s EngineSpec, index int32, region, blockTokens int) *server {
	e := &server{EngineSpec: s, index: index, region: region, slow: 1}
	e.start(blockTokens)
	return e
}

// start makes the engine one that has just started: nothing runs, nothing is cached.
func (e *server) start(blockTokens int) {
	e.batch = enginetest.NewBatch(e.model(blockTokens))
}

// add puts a request into the engine. A run of plain steps that cannot go on
// with it ends with the step under way.
func (w *world) add(e *server, r *request) {
	if err := e.batch.Add(r.seq); err != nil {
		w.answer(r, failedTooLong)
		return
	}
	e.put(r)
	switch {
	case !e.under:
		w.begin(e)
	case e.plain > 0:
		if n, _ := e.batch.Plain(); n > 0 {
			return
		}
		w.cut(e)
	}
}

// cut ends a run of plain steps with the step that is under way.
func (w *world) cut(e *server) {
	done := int((w.now - e.from + e.each - 1) / e.each)
	if done >= e.plain {
		return
	}
	e.plain = done
	e.gen++
	w.events.add(e.from+time.Duration(done)*e.each, step, e.index, e.gen)
}

// begin starts what the engine does next.
func (w *world) begin(e *server) {
	e.under = !e.down && e.batch.Busy()
	if !e.under {
		e.pending = 0
		return
	}
	e.from, e.events = w.now, nil
	var took time.Duration
	if e.plain, e.each = e.batch.Plain(); e.plain > 0 {
		e.each = e.slowed(e.each)
		took = time.Duration(e.plain) * e.each
	} else {
		st := e.batch.Step()
		e.events = st.Events
		took = e.slowed(st.Elapsed)
	}
	e.pending = e.batch.Waiting()
	e.gen++
	w.events.add(w.now+took, step, e.index, e.gen)
}

func (e *server) slowed(d time.Duration) time.Duration {
	if e.slow != 1 {
		d = time.Duration(float64(d) * e.slow)
	}
	return max(d, 1)
}

// stepped ends what was under way.
func (w *world) stepped(e *server) {
	if e.plain > 0 {
		e.batch.Advance(e.plain)
	}
	for i := range e.events {
		ev := &e.events[i]
		r := ev.Seq.Owner.(*request)
		if r.seq != ev.Seq { // it left meanwhile
			continue
		}
		if ev.Seq.Generated == 1 && r.first == 0 {
			w.firstToken(r)
		}
		if ev.Finished {
			e.drop(r)
			w.answer(r, whole)
		}
	}
	w.begin(e)
}

// settle brings the engine's books to now, where it is in a run of plain
// steps: what is aborted or read out must not be of a moment before.
func (w *world) settle(e *server) {
	if !e.under || e.plain == 0 {
		return
	}
	done := int((w.now - e.from) / e.each)
	if done == 0 {
		return
	}
	e.batch.Advance(done)
	e.plain -= done
	e.from += time.Duration(done) * e.each
	if e.plain == 0 { // its end is an event of this very moment
		e.events = nil
	}
}

// put and drop keep the list of what is in the engine.
func (e *server) put(r *request) {
	r.at = len(e.requests)
	e.requests = append(e.requests, r)
}

func (e *server) drop(r *request) {
	last := len(e.requests) - 1
	moved := e.requests[last]
	e.requests[r.at] = moved
	moved.at = r.at
	e.requests[last] = nil
	e.requests = e.requests[:last]
}

// took notes the latency of an answer, as the engine sees it.
func (e *server) took(d time.Duration) {
	e.recent[e.recents%len(e.recent)] = float32(d.Seconds())
	e.recents++
}

// abort takes a request out of the engine.
func (w *world) abort(e *server, r *request) {
	w.settle(e)
	e.drop(r)
	seq := r.seq
	r.seq = nil    // the step under way may still name it
	if e.Zombies { // it works on: nobody is there to read it
		return
	}
	e.batch.Abort(seq)
	if e.plain > 0 {
		w.cut(e)
	}
}
