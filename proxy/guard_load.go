package proxy

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Requests are compared with those of about the same size and kind: a long
// prompt takes its time on every engine, and an answer in one piece comes when
// it is whole.
const (
	sizeClasses = 6 // of bodies: under 1 KiB, 4, 16, 64, 256 KiB, more
	loadClasses = 2 * sizeClasses
)

func loadClassOf(bodyBytes int64, stream bool) int {
	c := min(max(0, (bits.Len64(uint64(bodyBytes))-9)/2), sizeClasses-1)
	if stream {
		return c
	}
	return sizeClasses + c
}

// loadClass is what an engine does with requests of one class. Times are in
// nanoseconds since epoch. Its parts are read without a lock between them: what
// is decided of them is decided again a moment later.
type loadClass struct {
	waiting atomic.Int32 // attempts without a first content
	since   atomic.Int64 // when waiting was 0 last
	newest  atomic.Int64 // the latest beginning of an attempt that was answered
	ewma    atomic.Int64 // of the time to the first content; 0: none yet
	samples atomic.Int32 // in the window at hand
	longest atomic.Int64 // of that time, in the half minute at hand
	before  atomic.Int64 // and in the one before
	limit   atomic.Int64 // what counts as slow among its peers; 0: not known
}

func (l *loadClass) began(now int64) {
	if l.waiting.Add(1) == 1 {
		l.since.Store(now)
	}
}

func (l *loadClass) gaveUp() { l.waiting.Add(-1) }

// ewmaShift makes one sample weigh an eighth.
const ewmaShift = 3

func (l *loadClass) answered(now int64, took time.Duration) {
	l.waiting.Add(-1)
	l.samples.Add(1)
	if began := now - int64(took); began > l.newest.Load() {
		l.newest.Store(began)
	}
	if int64(took) > l.longest.Load() {
		l.longest.Store(int64(took))
	}
	old := l.ewma.Load()
	if old == 0 {
		old = int64(took)
	}
	l.ewma.Store(max(1, old+(int64(took)-old)>>ewmaShift)) // a sample lost to another one at the same time is no harm
}

// tolerated is the time above which a first content is slow.
func (l *loadClass) tolerated() time.Duration {
	if d := l.limit.Load(); d > 0 {
		return time.Duration(d)
	}
	return 1<<63 - 1
}

// worst is the longest time of the last half minute and more.
func (l *loadClass) worst() time.Duration {
	return time.Duration(max(l.longest.Load(), l.before.Load()))
}

// age begins another half minute.
func (l *loadClass) age() { l.before.Store(l.longest.Swap(0)) }
