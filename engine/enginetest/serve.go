package enginetest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// shutdownGrace is what open answers have to end in when a Sim is stopped.
const shutdownGrace = 500 * time.Millisecond

// Serve runs the engine on a listener, which it closes, until ctx ends. It
// runs once.
func (s *Sim) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		IdleTimeout:       s.cfg.IdleTimeout,
		ReadHeaderTimeout: 10 * time.Second,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.mu.Lock()
				s.rec.connections++
				s.mu.Unlock()
			}
		},
	}
	runCtx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(runCtx) })
	err := s.listen(ctx, srv, ln)
	stop()
	running.Wait() // its end ends the open answers
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	return err
}

// listen accepts connections while they are not to be refused.
func (s *Sim) listen(ctx context.Context, srv *http.Server, ln net.Listener) error {
	addr := ln.Addr()
	for {
		if refusing, _ := s.refusing(); !refusing {
			srv.SetKeepAlivesEnabled(true)
			if err := s.accept(ctx, srv, ln); err != nil || ctx.Err() != nil {
				return err
			}
		}
		_ = ln.Close()
		srv.SetKeepAlivesEnabled(false) // closes the idle ones: a dead process has none
		if !s.awaitAccepting(ctx) {
			return nil
		}
		var err error
		if ln, err = net.Listen(addr.Network(), addr.String()); err != nil {
			return fmt.Errorf("reopen the listener: %w", err)
		}
	}
}

// accept serves ln until ctx ends or connections are to be refused.
func (s *Sim) accept(ctx context.Context, srv *http.Server, ln net.Listener) error {
	ended := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { ended <- srv.Serve(ln) })
	defer serving.Wait()
	defer ln.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-s.changed:
			if refusing, _ := s.refusing(); refusing {
				return nil
			}
		}
	}
}

// awaitAccepting waits until connections are not to be refused any more. It
// returns false if ctx ends first.
func (s *Sim) awaitAccepting(ctx context.Context) bool {
	for {
		refusing, duration := s.refusing()
		if !refusing {
			return true
		}
		var expired <-chan time.Time
		if duration > 0 {
			expired = time.After(duration)
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.changed:
		case <-expired:
			s.clear(Refuse)
		}
	}
}

// refusing reports whether the fault is set, and for how long if not until cleared.
func (s *Sim) refusing() (bool, time.Duration) {
	for _, f := range s.Faults() {
		if f.Kind == Refuse {
			return true, f.For
		}
	}
	return false, 0
}

// clear removes the faults of one kind.
func (s *Sim) clear(kind FaultKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.faults[:0]
	for _, f := range s.faults {
		if f.Kind != kind {
			kept = append(kept, f)
		}
	}
	s.faults = kept
}
