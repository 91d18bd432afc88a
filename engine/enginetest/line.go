package enginetest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Line is a relay whose faults change while it runs: it can be cut, which
// closes what goes through it and accepts nothing, frozen, which swallows
// everything and says nothing, or slow. Safe for concurrent use.
type Line struct {
	to string
	ln net.Listener

	mu     sync.Mutex // guards what is below
	cut    bool
	frozen bool
	delay  time.Duration
	conns  map[net.Conn]bool
}

// NewLine opens a listener for connections to an address.
func NewLine(to string) (*Line, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &Line{to: to, ln: ln, conns: make(map[net.Conn]bool)}, nil
}

// Addr is where callers connect to.
func (l *Line) Addr() string { return l.ln.Addr().String() }

// Run relays until ctx ends, then closes everything.
func (l *Line) Run(ctx context.Context) error {
	var relays sync.WaitGroup
	defer relays.Wait()
	defer context.AfterFunc(ctx, func() {
		l.ln.Close()
		l.Cut(true)
	})()
	for {
		near, err := l.ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		relays.Go(func() { l.relay(ctx, near) })
	}
}

// Cut closes all connections and refuses others, or ends that.
func (l *Line) Cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.conns {
		if cut {
			c.Close()
		}
	}
}

// Freeze keeps all bytes back, or lets them go on.
func (l *Line) Freeze(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
}

// Slow lets everything take so much longer, each way.
func (l *Line) Slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// hold keeps a connection for Cut; false where the line is cut.
func (l *Line) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.conns[c] = true
	}
	return !l.cut
}

func (l *Line) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

func (l *Line) relay(ctx context.Context, near net.Conn) {
	defer l.drop(near)
	if !l.hold(near) {
		return
	}
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", l.to)
	if err != nil {
		return
	}
	defer l.drop(far)
	if !l.hold(far) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		ways.Go(func() {
			l.carry(ctx, way[0], way[1])
			near.Close()
			far.Close()
		})
	}
	ways.Wait()
}

// frozenLook is how often a frozen line looks whether it still is.
const frozenLook = 20 * time.Millisecond

func (l *Line) carry(ctx context.Context, from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		for {
			l.mu.Lock()
			frozen, delay := l.frozen, l.delay
			l.mu.Unlock()
			if !frozen {
				if delay > 0 && !waitFor(ctx, delay) {
					return
				}
				break
			}
			if !waitFor(ctx, frozenLook) {
				return
			}
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
