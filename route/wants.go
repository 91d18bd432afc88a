package route

import (
	"sync"
	"time"
)

// MaxClasses bounds the classes that get a slot table of their own; requests
// of a class beyond it pick by rendezvous.
const MaxClasses = 256

// wantIdle is how long a class is kept without a request.
const wantIdle = 10 * time.Minute

// Wants collects the classes that requests asked for and that no table has
// yet. Only the miss path and the control cycle touch it.
type Wants struct {
	Signal chan struct{} // holds one signal after a new class

	mu   sync.Mutex // guards seen
	seen map[ClassKey]time.Time
}

// NewWants returns an empty collection.
func NewWants() *Wants {
	return &Wants{Signal: make(chan struct{}, 1), seen: make(map[ClassKey]time.Time)}
}

// Add notes a class without a table.
func (w *Wants) Add(k ClassKey, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[k]; !ok {
		if len(w.seen) >= MaxClasses {
			return
		}
		select {
		case w.Signal <- struct{}{}:
		default:
		}
	}
	w.seen[k] = now
}

// Keys lists what is wanted, forgetting classes without a request for long.
// used tells when a class's pool was last picked from.
func (w *Wants) Keys(now time.Time, used func(ClassKey) time.Time) []ClassKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]ClassKey, 0, len(w.seen))
	for k, t := range w.seen {
		if u := used(k); u.After(t) {
			t = u
		}
		if now.Sub(t) > wantIdle {
			delete(w.seen, k)
			continue
		}
		keys = append(keys, k)
	}
	return keys
}
