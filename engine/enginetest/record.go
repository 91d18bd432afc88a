package enginetest

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Bounds of what a Sim remembers of its requests; beyond them the oldest
// disconnects are forgotten and new ids are not counted.
const (
	maxDeliveryIDs = 200_000
	maxDisconnects = 10_000
)

// Stats is what a Sim has seen so far.
type Stats struct {
	Received    int            // generation requests whose whole body arrived
	Completed   int            // answered in full, without a fault
	Refused     int            // answered with an error that no fault caused
	Faulted     int            // a fault was drawn for
	FaultedBy   map[string]int // Faulted, by the fault's name
	Connections int            // accepted by Serve
	Deliveries  map[string]int // Received, by the nonce in the body, else by X-Request-Id
	Disconnects []Disconnect

	Running, Waiting int
	KVUsed           float64
	Totals
}

// Disconnect is a client that left before its answer was complete.
type Disconnect struct {
	ID string // as in Deliveries
	At time.Time
}

// Received is one request as it arrived.
type Received struct {
	At     time.Time
	ID     string // as in Stats.Deliveries
	Method string
	Target string // path and query
	Header http.Header
	Body   []byte
}

// record is the part of a Sim that remembers; guarded by Sim.mu.
type record struct {
	received, completed, refused, faulted, connections int
	faultedBy                                          [noFault]int
	deliveries                                         map[string]int
	disconnects                                        []Disconnect
	kept                                               []Received
}

// Stats returns a copy of the counters.
func (s *Sim) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Received:    s.rec.received,
		Completed:   s.rec.completed,
		Refused:     s.rec.refused,
		Faulted:     s.rec.faulted,
		FaultedBy:   s.rec.byName(),
		Connections: s.rec.connections,
		Deliveries:  maps.Clone(s.rec.deliveries),
		Disconnects: slices.Clone(s.rec.disconnects),
		Running:     s.batch.Running(),
		Waiting:     s.batch.Waiting(),
		KVUsed:      s.batch.KVUsed(),
		Totals:      s.batch.Totals(),
	}
}

// Requests returns the last Config.Keep requests, the oldest first.
func (s *Sim) Requests() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.rec.kept)
}

// noteDelivery counts a request whose body is complete and numbers it.
func (s *Sim) noteDelivery(r *http.Request, id string, body []byte) (number uint64) {
	var kept Received
	if s.cfg.Keep > 0 {
		kept = Received{At: time.Now(), ID: id, Method: r.Method, Target: r.URL.RequestURI(),
			Header: r.Header.Clone(), Body: body}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	s.rec.received++
	if _, known := s.rec.deliveries[id]; id != "" && (known || len(s.rec.deliveries) < maxDeliveryIDs) {
		s.rec.deliveries[id]++
	}
	if s.cfg.Keep > 0 {
		if len(s.rec.kept) >= s.cfg.Keep {
			s.rec.kept = slices.Delete(s.rec.kept, 0, 1)
		}
		s.rec.kept = append(s.rec.kept, kept)
	}
	return s.ids
}

// ending is how a request ended, for the counters.
type ending uint8

const (
	completed ending = iota
	refused
	faulted
	disconnected
)

func (s *Sim) noteFault(kind FaultKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.faulted++
	s.rec.faultedBy[kind]++
}

// byName are the faults that befell a request.
func (r *record) byName() map[string]int {
	named := make(map[string]int)
	for kind, n := range r.faultedBy {
		if n > 0 {
			named[FaultKind(kind).String()] = n
		}
	}
	return named
}

func (s *Sim) noteEnd(id string, e ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e {
	case completed:
		s.rec.completed++
	case refused:
		s.rec.refused++
	case faulted: // counted when it was drawn, so that hanging requests show
	case disconnected:
		if len(s.rec.disconnects) >= maxDisconnects {
			s.rec.disconnects = slices.Delete(s.rec.disconnects, 0, maxDisconnects/2)
		}
		s.rec.disconnects = append(s.rec.disconnects, Disconnect{ID: id, At: time.Now()})
	}
}
