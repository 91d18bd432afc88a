package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"penstock/bench/child"
)

// stopGrace is what a proxy gets to end by itself.
const stopGrace = 200 * time.Millisecond

// awaitListener waits until the address accepts connections.
func awaitListener(ctx context.Context, p *child.Process, address string, limit time.Duration) error {
	return p.Await(ctx, limit, "listening on "+address, func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		return err == nil && conn.Close() == nil
	})
}

// Ports for proxies and engines lie below those that systems give to clients
// and to listeners that ask for any: an engine's port stays its own while it
// is down, whatever runs beside it.
const (
	firstPort = 15_000
	portCount = 15_000
)

var portTurn atomic.Uint32

// freeAddress is a loopback address on which nobody listens. It is given out once.
func freeAddress() (string, error) {
	start := uint32(os.Getpid()) * 97 // runs at the same time begin elsewhere
	for range portCount {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+(start+portTurn.Add(1))%portCount)
		ln, err := net.Listen("tcp", address)
		if err != nil {
			continue // somebody's
		}
		return address, ln.Close()
	}
	return "", fmt.Errorf("no free port from %d to %d", firstPort, firstPort+portCount-1)
}
