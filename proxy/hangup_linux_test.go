package proxy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The end of a watch writes to its own files alone: their numbers are other
// files' soon after, and what is written there goes into somebody's connection.
func TestAWatchThatEndsTouchesNobodyElse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var strangers sync.WaitGroup
	defer strangers.Wait()
	for range 1500 {
		h, err := newHangups()
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		h.add(&clientConn{Conn: server, watcher: h})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			h.run(ctx)
			close(ended)
		}()
		go client.Close() // an event besides
		cancel()
		<-ended
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		other, err := newHangups() // its numbers may be those of h
		if err != nil {
			t.Fatal(err)
		}
		late := &clientConn{Conn: server, watcher: h}
		if h.add(late); late.watched {
			t.Fatal("a watch that has ended took another connection")
		}
		server.Close()
		strangers.Go(func() {
			time.Sleep(20 * time.Millisecond)
			for _, fd := range pair {
				var p [16]byte
				if n, err := unix.Read(fd, p[:]); n > 0 {
					t.Errorf("a stranger's connection has %x (%v)", p[:n], err)
				}
			}
			unix.Close(pair[0])
			unix.Close(pair[1])
			unix.Close(other.epoll)
			unix.Close(other.wake)
		})
	}
}
