package engine

import (
	"sync"
	"time"
)

// Answer is what one attempt showed of the engine it was on. Times count from
// when the attempt was sent to when it ended.
type Answer struct {
	At    time.Time     // when it ended
	Total time.Duration // from sent to ended
	TTFT  time.Duration // from sent to the first content of a stream; 0 where there was none, or no stream
	TBOT  time.Duration // mean time between the output tokens of a stream; 0 where fewer than two came

	Prompt, Cached, Output int32 // tokens; Cached is part of Prompt
	Counted                bool  // the engine counted them; else Output is the number of events, and Prompt a guess

	// Attempts of this gateway on the engine when it was sent, itself included,
	// and when it ended, likewise.
	InFlightFrom, InFlightTo int32

	Cold bool // it was the first on its connection: TTFT and Total have the set-up in them
	How  Ended

	Repeat bool // paid for by the retry budget: work that may have been done before
}

// Ended says how an attempt ended, as far as it tells of the engine.
type Ended uint8

const (
	EndedWhole Ended = iota // a whole answer
	EndedFault              // failed by the engine's fault
	EndedBusy               // the engine said that it is full
	EndedElse               // cut short by the client or the gateway, or refused for what was asked: nobody's fault
	endedCount
)

func (h Ended) String() string { return [...]string{"whole", "fault", "busy", "else"}[h] }

// maxAnswers bounds what is kept of one engine between two cycles.
const maxAnswers = 512

// answers is what the attempts on one engine showed since it was last drained.
// The zero value is ready. Attempts write at their end, away from the pick.
type answers struct {
	mu   sync.Mutex // guards what is below
	ring []Answer   // grows to maxAnswers; then the oldest gives way
	next int        // of a full ring, the oldest
	lost uint64     // that gave way, over the engine's life
	hows [endedCount]uint64
}

// Answered notes how an attempt ended.
func (l *Live) Answered(a Answer) {
	s := &l.answers
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hows[a.How]++
	if len(s.ring) < maxAnswers {
		s.ring = append(s.ring, a)
		return
	}
	s.ring[s.next] = a
	s.next = (s.next + 1) % maxAnswers
	s.lost++
}

// TakeAnswers appends what came since the last call to into, oldest first, and
// empties the ring. One caller has them: the control cycle.
func (l *Live) TakeAnswers(into []Answer) []Answer {
	s := &l.answers
	s.mu.Lock()
	defer s.mu.Unlock()
	into = append(into, s.ring[s.next:]...)
	into = append(into, s.ring[:s.next]...)
	s.ring, s.next = s.ring[:0], 0
	return into
}

// Endings counts the engine's attempts by how they ended, and the answers that
// were lost because more came in a cycle than are kept.
func (l *Live) Endings() (hows [endedCount]uint64, lost uint64) {
	s := &l.answers
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hows, s.lost
}
