package enginetest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	l, err := NewLine(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	says := func(c net.Conn, within time.Duration) error {
		_ = c.SetDeadline(time.Now().Add(within))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	defer c.Close()
	if err := says(c, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	l.Freeze(true)
	if err := says(c, 100*time.Millisecond); err == nil {
		t.Error("a frozen line carries")
	}
	l.Freeze(false)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("what a frozen line kept back is lost: %v", err)
	}
	l.Slow(50 * time.Millisecond)
	begin := time.Now()
	if err := says(c, 10*time.Second); err != nil || time.Since(begin) < 100*time.Millisecond {
		t.Errorf("a slow line took %s: %v", time.Since(begin), err)
	}
	l.Cut(true)
	if err := says(c, 10*time.Second); err == nil {
		t.Error("a cut line carries")
	}
	refused := dial()
	defer refused.Close()
	if err := says(refused, 10*time.Second); err == nil {
		t.Error("a cut line takes connections")
	}
	l.Cut(false)
	l.Slow(0)
	again := dial()
	defer again.Close()
	if err := says(again, 10*time.Second); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}
