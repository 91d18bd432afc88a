package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Set is an immutable list of engines, sorted by name.
type Set struct {
	Engines []*Engine
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
	set atomic.Pointer[Set]

	mu   sync.Mutex      // guards what is below
	ids  map[uint16]bool // in use
	next int             // where the search for a free id starts, so that ids are reused late
	subs []chan struct{}
}

// NewFleet returns a fleet of no engines.
func NewFleet() *Fleet {
	f := &Fleet{ids: make(map[uint16]bool)}
	f.set.Store(&Set{})
	return f
}

// Set is the current set, never nil.
func (f *Fleet) Set() *Set { return f.set.Load() }

// Apply installs the engines of a validated configuration. Engines that keep
// name and url keep their Live.
func (f *Fleet) Apply(configs []Config) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.set.Load()
	next := &Set{Engines: make([]*Engine, 0, len(configs))}
	kept := make(map[uint16]bool, len(configs))
	var fresh []int
	for i, c := range configs {
		if prev := old.ByName(c.Name); prev != nil && prev.URL == c.URL {
			if !reflect.DeepEqual(prev.Config, c) {
				prev = New(c, prev.Live)
			}
			next.Engines = append(next.Engines, prev)
			kept[prev.ID] = true
			continue
		}
		fresh = append(fresh, i)
	}
	f.ids = kept
	for _, i := range fresh {
		id, err := f.freeID()
		if err != nil {
			return err
		}
		next.Engines = append(next.Engines, New(configs[i], newLive(id)))
	}
	slices.SortFunc(next.Engines, func(a, b *Engine) int { return strings.Compare(a.Name, b.Name) })
	f.set.Store(next)
	f.notifyLocked()
	return nil
}

// MaxEngines bounds a fleet: engines are numbered in 16 bits, with the last
// number meaning none.
const MaxEngines = 1<<16 - 1

func (f *Fleet) freeID() (uint16, error) {
	for range MaxEngines {
		id := uint16(f.next % MaxEngines)
		f.next++
		if !f.ids[id] {
			f.ids[id] = true
			return id, nil
		}
	}
	return 0, fmt.Errorf("more than %d engines", MaxEngines)
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
