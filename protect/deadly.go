package protect

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"
)

const (
	deadlyEngines = 2           // distinct ones that a request may reset
	deadlyFor     = time.Minute // how long it is refused then, and a suspect remembered
	maxSuspects   = 4096
)

// Fingerprint identifies a request of a tenant by what it says.
type Fingerprint [sha256.Size]byte

// FingerprintOf hashes a tenant's request.
func FingerprintOf(tenant string, body []byte) Fingerprint {
	h := sha256.New()
	h.Write([]byte(tenant))
	h.Write([]byte{0})
	h.Write(body)
	return Fingerprint(h.Sum(nil))
}

// Deadly remembers requests under which engines reset their connections. One
// that did so at two engines is not to reach a third. The zero value remembers
// nothing. Safe for concurrent use.
type Deadly struct {
	count atomic.Int32 // of suspects: the request path reads nothing else while there is none

	mu   sync.Mutex // guards what is below
	seen map[Fingerprint]*suspect
	size map[int]int // suspects by the length of their bodies, so that others need not be hashed
}

type suspect struct {
	engines [deadlyEngines]uint16
	n       int
	length  int
	last    time.Time
}

// Reset notes that an engine reset the connection under a request. again says
// that another engine had done so before: then the request is at fault, not
// this engine, and is blocked.
func (d *Deadly) Reset(tenant string, body []byte, engine uint16, now time.Time) (again bool) {
	f := FingerprintOf(tenant, body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(now)
	s := d.seen[f]
	if s == nil {
		if len(d.seen) >= maxSuspects {
			return false
		}
		if d.seen == nil {
			d.seen, d.size = make(map[Fingerprint]*suspect), make(map[int]int)
		}
		s = &suspect{length: len(body)}
		d.seen[f] = s
		d.size[s.length]++
		d.count.Store(int32(len(d.seen)))
	}
	s.last = now
	for _, e := range s.engines[:s.n] {
		if e == engine {
			return false
		}
	}
	if s.n < deadlyEngines {
		s.engines[s.n] = engine
		s.n++
	}
	return s.n >= deadlyEngines
}

// Blocked reports whether a request has reset two engines within the last
// minute.
func (d *Deadly) Blocked(tenant string, body []byte, now time.Time) bool {
	if d.count.Load() == 0 {
		return false
	}
	d.mu.Lock()
	n := d.size[len(body)]
	d.mu.Unlock()
	if n == 0 {
		return false
	}
	f := FingerprintOf(tenant, body) // outside of the lock: bodies are long
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(now)
	s := d.seen[f]
	return s != nil && s.n >= deadlyEngines
}

func (d *Deadly) forgetLocked(now time.Time) {
	for f, s := range d.seen {
		if now.Sub(s.last) < deadlyFor {
			continue
		}
		delete(d.seen, f)
		if d.size[s.length]--; d.size[s.length] == 0 {
			delete(d.size, s.length)
		}
	}
	d.count.Store(int32(len(d.seen)))
}
