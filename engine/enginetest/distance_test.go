package enginetest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// farFrom runs a relay to an address until the test ends.
func farFrom(t *testing.T, to string, rtt time.Duration) (d *Distance, stop func()) {
	t.Helper()
	d, err := NewDistance(to, rtt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(cancel)
	return d, func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("Run does not return")
		}
	}
}

// echo answers every connection with what it read, and ends when it ended.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func TestDistanceTakesTimeAndChangesNothing(t *testing.T) {
	const rtt = 60 * time.Millisecond
	d, stop := farFrom(t, echo(t), rtt)
	defer stop()
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	begin := time.Now()
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(30000))
			_, _ = conn.Write(rest[:n])
			rest = rest[n:]
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < rtt {
		t.Errorf("the first byte was back after %v", took)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(append(first, rest...), sent) {
		t.Errorf("%d bytes came back, other than those sent, or %v", len(rest)+1, err)
	}
}

func TestDistanceToNobodyIsAReset(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	d, stop := farFrom(t, address, 0)
	defer stop()
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		return // the reset was faster
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || err == io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestDistanceEndsWithWhatGoesThroughIt(t *testing.T) {
	d, stop := farFrom(t, echo(t), time.Millisecond)
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if c, err := net.Dial("tcp", d.Addr()); err == nil {
		c.Close()
		t.Error("the listener goes on")
	}
}
