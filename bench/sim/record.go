package sim

import (
	"time"

	"penstock/selector"
)

// record is what became of a request, in as little memory as will do.
type record struct {
	at       time.Duration
	wait     float32 // ms from its client's first call to the last
	ttft     float32 // ms; 0 where none came
	e2e      float32 // ms
	prompt   int32
	cached   int32
	out      int32
	server   int16 // -1: none
	source   int16
	how      ending
	priority uint8
	flags    uint8
}

const (
	flagLater  uint8 = 1 << iota // of a conversation that has been here before
	flagMoved                    // elsewhere than the turn before
	flagSpill                    // not where its key leads
	flagBound                    // had to be served in a certain region
	flagRemote                   // served in another region than its own
)

// stats are counts that no record has.
type stats struct {
	dispatches int
	load       []float64 // by engine: sum of requests over slots, over looks
	looks      int
	peak       int
}

func (s *stats) entered(*request) {}

// look notes how loaded engines are.
func (s *stats) look(w *world) {
	s.looks++
	for i, e := range w.servers {
		s.load[i] += float64(e.batch.Running()+e.batch.Waiting()) / float64(e.Slots)
	}
	s.peak = max(s.peak, w.open)
}

// note writes a request's record.
func (w *world) note(r *request, how ending) {
	c := record{at: r.Request.At, prompt: int32(r.Prompt), out: int32(r.Output), server: -1, source: int16(r.gateway.region), how: how, priority: uint8(r.Priority)}
	if r.Require != "" {
		c.flags |= flagBound
	}
	if r.server != nil {
		c.server = int16(r.server.index)
		if r.server.region != r.gateway.region {
			c.flags |= flagRemote
		}
	}
	if how == whole {
		c.cached = int32(r.cached)
		c.e2e = float32(float64(w.now-r.begins) / 1e6)
		c.ttft = float32(float64(r.first-r.begins) / 1e6)
		c.wait = float32(float64(r.begins-r.Request.At) / 1e6)
		switch r.why {
		case selector.WhyAlternate, selector.WhySpillDraw, selector.WhyAnyRoom, selector.WhyNext:
			if r.Conversation != 0 && r.gateway.router == nil {
				c.flags |= flagSpill
			}
		}
		if r.Conversation != 0 {
			was, known := w.lasts[r.Conversation]
			if known {
				c.flags |= flagLater
				if was.server != r.server.index {
					c.flags |= flagMoved
				}
			}
			w.lasts[r.Conversation] = last{r.server.index, int32(r.Turn)}
		}
	}
	w.records = append(w.records, c)
}
