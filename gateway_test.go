package main

import (
	"testing"

	"penstock/engine/enginetest"
)

// The whole way once: a stream and a plain answer through the gateway, byte
// for byte the engine's.
func TestAnswersPassThrough(t *testing.T) {
	t.Parallel()
	_, url := startSim(t, enginetest.Config{})
	g := startGateway(t, engineTOML("a1", url), "a1")
	c := client(t)
	for _, stream := range []bool{true, false} {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "hello", stream))
		if !a.looksComplete() {
			t.Fatalf("stream %t: %d %v\n%s", stream, a.status, a.err, a.body)
		}
		if e := a.header.Get("X-Penstock-Engine"); e != "a1" {
			t.Errorf("x-penstock-engine %q", e)
		}
	}
}
