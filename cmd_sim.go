package main

import (
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/engine/enginetest"
)

const simHelp = `Run one simulated inference engine until SIGINT or SIGTERM.

It answers like vLLM, with chat/completions, completions, embeddings,
/v1/models, /health, /version and /metrics, and behaves like a batching engine:
prompts are computed in chunks, every answer slows down as the batch grows,
requests queue for slots and for KV memory, and a conversation's next turn
finds its prefix in the cache. The text it writes has no meaning; its last word
is a checksum of the rest.

Once it accepts requests it writes one line with "msg":"ready" and "address"
(the real port) to stderr.

Faults

  --fault KIND[=VALUE][@PROBABILITY] may be repeated; of several the first that
  befalls a request counts. Content events are those that carry text; half of
  a body stands for them where an answer is not streamed.

`

const simFaultsWhileRunning = `
  While it runs, POST /sim/faults replaces all faults and GET lists them:

    curl http://127.0.0.1:8001/sim/faults -d '{"faults": ["reset-after=3@0.1"]}'
    curl http://127.0.0.1:8001/sim/faults -d '{"faults": []}'`

const simExamples = `  # Two engines, the second one half as fast
  penstock sim --listen 127.0.0.1:8001 --name a1 --model m
  penstock sim --listen 127.0.0.1:8002 --name a2 --model m --ttft 60ms --tbot 20ms

  # One that breaks every tenth answer off after five words
  penstock sim --fault cut-after=5@0.1

  # One that is full soon and says so
  penstock sim --slots 2 --queue-limit 4

  # As fast as the machine allows, for benchmarks, on a port that is free
  penstock sim --listen 127.0.0.1:0 --slots 256 --ttft 0 --tbot 0

  # Ask it
  curl -N http://127.0.0.1:8001/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages": [{"role": "user", "content": "hello"}], "stream": true}'`

// newSimCommand is `penstock sim`.
func newSimCommand() *cobra.Command {
	listen := "127.0.0.1:8001"
	c := enginetest.Config{Name: "sim", Models: []string{"m"}, Slots: 8, TTFT: 30 * time.Millisecond, TBOT: 10 * time.Millisecond, KVTokens: 65536, Seed: 1}
	cmd := &cobra.Command{
		Use:     "sim",
		Short:   "Run a simulated inference engine",
		Long:    simHelp + enginetest.FaultHelp() + simFaultsWhileRunning,
		Example: simExamples,
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usagef("--listen %q: want HOST:PORT, such as 127.0.0.1:8001", listen)
			}
			if len(c.Models) == 0 || slices.Contains(c.Models, "") {
				return usagef("--model: want the name of a model")
			}
			if c.MaxModelLen > c.KVTokens {
				return usagef("--max-model-len %d does not fit into --kv-tokens %d", c.MaxModelLen, c.KVTokens)
			}
			return runSim(cmd, listen, c)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&listen, "listen", listen, "address to listen on; port 0 takes a free one")
	f.StringVar(&c.Name, "name", c.Name, "name in logs; engines of other names differ in which requests a probable fault befalls")
	f.StringSliceVar(&c.Models, "model", c.Models, "model it serves; repeat for several, the first is the default")
	f.Var(atLeast(&c.Slots, 1), "slots", "requests computed at once")
	f.Var((*spanFlag)(&c.TTFT), "ttft", "time to the first token of an answer to 1,000 prompt tokens, with nothing else to do; 0 = at once")
	f.Var((*spanFlag)(&c.TBOT), "tbot", "time between tokens with nothing else to do; each further answer adds 3.5 %")
	f.Var(atLeast(&c.KVTokens, enginetest.BlockTokens), "kv-tokens", "KV memory in tokens, shared by all requests and the prefix cache")
	f.Var(atLeast(&c.MaxModelLen, 0), "max-model-len", "longest prompt and answer together, in tokens; 0 = --kv-tokens")
	f.Var(atLeast(&c.QueueLimit, 0), "queue-limit", "waiting requests from which on it answers 503; 0 = no limit")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "of answers, ids and faults with a probability")
	f.Var((*faultFlag)(&c.Faults), "fault", "fault to begin with, may be repeated (list above)")
	return cmd
}

func runSim(cmd *cobra.Command, listen string, c enginetest.Config) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	log.Info("ready", "address", ln.Addr().String(), "name", c.Name, "models", c.Models, "slots", c.Slots,
		"ttft", c.TTFT.String(), "tbot", c.TBOT.String(), "kv_tokens", c.KVTokens, "faults", (*faultFlag)(&c.Faults).String())
	sim := enginetest.New(c)
	err = sim.Serve(ctx, ln)
	s := sim.Stats()
	log.Info("stopped", "name", c.Name, "received", s.Received, "completed", s.Completed, "refused", s.Refused,
		"faulted", s.Faulted, "disconnects", len(s.Disconnects))
	return err
}

// boundedInt is a whole number with a lower bound, as a flag.
type boundedInt struct {
	value *int
	min   int
}

func atLeast(value *int, lowest int) boundedInt { return boundedInt{value, lowest} }

func (b boundedInt) String() string {
	if b.value == nil {
		return "0"
	}
	return strconv.Itoa(*b.value)
}
func (b boundedInt) Type() string { return "int" }
func (b boundedInt) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < b.min || n > 1<<30 {
		return fmt.Errorf("must be a whole number from %d to %d", b.min, 1<<30)
	}
	*b.value = n
	return nil
}

// spanFlag is a duration that is not negative, as a flag.
type spanFlag time.Duration

func (s *spanFlag) String() string { return time.Duration(*s).String() }
func (s *spanFlag) Type() string   { return "duration" }
func (s *spanFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("must be a duration like 30ms, not below 0")
	}
	*s = spanFlag(d)
	return nil
}

// faultFlag collects faults from a flag that may be repeated.
type faultFlag []enginetest.Fault

func (f *faultFlag) Type() string { return "KIND[=VALUE]" }
func (f *faultFlag) String() string {
	var texts []string
	for _, x := range *f {
		texts = append(texts, x.String())
	}
	return strings.Join(texts, ",")
}
func (f *faultFlag) Set(text string) error {
	x, err := enginetest.ParseFault(text)
	if err == nil {
		*f = append(*f, x)
	}
	return err
}
