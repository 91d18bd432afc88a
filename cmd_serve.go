package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"penstock/config"
)

func newServeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run a gateway in front of the engines of a configuration file",
		Long: `Run a gateway. Once it accepts requests it writes one log line with
"msg":"ready", "address", "admin" and, where there is one, "metrics" (the real
ports) to stderr; the log is one JSON object a line.

Signals

  SIGTERM, SIGINT  drain: not ready at once, new requests still served for 5 s,
                   then no new ones; streams have 120 s to finish. A second
                   signal ends now.
  SIGHUP           read the file again; a bad one is refused and the old stays
                   in use (as POST /-/reload on the admin listener).

Files

  Those of listen.tls_cert and tls_key, and those of discovery.file_sd, are
  followed while the gateway runs: a new one that can be used is in use within
  seconds, without a signal. All others are read at a start and a reload.

Environment

  GOMEMLIMIT       nine tenths of the cgroup's memory limit unless it is set
                   ("off" for no limit); request bodies together hold at most a
                   quarter of it, then 503 overloaded.
  NOTIFY_SOCKET    set by systemd (Type=notify): it is told of the start, the
                   end of a reload and the drain, and with WatchdogSec= of life.
  ${NAME}          in the file is the environment variable of that name.

Exit code 0 after a drain, 1 if the file or a listener cannot be used.
config.toml.example explains every key; 'penstock check' shows every fault of a
file.`,
		Example: `  penstock serve --config penstock.toml
  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}'`,
		Args: exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usagef("serve needs --config FILE; config.toml.example is one to start from")
			}
			signals := make(chan os.Signal, 4)
			// Before anything takes time: a SIGTERM during start-up drains too.
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer signal.Stop(signals)
			file, err := config.Load(path)
			if err != nil {
				return err
			}
			setCollector()
			limit, from := setMemoryLimit(os.DirFS("/"))
			g, err := newGateway(file, path, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			g.log.Info("memory limit", "bytes", limit, "from", from)
			if g.manager, err = newServiceManager(os.Getenv); err != nil {
				return err
			}
			log.SetFlags(0)
			log.SetOutput(standardLog{g.log})
			ctx, now, release := g.follow(cmd.Context(), signals)
			defer release()
			return g.run(ctx, now)
		},
	}
	addConfigFlag(cmd, &path)
	return cmd
}

// follow turns the process's signals into a context that ends with the first
// SIGTERM or SIGINT, a channel that closes with the second, and reloads.
func (g *gateway) follow(parent context.Context, signals <-chan os.Signal) (ctx context.Context, now <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(parent)
	second, done := make(chan struct{}), make(chan struct{})
	go func() {
		ending := 0
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				switch {
				case s == syscall.SIGHUP:
					_, _ = g.reload(false) // logs and counts what it refuses
				case ending == 0:
					ending++
					cancel()
				case ending == 1:
					ending++
					close(second)
				}
			}
		}
	}()
	return ctx, second, func() {
		close(done)
		cancel()
	}
}

// standardLog takes what net/http tells through the standard logger (an engine
// that sends more than its answer, say) into the log, without the engine's
// bytes that it quotes: those may be somebody's prompt.
type standardLog struct{ log *slog.Logger }

func (s standardLog) Write(line []byte) (int, error) {
	note, _, _ := strings.Cut(strings.TrimSpace(string(line)), " starting with")
	s.log.Debug("net/http", "note", note)
	return len(line), nil
}
