package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/bench/load"
)

const benchHelp = `Send traffic to servers with an OpenAI-compatible API (a gateway, another load
balancer, an engine) and measure what clients see: time to the first token, between
tokens and to the end, good answers per second, what was refused or broke.

The loop is open. Conversations begin when the plan says, however slow the answers are,
and every latency counts from when the request was due: a server that stalls is charged
for all who had to wait. The plan comes from a seed, so that all targets get the same
requests at the same instants. Each target plays it in every round, one after the other
in changing order, and the differences are taken round by round: that is what the
intervals say (95 %, Student's t). Five rounds or more make them narrow.

Traffic is conversations: --rate requests/s in all, arrivals as --arrivals says, --turns
turns on average with --think between an answer and the next turn. An opening has
--shared tokens of a system prompt that others have too, and --prompt tokens of its own;
later turns add the answer before and --later tokens. Lengths are N, exp:MEAN,
uniform:FROM:TO or lognormal:MEDIAN:SIGMA. With --trace the requests of a file of
recorded traffic take their place ('penstock trace --help' has the formats): times,
lengths, conversations and common prefixes are the file's, --speed times as fast.

A good answer keeps the SLO: --slo-ttft, --slo-tbot, --slo-e2e. 429 and 503 count as
shed. The generator's own lag is measured: where it is not small, the machine is too slow
for the rate, and the table says so. Ctrl-C ends the run with what was measured by then.

--output keeps the results, histograms and series included, for penstock report;
--raw has a line of JSON for every request.`

const benchExamples = `  penstock bench --target http://127.0.0.1:8080 --rate 20 --for 1m
  penstock bench --target a=http://127.0.0.1:8080 --target b=http://127.0.0.1:8090 --turns 4 --rounds 5 --output results.json
  penstock bench --target http://127.0.0.1:8080 --trace conversation_trace.jsonl --speed 2 --for 5m`

// benchFlags is how bench was called.
type benchFlags struct {
	targets, headers             []string
	model, keyFile               string
	rate, turns, speed           float64
	arrivals                     string
	think, warm, length, pause   time.Duration
	grace, limit                 time.Duration
	ttft, tbot, e2e              time.Duration
	shared, prefixes, requests   int
	rounds, inFlight             int
	prompt, later, answer        string
	trace, title                 string
	read                         traceFlags
	noSession, ignoreEOS, asJSON bool
	seed                         uint64
	output, raw                  string
}

func newBenchCommand() *cobra.Command {
	o := benchFlags{shared: 0, prefixes: 1, rounds: 3, inFlight: 4096}
	cmd := &cobra.Command{
		Use:     "bench --target [NAME=]URL ...",
		Short:   "Load servers with an OpenAI-compatible API and compare them",
		Long:    benchHelp,
		Example: benchExamples,
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return runBench(cmd, &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.targets, "target", nil, "`[NAME=]URL` of a server, the root of its API without /v1; may be repeated")
	f.StringVar(&o.model, "model", "", "model to ask for; the first of each target's /v1/models where not set")
	f.StringVar(&o.keyFile, "key-file", "", "`FILE` with the API key that the targets want")
	f.StringArrayVar(&o.headers, "header", nil, "`NAME: VALUE` to send with every request; may be repeated")
	f.Float64Var(&o.rate, "rate", 5, "requests/s, all turns of all conversations")
	f.StringVar(&o.arrivals, "arrivals", "poisson", "poisson, constant, or gamma:CV (above 1: bursts)")
	f.Float64Var(&o.turns, "turns", 1, "turns of a conversation, mean")
	f.DurationVar(&o.think, "think", 3*time.Second, "between an answer and the next turn, mean")
	f.Var(atLeast(&o.shared, 0), "shared", "tokens of system prompt that conversations share")
	f.Var(atLeast(&o.prefixes, 1), "prefixes", "how many such system prompts there are (the n-th is asked for 1/n as often)")
	f.StringVar(&o.prompt, "prompt", "lognormal:300:0.8", "tokens that a conversation opens with")
	f.StringVar(&o.later, "later", "lognormal:60:0.8", "tokens that a later turn adds")
	f.StringVar(&o.answer, "answer", "lognormal:100:0.6", "tokens to ask for (max_tokens)")
	f.BoolVar(&o.ignoreEOS, "ignore-eos", false, "ask for answers of exactly that length (ignore_eos: vLLM, SGLang, llama.cpp)")
	f.StringVar(&o.trace, "trace", "", "replay a `FILE` of recorded traffic")
	f.Float64Var(&o.speed, "speed", 1, "replay that many times as fast")
	o.read.add(cmd)
	f.DurationVar(&o.length, "for", 30*time.Second, "length of a round at one target, --warm included")
	f.DurationVar(&o.warm, "warm", 5*time.Second, "of it, not measured")
	f.Var(atLeast(&o.requests, 0), "requests", "requests of a round at most; 0: as many as come")
	f.Var(atLeast(&o.rounds, 1), "rounds", "rounds, each with a seed of its own")
	f.DurationVar(&o.pause, "pause", time.Second, "between one target and the next")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "after a round, for its answers to end")
	f.DurationVar(&o.limit, "limit", 2*time.Minute, "time for one answer; beyond it, it failed")
	f.Var(atLeast(&o.inFlight, 1), "max-in-flight", "requests at once; more are counted as errors and not sent")
	f.BoolVar(&o.noSession, "no-session", false, "send no X-Session-Id: conversations are known by their text alone")
	f.DurationVar(&o.ttft, "slo-ttft", 2*time.Second, "a good answer has its first token within this; 0: whenever")
	f.DurationVar(&o.tbot, "slo-tbot", 100*time.Millisecond, "and no more than this between its tokens on average; 0: whatever")
	f.DurationVar(&o.e2e, "slo-e2e", 0, "and its last token within this; 0: whenever")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the first round; the next ones follow")
	f.StringVar(&o.title, "title", "", "what is compared in, for the report; the traffic's settings where not set")
	f.StringVar(&o.output, "output", "", "write the results to a `FILE.json`, for penstock report")
	f.StringVar(&o.raw, "raw", "", "write every request to a `FILE.jsonl`")
	f.BoolVar(&o.asJSON, "json", false, "print the results as one JSON document")
	_ = cmd.MarkFlagFilename("trace")
	_ = cmd.MarkFlagFilename("key-file")
	_ = cmd.MarkFlagFilename("output", "json")
	_ = cmd.MarkFlagFilename("raw", "jsonl")
	return cmd
}

