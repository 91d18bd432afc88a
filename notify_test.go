package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// notices is the socket on which systemd listens, and what came.
type notices struct {
	path string
	mu   sync.Mutex
	all  []string
}

func listenNotices(t *testing.T) *notices {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	n := &notices{path: filepath.Join(dir, "s")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: n.path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			k, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.all = append(n.all, string(buf[:k]))
			n.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return n
}

// with counts the notices that have the assignment.
func (n *notices) with(assignment string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range n.all {
		if slices.Contains(strings.Split(text, "\n"), assignment) {
			count++
		}
	}
	return count
}

// The process tells systemd when it serves, reloads, lives and stops, each
// when it is so.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	n := listenNotices(t)
	e1 := startPlayed(t, good)
	path := writeFile(t, "penstock.toml", anyPorts+engineTOML("e1", e1.URL()))
	cmd := exec.Command(os.Args[0])
	logs := &logBook{}
	cmd.Stderr = logs
	cmd.Env = append(os.Environ(), childRole+"=penstock", childEngine+"="+path, "NOTIFY_SOCKET="+n.path, "WATCHDOG_USEC=400000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	awaitCond(t, "READY=1", func() bool { return n.with("READY=1") == 1 })
	awaitCond(t, "the ready line", func() bool { return strings.Contains(logs.String(), `"msg":"ready"`) })
	awaitCond(t, "three signs of life", func() bool { return n.with("WATCHDOG=1") >= 3 })
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	awaitCond(t, "the end of the reload", func() bool { return n.with("RELOADING=1") == 1 && n.with("READY=1") == 2 })
	if n.with("STOPPING=1") != 0 {
		t.Error("it is said to stop")
	}
	for range 2 { // the second makes it short
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		awaitCond(t, "STOPPING=1", func() bool { return n.with("STOPPING=1") == 1 })
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, logs)
		}
	case <-time.After(patience):
		t.Errorf("did not end\n%s", logs)
	}
}

// A process that is not alive gives no sign of life.
func TestWatchdogIsHonest(t *testing.T) {
	n := listenNotices(t)
	env := map[string]string{"NOTIFY_SOCKET": n.path, "WATCHDOG_USEC": "10000000"}
	m, err := newServiceManager(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if m.wait != 10*time.Second {
		t.Errorf("waits %v", m.wait)
	}
	signs := 0
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var dead atomic.Bool
		done := make(chan bool)
		go func() {
			defer close(done)
			_ = m.watch(ctx, func(time.Duration) bool {
				if !dead.Load() {
					signs++
				}
				return !dead.Load()
			})
		}()
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if signs != 5 { // at 0, 5, 10, 15 and 20 s
			t.Errorf("%d signs of life", signs)
		}
		dead.Store(true)
		time.Sleep(30 * time.Second)
		cancel()
		<-done
	})
	awaitCond(t, "the signs", func() bool { return n.with("WATCHDOG=1") == signs })
	if n.with("WATCHDOG=1") != 5 {
		t.Errorf("%d signs of life", n.with("WATCHDOG=1"))
	}
	for name, env := range map[string]map[string]string{
		"no socket": {"WATCHDOG_USEC": "1000"}, "another process": {"NOTIFY_SOCKET": n.path, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
		"no number": {"NOTIFY_SOCKET": n.path, "WATCHDOG_USEC": "soon"},
	} {
		if m, err := newServiceManager(func(name string) string { return env[name] }); err != nil || m != nil && m.wait != 0 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if _, err := newServiceManager(func(string) string { return n.path + "-none" }); err == nil {
		t.Error("a socket that is not there is no fault")
	}
}
