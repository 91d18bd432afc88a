package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Set is an immutable list of engines, sorted by name.
type Set struct {
	Engines []*Engine
	Seq     uint64 // grows with every set of a fleet
}

// ByName finds an engine, nil if there is none of that name.
func (s *Set) ByName(name string) *Engine {
	i, ok := slices.BinarySearchFunc(s.Engines, name, func(e *Engine, n string) int { return strings.Compare(e.Name, n) })
	if !ok {
		return nil
	}
	return s.Engines[i]
}

// Fleet is the current Set of engines and the news about them. The set is
// swapped whole; Live parts are carried over by (name, url).
type Fleet struct {
	set    atomic.Pointer[Set]
	awaits atomic.Bool

	mu   sync.Mutex      // guards what is below
	ids  map[uint16]bool // in use, by engines of the set and by those gone
	next int             // where the search for a free id starts, so that ids are reused late
	gone map[place]departed
	subs []chan struct{}
}

// place is the identity of a Live.
type place struct{ name, url string }

func (c Config) place() place { return place{c.Name, c.URL} }

// departed is the Live of an engine that left the set. Attempts still run on
// it, and it may come back: its counter, its order and what it told of itself
// must then be the same.
type departed struct {
	live *Live
	at   time.Time
}

const (
	// goneFor is how long an engine without attempts is remembered, twice the
	// time that a conversation's cache is worth coming back to.
	goneFor = 10 * time.Minute
	maxGone = 4096
	// healthGoodFor is how long the health of an engine that nobody probes is
	// as good as one between two probes.
	healthGoodFor = 6 * time.Second
)

// NewFleet returns a fleet of no engines.
func NewFleet() *Fleet {
	f := &Fleet{ids: make(map[uint16]bool), gone: make(map[place]departed)}
	f.set.Store(&Set{})
	return f
}

// Set is the current set, never nil.
func (f *Fleet) Set() *Set { return f.set.Load() }

// Apply installs the engines of a validated configuration, or nothing where it
// fails. Engines that keep name and url keep their Live, also those that were
// away for a while; one that keeps its name alone keeps an operator's order.
func (f *Fleet) Apply(configs []Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, old := time.Now(), f.set.Load()
	f.forgetLocked(now)
	if n := f.newcomersLocked(configs); len(f.ids)+n > MaxEngines {
		return fmt.Errorf("%d engines more than the %d that are known: want at most %d in all", n, len(f.ids), MaxEngines)
	}
	next := &Set{Engines: make([]*Engine, 0, len(configs)), Seq: old.Seq + 1}
	stays := make(map[place]bool, len(configs))
	for _, c := range configs {
		e := old.ByName(c.Name)
		stays[c.place()] = true
		switch back, was := f.gone[c.place()]; {
		case e != nil && e.URL == c.URL:
			if !reflect.DeepEqual(e.Config, c) {
				e = New(c, e.Live)
			}
		case was:
			back.live.rejoin(now, now.Sub(back.at))
			delete(f.gone, c.place())
			e = New(c, back.live)
		default:
			order := Serve
			if e != nil {
				order, _ = e.Order()
			}
			e = New(c, newLive(f.freeIDLocked()))
			e.SetOrder(order, now)
		}
		next.Engines = append(next.Engines, e)
	}
	for _, e := range old.Engines {
		if !stays[e.place()] {
			f.gone[e.place()] = departed{e.Live, now}
		}
	}
	slices.SortFunc(next.Engines, func(a, b *Engine) int { return strings.Compare(a.Name, b.Name) })
	f.set.Store(next)
	f.notifyLocked()
	return nil
}

// Ordered is an order with the engine it is for.
type Ordered struct {
	Name, URL string
	Order     Order
	Since     time.Time
}

// Orders lists the orders that hold, also those for engines that may come back.
func (f *Fleet) Orders() (all []Ordered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add := func(p place, l *Live) {
		if o, since := l.Order(); o != Serve {
			all = append(all, Ordered{p.name, p.url, o, since})
		}
	}
	for _, e := range f.set.Load().Engines {
		add(e.place(), e.Live)
	}
	for p, d := range f.gone {
		add(p, d.live)
	}
	slices.SortFunc(all, func(a, b Ordered) int { return strings.Compare(a.Name+" "+a.URL, b.Name+" "+b.URL) })
	return all
}

// RestoreOrders gives orders for engines that are still to come, within the
// time that one which left is remembered.
func (f *Fleet) RestoreOrders(orders []Ordered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, o := range orders[:min(len(orders), maxGone)] {
		l := newLive(f.freeIDLocked())
		l.SetOrder(o.Order, o.Since)
		f.gone[place{o.Name, o.URL}] = departed{l, now}
	}
}

// Await says whether engines are still expected of which nothing is known yet.
func (f *Fleet) Await(expected bool) {
	if f.awaits.Swap(expected) != expected {
		f.Touch()
	}
}

// Awaits is what Await said last.
func (f *Fleet) Awaits() bool { return f.awaits.Load() }

// newcomersLocked counts the engines that need a number.
func (f *Fleet) newcomersLocked(configs []Config) (n int) {
	old := f.set.Load()
	for _, c := range configs {
		e := old.ByName(c.Name)
		if _, was := f.gone[c.place()]; !was && (e == nil || e.URL != c.URL) {
			n++
		}
	}
	return n
}

// forgetLocked frees the ids of engines that left long ago, or longest ago
// where too many did. None goes that an attempt still runs on.
func (f *Fleet) forgetLocked(now time.Time) {
	var idle []place
	for p, d := range f.gone {
		switch {
		case d.live.InFlight() > 0:
		case now.Sub(d.at) > goneFor:
			f.dropLocked(p)
		default:
			idle = append(idle, p)
		}
	}
	if over := len(f.gone) - maxGone; over > 0 {
		slices.SortFunc(idle, func(a, b place) int { return f.gone[a].at.Compare(f.gone[b].at) })
		for _, p := range idle[:min(over, len(idle))] {
			f.dropLocked(p)
		}
	}
}

func (f *Fleet) dropLocked(p place) {
	delete(f.ids, f.gone[p].live.ID)
	delete(f.gone, p)
}

// MaxEngines bounds a fleet: engines are numbered in 16 bits, with the last
// number meaning none.
const MaxEngines = 1<<16 - 1

// freeIDLocked numbers an engine. Apply has made sure that there is a number.
func (f *Fleet) freeIDLocked() uint16 {
	for {
		id := uint16(f.next % MaxEngines)
		f.next++
		if !f.ids[id] {
			f.ids[id] = true
			return id
		}
	}
}

// Subscribe returns a channel that holds one signal after any change of the
// set, of a state or of a model list. Signals coalesce.
func (f *Fleet) Subscribe() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{}, 1)
	f.subs = append(f.subs, c)
	return c
}

// Touch tells the subscribers that something about an engine changed.
func (f *Fleet) Touch() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notifyLocked()
}

func (f *Fleet) notifyLocked() {
	for _, c := range f.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
