package protect

import "time"

// Waiting is one request in a Queue.
type Waiting[T any] struct {
	Value    T
	Priority Priority
	Tenant   string
	Class    any // comparable: requests of one class can be served by the same engines
	Cost     float64
	Bytes    int64
	Since    time.Time // when it began to wait; a request that comes back keeps the time

	in           *flow[T]
	prev, next   *Waiting[T] // in the flow
	older, newer *Waiting[T] // in the rank
}

// Queue holds requests until there is room for them: strict priority, with a
// twentieth of the turns for lower priorities; within a priority in turn by
// tenant, by deficits of cost; within a tenant the oldest first, or the newest
// while the head has waited too long to be worth it (see Order).
//
// The zero value is an empty queue. Not safe for concurrent use.
type Queue[T any] struct {
	ranks [priorities]rank[T]
	n     int
	bytes int64
	turns [priorities]float64 // what lower priorities have earned
}

const (
	priorities = int(Sheddable) + 1
	// lowFloor is the share of turns that a lower priority has while a higher one waits.
	lowFloor = 0.05
	// quantum of cost that each tenant's turn adds, at least.
	quantum = 1024
)

// rank is what waits at one priority.
type rank[T any] struct {
	tenants []*share[T] // that have something waiting, in turn
	at      int         // whose turn it is
	byName  map[string]*share[T]
	oldest  *Waiting[T] // head by age
	newest  *Waiting[T]
	cost    float64
	n       int
}

// share is one tenant's part of a rank.
type share[T any] struct {
	name    string
	deficit float64
	cost    float64 // of all that it has waiting
	n       int
	flows   []*flow[T]
}

// flow is what one tenant has waiting of one class, the oldest first.
type flow[T any] struct {
	share       *share[T]
	class       any
	first, last *Waiting[T]
}

// Len is how many requests wait; Bytes what they hold.
func (q *Queue[T]) Len() int { return q.n }

// Bytes is the sum of what the waiting requests hold.
func (q *Queue[T]) Bytes() int64 { return q.bytes }

// Ahead is the cost that waits at a priority and at those that matter more.
func (q *Queue[T]) Ahead(p Priority) (cost float64) {
	for i := Critical; i <= p; i++ {
		cost += q.ranks[i].cost
	}
	return cost
}

// AheadOf is the cost that a request would find ahead of it: all that matters
// more, all of its tenant's, and of every other tenant's at its priority as much
// as is served in turn with that.
func (q *Queue[T]) AheadOf(w *Waiting[T]) (cost float64) {
	for i := Critical; i < w.Priority; i++ {
		cost += q.ranks[i].cost
	}
	r := &q.ranks[w.Priority]
	own := 0.0
	if s := r.byName[w.Tenant]; s != nil {
		own = s.cost
	}
	for _, s := range r.tenants {
		if s.name != w.Tenant {
			cost += min(s.cost, own+w.Cost)
		}
	}
	return cost + own
}

// Crowd is the newest request of the tenant that has the most waiting at the
// priority of w, where that is more than w's would have with it: the one to give
// way when the queue is full. Nil if there is none.
func (q *Queue[T]) Crowd(w *Waiting[T]) (last *Waiting[T]) {
	r := &q.ranks[w.Priority]
	most := 1
	if s := r.byName[w.Tenant]; s != nil {
		most += s.n
	}
	var crowd *share[T]
	for _, s := range r.tenants {
		if s.name != w.Tenant && s.n > most {
			crowd, most = s, s.n
		}
	}
	if crowd == nil {
		return nil
	}
	for _, f := range crowd.flows {
		if f.last != nil && (last == nil || f.last.Since.After(last.Since)) {
			last = f.last
		}
	}
	return last
}

// Oldest is the request of a priority that has waited longest, nil if none.
func (q *Queue[T]) Oldest(p Priority) *Waiting[T] { return q.ranks[p].oldest }

// Least is the newest request of the lowest priority that waits below p: the
// one to give way when the queue is full. Nil if there is none.
func (q *Queue[T]) Least(p Priority) *Waiting[T] {
	for i := Priority(priorities - 1); i > p; i-- {
		if w := q.ranks[i].newest; w != nil {
			return w
		}
	}
	return nil
}

// Push lets a request wait, in the order of Since.
func (q *Queue[T]) Push(w *Waiting[T]) {
	r := &q.ranks[w.Priority]
	f := r.flowOf(w)
	w.in = f
	// Nearly always at the end: only requests that come back are older.
	after := f.last
	for after != nil && after.Since.After(w.Since) {
		after = after.prev
	}
	w.prev = after
	if after != nil {
		w.next, after.next = after.next, w
	} else {
		w.next, f.first = f.first, w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		f.last = w
	}
	older := r.newest
	for older != nil && older.Since.After(w.Since) {
		older = older.older
	}
	w.older = older
	if older != nil {
		w.newer, older.newer = older.newer, w
	} else {
		w.newer, r.oldest = r.oldest, w
	}
	if w.newer != nil {
		w.newer.older = w
	} else {
		r.newest = w
	}
	r.n++
	r.cost += w.Cost
	f.share.n++
	f.share.cost += w.Cost
	q.n++
	q.bytes += w.Bytes
}

func (r *rank[T]) flowOf(w *Waiting[T]) *flow[T] {
	if r.byName == nil {
		r.byName = make(map[string]*share[T])
	}
	s := r.byName[w.Tenant]
	if s == nil {
		s = &share[T]{name: w.Tenant}
		r.byName[w.Tenant] = s
		r.tenants = append(r.tenants, s)
	}
	for _, f := range s.flows {
		if f.class == w.Class {
			return f
		}
	}
	f := &flow[T]{share: s, class: w.Class}
	s.flows = append(s.flows, f)
	return f
}

