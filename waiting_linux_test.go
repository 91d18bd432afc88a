package main

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"penstock/engine/enginetest"
)

// A stream that waits holds one goroutine of the gateway's: net/http has no
// other that waits for the client to leave, for which there is the watcher.
func TestStreamsWaitWithoutAReader(t *testing.T) {
	const n = 20
	release := make(chan struct{})
	e1 := startPlayed(t, func(x *enginetest.Exchange) {
		x.StartStream()
		x.Chunk(token("first"))
		select {
		case <-release:
			x.Finish()
		case <-x.Gone():
		}
	})
	g := startCase(t, "", e1)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			w := dialWire(t, g)
			w.send(rawPost("/v1/chat/completions", chatBody("m", fmt.Sprint("held-", i), true), "Connection: close"))
			if resp := w.head(); resp.StatusCode != http.StatusOK {
				t.Error(resp.Status)
			}
			<-release
			if rest, err := w.rest(); err != nil || !strings.HasSuffix(rest, "0\r\n\r\n") {
				t.Errorf("%v, %q", err, rest)
			}
		})
	}
	g.await("all streams at the engine", func() bool { return g.metric(`penstock_inflight{engine="e1"}`) == n })
	var serving, reading int
	var stacks bytes.Buffer
	g.await("all streams to wait", func() bool {
		stacks.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			t.Fatal(err)
		}
		serving, reading = 0, 0
		for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
			switch {
			case strings.Contains(stack, "backgroundRead") && strings.Contains(stack, "clientConn"):
				reading++
			case strings.Contains(stack, "relayStream") && strings.Contains(stack, "waitRead"):
				serving++
			}
		}
		return serving == n
	})
	if reading > 0 {
		t.Errorf("%d of %d streams have a goroutine that reads from their client", reading, n)
	}
	close(release)
	all.Wait()
}
