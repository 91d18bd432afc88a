// Package child runs the programs that benchmarks measure: each a process of
// its own with its output in a file, ended by its id with all that it started.
package child

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Process is a program that runs, or has ended.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // how it ended, once done is closed
}

// Start runs a program in dir ("" = here) with its output in the file log; env
// is added to what this process has.
func Start(dir, log string, env []string, command string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(command, args...), log: log, done: make(chan struct{})}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, dir
	p.cmd.Env = append(os.Environ(), env...)
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ID is the process's id, which is its group's too.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Log is the file that has its output.
func (p *Process) Log() string { return p.log }

// Stop asks the process and those it started to end, and ends by force what is
// left after a grace. Safe to repeat.
func (p *Process) Stop(grace time.Duration) {
	signalGroup(p.cmd, false)
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	p.Kill() // also what a dead parent left behind
}

// Kill ends them at once, as a crash does.
func (p *Process) Kill() {
	signalGroup(p.cmd, true)
	<-p.done
}

// lastWords is how much of a dead program's output is told.
const lastWords = 2000

// Died is how the process ended by itself, with its last words; nil while it runs.
func (p *Process) Died() error {
	select {
	case <-p.done:
		return fmt.Errorf("ended: %v\n%s", p.err, p.words())
	default:
		return nil
	}
}

func (p *Process) words() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-lastWords):])
}

// Await polls until ready, and fails where the process ends before or takes
// longer than the limit; what says what was waited for.
func (p *Process) Await(ctx context.Context, limit time.Duration, what string, ready func() bool) error {
	const every = 5 * time.Millisecond
	for end := time.Now().Add(limit); !ready(); {
		if dead := p.Died(); dead != nil {
			return dead
		}
		if time.Now().After(end) {
			return fmt.Errorf("is not %s after %s: %s", what, limit, p.words())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
	return nil
}

// Penstock is a gateway's program: the given one, or else the one of the tree
// that this command is part of, built into dir.
func Penstock(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w; run this within the module, or name a binary with --penstock", err)
	}
	path := filepath.Join(dir, "penstock")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	build.Dir = strings.TrimSpace(string(root))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}