// Remove takes a request out; false if it does not wait any more.
func (q *Queue[T]) Remove(w *Waiting[T]) bool {
	if w.in == nil {
		return false
	}
	r, f := &q.ranks[w.Priority], w.in
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.last = w.prev
	}
	if w.older != nil {
		w.older.newer = w.newer
	} else {
		r.oldest = w.newer
	}
	if w.newer != nil {
		w.newer.older = w.older
	} else {
		r.newest = w.older
	}
	w.in, w.prev, w.next, w.older, w.newer = nil, nil, nil, nil, nil
	if r.n--; r.n == 0 {
		r.cost = 0 // whatever rounding left
	} else {
		r.cost -= w.Cost
	}
	f.share.n--
	f.share.cost -= w.Cost
	q.n--
	q.bytes -= w.Bytes
	if f.first == nil {
		r.drop(f)
	}
	return true
}

// drop forgets an empty flow, and its tenant with its last one: who has
// nothing waiting saves nothing up.
func (r *rank[T]) drop(f *flow[T]) {
	s := f.share
	for i := range s.flows {
		if s.flows[i] == f {
			s.flows = append(s.flows[:i], s.flows[i+1:]...)
			break
		}
	}
	if len(s.flows) > 0 {
		return
	}
	delete(r.byName, s.name)
	for i := range r.tenants {
		if r.tenants[i] == s {
			r.tenants = append(r.tenants[:i], r.tenants[i+1:]...)
			if i < r.at {
				r.at--
			}
			break
		}
	}
	if len(r.tenants) == 0 {
		r.at = 0
	} else {
		r.at %= len(r.tenants)
	}
}

// Order says which end of a tenant's queue is served: with newest the one that
// came last. It holds for one priority at a time.
type Order func(p Priority) (newest bool)

// Next takes out the request whose turn it is, of those that can be served:
// serve tries one and reports whether it went. A class for which it did not is
// not tried again in this call. Nil if none could be served.
func (q *Queue[T]) Next(order Order, serve func(*Waiting[T]) bool) *Waiting[T] {
	if q.n == 0 {
		return nil
	}
	var full []any // classes without room; few
	for _, p := range q.sequence() {
		r := &q.ranks[p]
		if r.n == 0 {
			continue
		}
		if w := r.next(order(p), &full, serve); w != nil {
			q.took(p)
			q.Remove(w)
			return w
		}
	}
	return nil
}

// sequence is the order of priorities at this turn: the highest first, unless
// a lower one has earned its turn.
func (q *Queue[T]) sequence() (s [priorities]Priority) {
	n := 0
	for p := priorities - 1; p > 0; p-- {
		if q.turns[p] >= 1 && q.ranks[p].n > 0 {
			s[n] = Priority(p)
			n++
			break
		}
	}
	for p := range priorities {
		if n == 0 || s[0] != Priority(p) {
			s[n] = Priority(p)
			n++
		}
	}
	return s
}

// took books a turn of priority p: those below that wait earn their floor.
func (q *Queue[T]) took(p Priority) {
	if q.turns[p] >= 1 {
		q.turns[p]--
	}
	for i := int(p) + 1; i < priorities; i++ {
		if q.ranks[i].n > 0 {
			q.turns[i] = min(q.turns[i]+lowFloor, 1)
		} else {
			q.turns[i] = 0
		}
	}
}

// next finds the rank's request whose turn it is and serves it.
func (r *rank[T]) next(newest bool, full *[]any, serve func(*Waiting[T]) bool) *Waiting[T] {
	r.credit(newest, *full)
	for range len(r.tenants) {
		s := r.tenants[r.at]
		for {
			w := s.head(newest, *full)
			if w == nil || w.Cost > s.deficit {
				break
			}
			if serve(w) {
				s.deficit -= w.Cost
				return w
			}
			*full = append(*full, w.Class)
		}
		r.at = (r.at + 1) % len(r.tenants)
	}
	if r.anyLeft(newest, *full) { // those with a deficit had no room, others may
		return r.next(newest, full, serve)
	}
	return nil
}

func (r *rank[T]) anyLeft(newest bool, full []any) bool {
	for _, s := range r.tenants {
		if s.head(newest, full) != nil {
			return true
		}
	}
	return false
}

// credit adds whole rounds of quanta until some tenant can afford its head.
func (r *rank[T]) credit(newest bool, full []any) {
	rounds := -1.0
	for _, s := range r.tenants {
		if w := s.head(newest, full); w != nil {
			if need := max(0, w.Cost-s.deficit) / quantum; rounds < 0 || need < rounds {
				rounds = need
			}
		}
	}
	if rounds <= 0 {
		return
	}
	whole := float64(int64(rounds))
	if whole < rounds {
		whole++
	}
	for _, s := range r.tenants {
		if s.head(newest, full) != nil { // who waits for room of a class does not save up
			s.deficit += whole * quantum
		}
	}
}

// head is the tenant's request to serve next, of the classes that may have
// room: the oldest, or with newest the one that came last.
func (s *share[T]) head(newest bool, full []any) (best *Waiting[T]) {
	for _, f := range s.flows {
		if contains(full, f.class) {
			continue
		}
		w := f.first
		if newest {
			w = f.last
		}
		if best == nil || w.Since.Before(best.Since) != newest {
			best = w
		}
	}
	return best
}

func contains(list []any, v any) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}
