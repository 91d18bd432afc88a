package proxy

import (
	"errors"
	"os"
	"sync"
	"time"
)

// deadline is one of a connection's two. net/http moves them seven times a
// request, and hardly any is ever reached, so that moving one is noted here and
// no more: the socket's own, with its timer, follows where it would be too late
// for an operation. One that was too early is set again when it has passed. The
// zero value is none.
type deadline struct {
	mu     sync.Mutex // guards what is below
	wanted time.Time  // zero: none
	set    time.Time  // that of the socket, passed or not
	under  int        // operations under way
}

// move is SetReadDeadline or SetWriteDeadline; set sets that of the socket.
func (d *deadline) move(to time.Time, set func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = to
	if d.under == 0 {
		return nil
	}
	return d.followLocked(set)
}

// begin is called before each operation, end after it.
func (d *deadline) begin(set func(time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under++
	return d.followLocked(set)
}

func (d *deadline) end() {
	d.mu.Lock()
	d.under--
	d.mu.Unlock()
}

func (d *deadline) followLocked(set func(time.Time) error) error {
	if d.wanted.IsZero() || !d.set.IsZero() && !d.wanted.Before(d.set) {
		return nil
	}
	d.set = d.wanted
	return set(d.wanted)
}

// tooEarly reports whether err is the socket's deadline before the wanted one,
// which then follows: the operation under way is to go on.
func (d *deadline) tooEarly(err error, set func(time.Time) error) bool {
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted.IsZero() && !time.Now().Before(d.wanted) {
		return false
	}
	d.set = d.wanted
	return set(d.wanted) == nil
}
