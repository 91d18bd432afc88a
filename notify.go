package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/balancer"
)

// serviceManager is systemd, where it asked to be told how the process is:
// sd_notify(3), with the watchdog of WatchdogSec=. nil is nobody.
type serviceManager struct {
	conn *net.UnixConn
	wait time.Duration // at most between two signs of life; 0: none are wanted
}

// newServiceManager connects to who started the process, nil where that is
// nobody who listens.
func newServiceManager(env func(string) string) (*serviceManager, error) {
	socket := env("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: socket}) // "@..." is abstract there too
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	m := &serviceManager{conn: conn}
	if pid := env("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			m.wait = time.Duration(usec) * time.Microsecond
		}
	}
	return m, nil
}

// tell sends assignments. That nobody reads them is no failure of ours.
func (m *serviceManager) tell(state ...string) {
	if m != nil {
		_, _ = m.conn.Write([]byte(strings.Join(state, "\n")))
	}
}

// reloading tells that a reload begins; READY=1 ends it.
func (m *serviceManager) reloading() {
	if m != nil {
		m.tell("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(monotonicMicros(), 10))
	}
}

// watch sends a sign of life twice as often as is wanted, while alive says so.
// Without one in time systemd restarts the process.
func (m *serviceManager) watch(ctx context.Context, alive func(within time.Duration) bool) error {
	if m == nil || m.wait == 0 {
		return nil
	}
	tick := time.NewTicker(m.wait / 2)
	defer tick.Stop()
	for {
		if alive(m.wait / 4) {
			m.tell("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// cyclesLate is how many control cycles may be missing before the loop counts
// as stuck.
const cyclesLate = 30

// alive reports whether the control cycle turns and a listener answers.
func (g *gateway) alive(within time.Duration) bool {
	if time.Since(g.loop.Confirmed()) > cyclesLate*max(g.loop.Period(), balancer.DefaultPeriod) {
		return false
	}
	client := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + g.adminAddress() + "/livez")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
