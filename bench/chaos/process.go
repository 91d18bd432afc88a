package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"penstock/bench/child"
)

// gateway is the one under test, with the addresses that it told.
type gateway struct {
	*child.Process
	address, admin string
}

const (
	readyLimit = 20 * time.Second
	stopGrace  = 200 * time.Millisecond // its drain is not what is looked at
)

// start runs the gateway and waits until it is ready.
func start(ctx context.Context, log, command, file string) (*gateway, error) {
	p, err := child.Start("", log, nil, command, "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	g := &gateway{Process: p}
	if err := p.Await(ctx, readyLimit, "ready", g.ready); err != nil {
		p.Stop(stopGrace)
		return nil, fmt.Errorf("the gateway %w", err)
	}
	return g, nil
}

// ready looks for the log line that says so.
func (g *gateway) ready() bool {
	file, err := os.Open(g.Log())
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ Msg, Address, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			g.address, g.admin = line.Address, line.Admin
			return true
		}
	}
	return false
}
