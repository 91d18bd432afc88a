package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock/bench/child"
)

// process is the gateway or a simulated engine. Both tell their address in a
// log line with "msg":"ready".
type process struct {
	*child.Process
	address string
	admin   string
}

const (
	readyLimit = 20 * time.Second
	stopGrace  = 3 * time.Second
)

// start runs the program and waits until it is ready.
func start(ctx context.Context, log, command string, args ...string) (*process, error) {
	c, err := child.Start("", log, nil, command, args...)
	if err != nil {
		return nil, err
	}
	p := &process{Process: c}
	if err := p.Await(ctx, readyLimit, "ready", p.ready); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s %w", filepath.Base(command), err)
	}
	return p, nil
}

// ready looks for the line.
func (p *process) ready() bool {
	file, err := os.Open(p.Log())
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ Msg, Address, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			p.address, p.admin = line.Address, line.Admin
			return true
		}
	}
	return false
}
