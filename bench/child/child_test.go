//go:build unix

package child

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a program started ends with it, also where it does not end by itself.
func TestStopEndsTheWholeGroup(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "id")
	p, err := Start(dir, filepath.Join(dir, "log"), []string{"FILE=" + file}, "sh", "-c", `trap "" TERM; sleep 1000 & echo $! > "$FILE"; wait`)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	grandchild := 0
	if err := p.Await(t.Context(), 10*time.Second, "telling its child's id", func() bool {
		text, _ := os.ReadFile(file)
		grandchild, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return grandchild != 0
	}); err != nil {
		t.Fatal(err)
	}
	p.Stop(10 * time.Millisecond)
	p.Stop(10 * time.Millisecond)
	if p.Died() == nil {
		t.Error("it runs on")
	}
	for end := time.Now().Add(10 * time.Second); syscall.Kill(grandchild, 0) == nil && !zombie(grandchild); {
		if time.Now().After(end) {
			t.Fatalf("its child %d runs on", grandchild)
		}
		time.Sleep(time.Millisecond)
	}
}

// zombie reports a process that has ended and that nobody has waited for.
func zombie(id int) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z")
}

// A program that is not to become ready is told with its last words.
func TestAwaitTellsWhy(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(dir, filepath.Join(dir, "log"), nil, "sh", "-c", "echo no engine here >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Await(t.Context(), 10*time.Second, "ready", func() bool { return false }); err == nil ||
		!strings.Contains(err.Error(), "ended: exit status 3") || !strings.Contains(err.Error(), "no engine here") {
		t.Errorf("%v", err)
	}
	slow, err := Start(dir, filepath.Join(dir, "slow"), nil, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Kill()
	if err := slow.Await(t.Context(), time.Millisecond, "ready", func() bool { return false }); err == nil || !strings.Contains(err.Error(), "is not ready after 1ms") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slow.Await(ctx, time.Minute, "ready", func() bool { return false }); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// A penstock is ready when it says so, and where it listens is what it says.
func TestServeReadsAddresses(t *testing.T) {
	dir := t.TempDir()
	s, err := Serve(t.Context(), filepath.Join(dir, "log"), "sh", "-c",
		`echo no JSON; echo '{"msg":"starting"}'; echo '{"msg":"ready","address":"127.0.0.1:1","admin":"127.0.0.1:2"}'; sleep 1000`)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	if s.Address != "127.0.0.1:1" || s.Admin != "127.0.0.1:2" {
		t.Errorf("%q %q", s.Address, s.Admin)
	}
	if _, err := Serve(t.Context(), filepath.Join(dir, "log2"), "sh", "-c", "exit 3"); err == nil || !strings.Contains(err.Error(), "sh ended: exit status 3") {
		t.Errorf("%v", err)
	}
}
