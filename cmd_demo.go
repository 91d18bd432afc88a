package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const demoHelp = `Run the whole thing on this machine: three simulated engines of different speed,
a gateway in front of them and clients that talk through it, in one process, on
free loopback ports. Nothing else is needed.

First a few conversations are streamed, so that you see the words arrive, which
engine wrote them and why; then an engine stops listening in the middle of one.
After that the clients go on quietly under a table of what each engine does, and
the gateway serves you too: the curl line to try is printed. Ctrl-C ends it.

With --for it ends by itself; with --json there is no show, and one document:

  {"requests": n, "errors": n, "engines": [{"name": s, "requests": n}],
   "ttft_ms": {"p50": x, "p95": x, "p99": x}}

Times are those that the clients measured. Every answer is checked to be whole
and the one that was asked for. Exit code 1 if any was not.`

func newDemoCommand() *cobra.Command {
	var length time.Duration
	var asJSON bool
	var logFile string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show engines, gateway and clients at work, all in this process",
		Long:  demoHelp,
		Example: `  penstock demo
  penstock demo --for 5s --json
  penstock demo --log gateway.log`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") && length <= 0 {
				return usagef("--for %s: want a duration above 0, such as 5s", length)
			}
			logs, closeLogs, err := demoLog(logFile)
			if err != nil {
				return err
			}
			ctx, restore := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer restore()
			defer context.AfterFunc(ctx, restore)() // a second signal ends at once
			d := &demo{engines: demoEngines, length: length, logs: logs, logFile: logFile, errs: cmd.ErrOrStderr()}
			if !asJSON {
				d.screen = newScreen(cmd.OutOrStdout())
			}
			report, err := d.run(ctx)
			if report != nil && asJSON {
				if printed := printJSON(cmd, report); printed != nil {
					return printed
				}
			}
			return joinClose(err, closeLogs)
		},
	}
	cmd.Flags().DurationVar(&length, "for", 0, "end by itself after this time, such as 5s; without it, with Ctrl-C")
	cmd.Flags().BoolVar(&asJSON, "json", false, "no show; print one JSON document at the end")
	cmd.Flags().StringVar(&logFile, "log", "", "write the gateway's log to this `FILE`; without it, it is discarded")
	return cmd
}

// demoLog is where the gateway's log goes.
func demoLog(path string) (w io.Writer, closeFile func() error, err error) {
	if path == "" {
		return io.Discard, func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--log: %w", err)
	}
	return f, f.Close, nil
}

// joinClose is err, or that of the closing where there is none.
func joinClose(err error, closeFile func() error) error {
	if closed := closeFile(); err == nil {
		return closed
	}
	return err
}

// ownCommand is how the reader calls this program: what they typed, or
// `go run .` where the binary is one that go run made and will remove.
func ownCommand() string {
	exe, err := os.Executable()
	if err != nil || strings.Contains(filepath.ToSlash(exe), "/go-build") {
		return "go run ."
	}
	if strings.ContainsAny(os.Args[0], " '\"\\$") {
		return "penstock"
	}
	return os.Args[0]
}
