package enginetest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Distance lies between a caller and an engine: a relay through which every
// byte takes half a round trip, in order, each way. To connect takes nothing:
// that is the system's work, so a caller who wants it must wait by itself.
type Distance struct {
	to   string
	half time.Duration
	ln   *net.TCPListener
}

// NewDistance opens a listener for connections to an address.
func NewDistance(to string, rtt time.Duration) (*Distance, error) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &Distance{to: to, half: rtt / 2, ln: ln}, nil
}

// Addr is where callers connect to.
func (d *Distance) Addr() string { return d.ln.Addr().String() }

// Close is for a Distance that will not run.
func (d *Distance) Close() error { return d.ln.Close() }

// Run relays until ctx ends; it closes the listener and what goes through it.
func (d *Distance) Run(ctx context.Context) error {
	var relays sync.WaitGroup
	defer relays.Wait()
	defer context.AfterFunc(ctx, func() { d.ln.Close() })()
	for {
		near, err := d.ln.AcceptTCP()
		if err != nil {
			d.ln.Close()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		relays.Go(func() { d.relay(ctx, near) })
	}
}

// relay carries one connection until both directions have ended, or one broke.
func (d *Distance) relay(ctx context.Context, near *net.TCPConn) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", d.to)
	if err != nil {
		_ = near.SetLinger(0) // reset: nobody is there
		near.Close()
		return
	}
	far := conn.(*net.TCPConn)
	end := func() { near.Close(); far.Close() }
	defer end()
	defer context.AfterFunc(ctx, end)()
	var directions sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{near, far}, {far, near}} {
		directions.Go(func() {
			if !d.carry(way[0], way[1]) {
				end()
			}
		})
	}
	directions.Wait()
}

// parcel is bytes on their way; none: the sender has ended.
type parcel struct {
	due   time.Time
	bytes []byte
}

// parcelsOnTheWay bounds what one direction holds; beyond it the sender waits.
const parcelsOnTheWay = 1024

// carry takes bytes from one connection to the other. True: the sender has
// ended in order, and the receiver was told.
func (d *Distance) carry(from, to *net.TCPConn) (whole bool) {
	way := make(chan parcel, parcelsOnTheWay)
	broken := make(chan struct{}) // the receiver takes no more
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(way)
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			p := parcel{due: time.Now().Add(d.half), bytes: append([]byte(nil), buf[:n]...)}
			if n == 0 && !errors.Is(err, io.EOF) {
				return
			}
			select {
			case way <- p:
			case <-broken:
				return
			}
			if n == 0 {
				return
			}
		}
	})
	defer reading.Wait()
	for p := range way {
		time.Sleep(time.Until(p.due))
		if len(p.bytes) == 0 {
			return to.CloseWrite() == nil
		}
		if _, err := to.Write(p.bytes); err != nil {
			close(broken)
			from.Close() // ends the read
			return false
		}
	}
	return false
}
