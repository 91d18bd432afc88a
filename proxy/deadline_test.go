package proxy

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// moves is a connection in a bubble that counts how often the deadlines below are set.
type moves struct {
	net.Conn
	sets int
}

func (m *moves) SetReadDeadline(t time.Time) error  { m.sets++; return m.Conn.SetReadDeadline(t) }
func (m *moves) SetWriteDeadline(t time.Time) error { m.sets++; return m.Conn.SetWriteDeadline(t) }

// Reads and writes end at the latest deadline that was asked for and at no
// other, whenever it was moved, although the socket's is seldom set.
func TestDeadlines(t *testing.T) {
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	reads := func(c *clientConn) error { _, err := c.Read(make([]byte, 8)); return err }
	writes := func(c *clientConn) error { _, err := c.Write([]byte("to nobody who reads")); return err }
	for _, way := range []struct {
		name string
		move func(c *clientConn, to time.Time) error
		do   func(c *clientConn) error
	}{{"read", (*clientConn).SetReadDeadline, reads}, {"write", (*clientConn).SetWriteDeadline, writes}} {
		for _, c := range []struct {
			name   string
			before func(move func(time.Time))
			during func(move func(time.Time)) // as long as the operation waits
			ends   time.Duration
			sets   int // at most
		}{
			{"set before", func(move func(time.Time)) { move(in(time.Second)) }, nil, time.Second, 1},
			{"in the past", func(move func(time.Time)) { move(time.Unix(1, 0)) }, nil, 0, 1},
			{"set and taken back many times", func(move func(time.Time)) {
				for range 100 {
					move(in(time.Second))
					move(time.Time{})
				}
				move(in(time.Second))
			}, nil, time.Second, 1},
			{"later while it waits", func(move func(time.Time)) { move(in(time.Second)) },
				func(move func(time.Time)) { time.Sleep(500 * time.Millisecond); move(in(time.Second)) }, 1500 * time.Millisecond, 2},
			{"sooner while it waits", func(move func(time.Time)) { move(in(time.Hour)) },
				func(move func(time.Time)) { time.Sleep(500 * time.Millisecond); move(in(time.Second)) }, 1500 * time.Millisecond, 2},
			{"at once while it waits", func(move func(time.Time)) { move(in(time.Hour)) },
				func(move func(time.Time)) { time.Sleep(time.Second); move(time.Unix(1, 0)) }, time.Second, 2},
			{"taken back while it waits, and then set", func(move func(time.Time)) { move(in(time.Second)) },
				func(move func(time.Time)) { move(time.Time{}); time.Sleep(time.Minute); move(in(time.Second)) }, 61 * time.Second, 3},
		} {
			t.Run(way.name+" "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := net.Pipe()
					defer far.Close()
					below := &moves{Conn: near}
					conn := &clientConn{Conn: below, watcher: &hangups{}}
					conn.flood.exempt()
					move := func(to time.Time) {
						if err := way.move(conn, to); err != nil {
							t.Error(err)
						}
					}
					began := time.Now()
					if c.before != nil {
						c.before(move)
					}
					if c.during != nil {
						go c.during(move)
					}
					err := way.do(conn)
					if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.ends {
						t.Errorf("%v after %v, want it ended after %v", err, took, c.ends)
					}
					if below.sets > c.sets {
						t.Errorf("the socket's deadline was set %d times, want %d", below.sets, c.sets)
					}
					// One that has passed ends nothing after it was taken back.
					move(time.Time{})
					go func() { time.Sleep(time.Hour); near.Close() }()
					if err := way.do(conn); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("a deadline that was taken back ends what comes after it")
					}
				})
			})
		}
	}
}
