package sim

import (
	"io"
	"time"

	"penstock/protect"
)

// Request is one request as a trace has it.
type Request struct {
	At           time.Duration // since the beginning
	Conversation uint64        // 0: of none
	Turn         int           // of the conversation, from 0
	Prompt       int           // tokens
	Output       int           // tokens of the answer
	Blocks       []uint64      // one hash for each full block of the prompt, of all text up to its end; nil: nothing is shared
	BlockTokens  int           // tokens of a block
	Priority     protect.Priority
	Source       string // region where it enters; "": by the regions' shares
	Require      string // region that it must be served in; "": any
}

// Feed gives requests in the order of their times, io.EOF after the last.
// What r points to may be used until the run is over.
type Feed interface {
	Next(r *Request) error
}

// List is a Feed of requests that are there. Each run has one of its own.
type List struct {
	Requests []Request
	Speed    float64       // requests come that many times faster; 0 = 1
	Until    time.Duration // in the trace's time, nothing after; 0 = all
	next     int
}

// Next implements Feed.
func (l *List) Next(r *Request) error {
	if l.next >= len(l.Requests) || l.Until > 0 && l.Requests[l.next].At >= l.Until {
		return io.EOF
	}
	*r = l.Requests[l.next]
	l.next++
	if l.Speed > 0 {
		r.At = time.Duration(float64(r.At) / l.Speed)
	}
	return nil
}