// Bounds of a run: nobody means more, and a typing error should not run for ever.
const (
	longestRound = 24 * time.Hour
	mostRate     = 100_000
)

func (o *benchFlags) check() error {
	switch {
	case len(o.targets) == 0:
		return usagef("bench needs a server: --target [NAME=]URL")
	case !(o.rate > 0 && o.rate <= mostRate):
		return usagef("--rate %g: want requests/s above 0, up to %d", o.rate, mostRate)
	case !(o.turns >= 1 && o.turns <= 1000):
		return usagef("--turns %g: want 1 to 1000", o.turns)
	case !(o.speed > 0 && o.speed <= 1e6):
		return usagef("--speed %g: want more than 0", o.speed)
	case o.length <= 0 || o.length > longestRound:
		return usagef("--for %s: want a time up to %s", o.length, longestRound)
	case o.warm < 0 || o.warm >= o.length:
		return usagef("--warm %s: want less than --for, %s", o.warm, o.length)
	case o.rounds > 1000:
		return usagef("--rounds %d: want up to 1000", o.rounds)
	}
	for name, d := range map[string]time.Duration{"think": o.think, "pause": o.pause, "grace": o.grace, "slo-ttft": o.ttft, "slo-tbot": o.tbot, "slo-e2e": o.e2e} {
		if d < 0 || d > longestRound {
			return usagef("--%s %s: want a time from 0 to %s", name, d, longestRound)
		}
	}
	if o.limit <= 0 || o.limit > longestRound {
		return usagef("--limit %s: want a time up to %s", o.limit, longestRound)
	}
	return nil
}

// workload is the traffic where no trace says.
func (o *benchFlags) workload() (*load.Workload, error) {
	arrivals, err := load.ParseArrivals(o.arrivals)
	if err != nil {
		return nil, usagef("--arrivals %v", err)
	}
	w := &load.Workload{Rate: o.rate, Arrivals: arrivals, Turns: o.turns, Think: o.think, Shared: o.shared, Prefixes: o.prefixes}
	for _, l := range []struct {
		name, text string
		to         *load.Lengths
	}{{"prompt", o.prompt, &w.Prompt}, {"later", o.later, &w.Later}, {"answer", o.answer, &w.Output}} {
		if *l.to, err = load.ParseLengths(l.text); err != nil {
			return nil, usagef("--%s %v", l.name, err)
		}
	}
	return w, nil
}

// servers are the targets, with names that tell them apart.
func (o *benchFlags) servers() ([]*load.Target, error) {
	key := ""
	if o.keyFile != "" {
		text, err := os.ReadFile(o.keyFile)
		if err != nil {
			return nil, err
		}
		key = strings.TrimSpace(string(text))
	}
	header := http.Header{}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name+value, "\r\n") {
			return nil, usagef("--header %q: want NAME: VALUE", h)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	var targets []*load.Target
	var names []string
	for _, text := range o.targets {
		name, address, named := strings.Cut(text, "=")
		if !named || strings.Contains(name, "/") {
			name, address = "", text
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
			return nil, usagef("--target %s: want [NAME=]http://HOST:PORT", text)
		}
		if name == "" {
			name = u.Host
		}
		if slices.Contains(names, name) {
			return nil, usagef("--target %s: two targets are called %s; name them, NAME=URL", text, name)
		}
		names = append(names, name)
		targets = append(targets, &load.Target{Name: name, Client: load.NewClient(strings.TrimSuffix(strings.TrimRight(address, "/"), "/v1"), key, header), Model: o.model})
	}
	return targets, nil
}

// scenario names the traffic; runs with the same name are compared.
func (o *benchFlags) scenario() string {
	switch {
	case o.title != "":
		return o.title
	case o.trace != "":
		return fmt.Sprintf("%s x %g", o.trace[strings.LastIndexByte(o.trace, '/')+1:], o.speed)
	}
	return fmt.Sprintf("%g requests/s, %s, %g turns, prompt %s, answer %s", o.rate, o.arrivals, o.turns, o.prompt, o.answer)
}

// settings are what the results keep of how the run was called.
func (o *benchFlags) settings() map[string]string {
	s := map[string]string{"for": o.length.String(), "warm": o.warm.String(), "rounds": fmt.Sprint(o.rounds), "sessions": fmt.Sprint(!o.noSession)}
	if o.trace != "" {
		s["trace"], s["speed"] = o.trace[strings.LastIndexByte(o.trace, '/')+1:], fmt.Sprint(o.speed)
		return s
	}
	s["rate"], s["arrivals"], s["turns"], s["think"] = fmt.Sprint(o.rate), o.arrivals, fmt.Sprint(o.turns), o.think.String()
	s["shared"], s["prefixes"], s["prompt"], s["later"], s["answer"] = fmt.Sprint(o.shared), fmt.Sprint(o.prefixes), o.prompt, o.later, o.answer
	return s
}
