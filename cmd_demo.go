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

const demoHelp = `Run the whole thing on this machine: three clusters at a distance from each other,
each with clients, a gateway and a simulated engine, in one process, on free
loopback ports. Nothing else is needed.

First a few conversations are streamed, so that you see the words arrive, which
engine wrote them and why; then an engine stops listening in the middle of one.
The gateway serves you too: the curl line to try is printed.

After that the clusters' own clients come. Those of B ask for more than its
engine carries, C has room and is near, A is nearly full and far. The same
requests come at the same times under each policy, in fleets of their own side
by side, and a table shows what the clients measured. In the last fleet two of
three conversations of B may not leave it. Ctrl-C ends the demo.

With --for it ends by itself; with --json there is no show, and one document:

  {"requests": n, "errors": n, "engines": [{"name": s, "requests": n}],
   "ttft_ms": {"p50": x, "p95": x, "p99": x},
   "policies": [{"name": s, "requests": n, "errors": n, "mean_ms": x, "p99_ms": x,
                 "max_utilisation": x, "shed": n, "moved": n,
                 "weights": {"CLUSTER": {"ENGINE": x}}}]}

With --fleet it is another show: the three gateways are joined by a NATS server, as
on three machines. One of them leads; on Enter, or halfway through --for, it is
killed. Another leads within 10 s, and the clients see nothing of it. The document
of --json then has "fleet" instead of "policies":

  "fleet": {"killed": s, "leader": s, "took_ms": x, "epochs": [n, n], "versions": [n, n]}

Times are those that the clients measured, from when a request was due to its
last word. max_utilisation is the highest mean load of an engine over what it
carries; moved counts turns that another engine answered than the turn before.
Every answer is checked to be whole and the one that was asked for. Exit code 1
if any was not.`

func newDemoCommand() *cobra.Command {
	var length time.Duration
	var asJSON, exchange, joined bool
	var logFile string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show clusters of clients, gateways and engines at work, all in this process",
		Long:  demoHelp,
		Example: `  penstock demo
  penstock demo --for 30s --json
  penstock demo --exchange
  penstock demo --fleet --for 40s
  penstock demo --log gateway.log`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") && length <= 0 {
				return usagef("--for %s: want a duration above 0, such as 5s", length)
			}
			where := demoWorld
			if exchange {
				where = where.exchanged()
			}
			logs, closeLogs, err := demoLog(logFile)
			if err != nil {
				return err
			}
			ctx, restore := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer restore()
			defer context.AfterFunc(ctx, restore)() // a second signal ends at once
			if joined {
				return joinClose(runJoinedDemo(ctx, cmd, where, length, asJSON, logs), closeLogs)
			}
			d := &demo{world: where, length: length, logs: logs, logFile: logFile, errs: cmd.ErrOrStderr()}
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
	cmd.Flags().BoolVar(&exchange, "exchange", false, "exchange the clients and engines of clusters A and C")
	cmd.Flags().BoolVar(&joined, "fleet", false, "join the gateways by a NATS server, and kill the one that leads")
	cmd.Flags().StringVar(&logFile, "log", "", "write the gateways' log to this `FILE`; without it, it is discarded")
	if err := cmd.MarkFlagFilename("log"); err != nil {
		panic(err) // the flag has just been defined
	}
	return cmd
}

// runJoinedDemo is the demo of a fleet that a network joins.
func runJoinedDemo(ctx context.Context, cmd *cobra.Command, where world, length time.Duration, asJSON bool, logs io.Writer) error {
	d, err := newJoinedDemo(where, &oneAtATime{w: logs}, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	var kill <-chan struct{} = enters(cmd.InOrStdin())
	if length > 0 {
		halfway := make(chan struct{}, 1)
		defer time.AfterFunc(length/2, func() { halfway <- struct{}{} }).Stop()
		kill = halfway
	}
	if !asJSON {
		d.screen = newScreen(cmd.OutOrStdout())
	}
	moved, err := d.run(ctx, length, kill)
	report := reportOf([]*tally{d.seen})
	report.Fleet = moved
	if err == nil && report.Errors > 0 {
		err = fmt.Errorf("%d of %d requests failed", report.Errors, report.Requests)
	}
	if asJSON {
		if printed := printJSON(cmd, report); printed != nil {
			return printed
		}
	}
	d.printf("\n%d requests, %d errors. The demo has ended.\n", report.Requests, report.Errors)
	return err
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
