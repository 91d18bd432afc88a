package selector

import (
	"sync"
	"sync/atomic"
	"time"

	"penstock/route"
)

// recordCount bounds the decision records kept: the latest requests.
const recordCount = 8192

// Records is a bounded ring of decision records. Adding is one atomic
// increment and one store; looking up walks the ring.
type Records struct {
	next atomic.Uint64
	ring [recordCount]atomic.Pointer[Record]
}

func newRecords() *Records { return &Records{} }

// Add keeps r until recordCount newer ones have come.
func (rs *Records) Add(r *Record) { rs.ring[rs.next.Add(1)%recordCount].Store(r) }

// Find returns the newest record of a request id, nil if it is not kept.
func (rs *Records) Find(id string) *Record {
	n := rs.next.Load()
	for i := range uint64(recordCount) {
		if r := rs.ring[(n-i)%recordCount].Load(); r != nil && r.ID == id {
			return r
		}
	}
	return nil
}

// Attempt is one attempt as the request path notes it.
type Attempt struct {
	Decision Decision
	Engine   string
	Outcome  string
	Cause    string
	Took     time.Duration
}

// Record is the decision record of one request: why it went where it went,
// and what became of it. Key ids are not in it, only where the key came from.
type Record struct {
	ID        string // request id; immutable, as all fields above mu
	Time      time.Time
	Model     string
	Class     route.ClassKey
	Tenant    string
	Priority  string
	KeySource string
	Key       uint64 // slot key, a keyed hash
	Keyed     bool
	Stream    bool

	mu    sync.Mutex // guards what is below
	first Attempt    // nearly always the only one
	more  []Attempt
	n     int
	end   End
}

// lastLocked is the latest attempt. The caller holds mu.
func (r *Record) lastLocked() *Attempt {
	if len(r.more) > 0 {
		return &r.more[len(r.more)-1]
	}
	return &r.first
}

// End is how a request ended.
type End struct {
	Done             bool
	Outcome          string
	Status           int
	Code             string // error code, if one was sent
	TTFT, Total      time.Duration
	PromptTokens     int
	CompletionTokens int
	CachedTokens     int
}

// Begin notes the pick of an attempt.
func (r *Record) Begin(d *Decision, engine string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := Attempt{Decision: *d, Engine: engine}
	if r.n++; r.n == 1 {
		r.first = a
	} else {
		r.more = append(r.more, a)
	}
}

// EndAttempt notes how the latest attempt ended.
func (r *Record) EndAttempt(outcome, cause string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.lastLocked()
	a.Outcome, a.Cause, a.Took = outcome, cause, took
}

// Finish notes how the request ended.
func (r *Record) Finish(e End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Done = true
	r.end = e
}

// Attempts returns a copy of what was noted.
func (r *Record) Attempts() ([]Attempt, End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return nil, r.end
	}
	return append([]Attempt{r.first}, r.more...), r.end
}
