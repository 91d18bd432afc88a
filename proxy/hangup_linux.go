package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups watches client sockets for the peer's FIN or reset with an epoll of
// its own: EPOLLRDHUP comes at once whatever is unread, and never for data
// alone. One goroutine serves all connections; a connection costs one system
// call when it is accepted, and none per request.
type hangups struct {
	next  atomic.Uint64
	conns sync.Map // id -> *clientConn

	// A number that is closed is soon another file's: nothing is done to either
	// of them once they are.
	mu          sync.Mutex // guards closed, and epoll and wake against it
	closed      bool
	epoll, wake int
}

func newHangups() (*hangups, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch for clients that leave: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("watch for clients that leave: %w", err)
	}
	return &hangups{epoll: epoll, wake: wake}, nil
}

// add begins to watch. The kernel forgets a socket when it is closed.
func (h *hangups) add(c *clientConn) {
	raw, ok := c.Conn.(syscall.Conn)
	if !ok {
		return
	}
	sc, err := raw.SyscallConn()
	if err != nil {
		return
	}
	c.id = h.next.Add(1)
	h.conns.Store(c.id, c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	sc.Control(func(fd uintptr) {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(c.id), Pad: int32(c.id >> 32)}
		c.watched = unix.EpollCtl(h.epoll, unix.EPOLL_CTL_ADD, int(fd), &ev) == nil
	})
}

func (h *hangups) remove(c *clientConn) { h.conns.Delete(c.id) }

// run delivers hang-ups until ctx ends, then closes the epoll.
func (h *hangups) run(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(h.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // another event was first
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.closed = true
		unix.Close(h.epoll)
		unix.Close(h.wake)
	}()
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(h.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("watch for clients that leave: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, ev := range events[:max(n, 0)] {
			id := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
			if c, ok := h.conns.Load(id); ok {
				c.(*clientConn).hangUp()
			}
		}
	}
}
