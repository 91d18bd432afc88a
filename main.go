// Penstock stands in front of a fleet of LLM inference engines, chooses the
// engine for every request, and streams the answer back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes, as interface.md and every --help name them.
const (
	exitDone   = 0
	exitFailed = 1 // the input or the run failed
	exitUsage  = 2 // the command was called wrongly
)

// usageError is a wrong call: an unknown command or flag, a missing argument.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// run executes one command line and returns the exit code. The reason of a
// failure is on stderr, and nothing else is there that a script would have to
// skip.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{w: stdout}
	root := newRootCommand(out, stderr)
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("writing the result: %w", out.err)
	}
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "penstock: %v\n", err)
	if _, usage := errors.AsType[usageError](err); usage {
		fmt.Fprintf(stderr, "Try '%s --help'.\n", called.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// checkedWriter remembers that a result could not be written: a full disk must
// not look like success.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}
