package child

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Usage is wrong usage of a benchmark's command: exit code 2.
type Usage struct{ error }

// Wrong says what is wrong with the command line.
func Wrong(format string, args ...any) Usage { return Usage{fmt.Errorf(format, args...)} }

// Parse reads flags. A request for help is flag.ErrHelp, what cannot be read is
// Usage.
func Parse(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = Usage{err}
	}
	return err
}

// Command runs a benchmark as the program of that name, until it is asked to
// end, and ends the process with the exit code of what came of it.
func Command(name string, run func(ctx context.Context, args []string, out, errs io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	code := exitCode(err)
	if code != 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	os.Exit(code)
}

func exitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, new(Usage)):
		return 2
	}
	return 1
}
