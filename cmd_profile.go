package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/route"
)

const profileHelp = `Measure a live engine: how long its steps take, and with that its latency under
any load and mix of requests. The engine should have nothing else to do.

It is loaded over /v1/chat/completions with 1, 2, 4, ... streams at once, up to
--most, an equal share of the time --for each, and never longer than that in all.
It ends early where the engine says that it is full, or gets through no more by
having more at once. Prompts differ from their first word, so that no cache helps,
and have --prompt tokens on average; answers have up to --answer tokens.

A step of n sequences with p prompt tokens takes step + n per_seq + p per_token.
These three are what the profile file has; a gateway that has it in engine.profile
begins with them, and goes on learning.

  [[engine]]
  name = "a1"
  url = "http://127.0.0.1:8001"
  profile = "a1.toml"

--csv writes load and latency of each rung, for penstock fit.`

const profileExamples = `  penstock profile --engine http://127.0.0.1:8001
  penstock profile --engine http://127.0.0.1:8001 --for 5m --most 256 --output a1.toml
  penstock profile --engine https://a1.example:8443 --key-file a1.key --prompt 4000 --answer 50`

func newProfileCommand() *cobra.Command {
	l := ladder{most: 32, prompt: 400, answer: 64}
	var url, output, csvPath, keyFile string
	length, asJSON := time.Minute, false
	cmd := &cobra.Command{
		Use:     "profile --engine URL",
		Short:   "Measure a live engine and write its profile",
		Long:    profileHelp,
		Example: profileExamples,
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case url == "":
				return usagef("profile needs an engine: --engine URL")
			case length < time.Second || length > 24*time.Hour:
				return usagef("--for %s: want 1s to 24h", length)
			case output != "" && filepath.Ext(output) != ".toml":
				return usagef("--output: want a name that ends in .toml, by which engine.profile knows a file")
			}
			c := engine.Config{Name: "measured", URL: url}
			for _, f := range c.Validate() {
				return usagef("--engine %s: want %s", f.Value, f.Want)
			}
			l.base = strings.TrimRight(url, "/")
			if keyFile != "" {
				key, err := os.ReadFile(keyFile)
				if err != nil {
					return err
				}
				l.key = strings.TrimSpace(string(key))
			}
			if err := writable(output, csvPath); err != nil {
				return err
			}
			return runProfile(cmd, &l, length, output, csvPath, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&url, "engine", "", "root `URL` of the engine's API, without /v1")
	f.StringVar(&l.model, "model", "", "model to ask for; the first of /v1/models where not set")
	f.DurationVar(&length, "for", length, "time to take at most")
	f.Var(atLeast(&l.most, 1), "most", "streams at once on the last rung")
	f.Var(atLeast(&l.prompt, 1), "prompt", "tokens of a prompt, mean")
	f.Var(atLeast(&l.answer, 2), "answer", "tokens of an answer, at most")
	f.StringVar(&keyFile, "key-file", "", "`FILE` with the API key that the engine wants")
	f.StringVar(&output, "output", "", "write a profile `FILE.toml` for engine.profile")
	f.StringVar(&csvPath, "csv", "", "write load and latency of each rung to a CSV `FILE`")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	_ = cmd.MarkFlagFilename("output", "toml")
	_ = cmd.MarkFlagFilename("csv", "csv")
	_ = cmd.MarkFlagFilename("key-file")
	return cmd
}

func runProfile(cmd *cobra.Command, l *ladder, length time.Duration, output, csvPath string, asJSON bool) error {
	ctx, restore := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	l.screen = newScreen(cmd.ErrOrStderr())
	started := time.Now()
	if err := l.climb(ctx, length); err != nil {
		return fmt.Errorf("%s: %w", l.base, err)
	}
	r := newProfileReport(l, time.Since(started))
	if r.Speed.PerSeq <= 0 {
		return fmt.Errorf("%s: too few answers to learn from: %d whole ones in %s; give it more time (--for) or shorter answers (--answer)",
			l.base, l.whole(), length)
	}
	for path, text := range map[string]string{output: r.file(), csvPath: r.csv()} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	r.Output = output
	if asJSON {
		return printJSON(cmd, r)
	}
	return r.print(cmd.OutOrStdout())
}

// profileReport is the result of profile; its JSON fields are the outward interface.
type profileReport struct {
	Engine  string        `json:"engine"`
	Model   string        `json:"model"`
	Seconds float64       `json:"seconds"`
	Speed   profileSpeed  `json:"profile"`
	Off     float64       `json:"mape"` // of the rungs' latencies, against what the profile says
	Ended   string        `json:"ended"`
	Rungs   []profileRung `json:"rungs"`
	Output  string        `json:"output,omitempty"`

	latency profile.Request // the mean request
}

type profileSpeed struct {
	Step     float64 `json:"step_ms"`
	PerSeq   float64 `json:"per_seq_ms"`
	PerToken float64 `json:"per_token_ms"`
}

type profileRung struct {
	Streams  int     `json:"streams"`
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	Load     float64 `json:"load"` // requests/s
	TTFT     float64 `json:"ttft_ms"`
	TBOT     float64 `json:"tbot_ms"`
	Latency  float64 `json:"latency_ms"`
	Expected float64 `json:"expected_ms"` // by the profile
}

func newProfileReport(l *ladder, took time.Duration) profileReport {
	speed := l.learner.Speed(route.Speed{})
	r := profileReport{Engine: l.base, Model: l.model, Seconds: took.Seconds(), Ended: l.ended,
		Speed: profileSpeed{speed.Step, speed.PerSeq, speed.PerToken}, latency: l.mean()}
	for _, g := range l.rungs {
		if g.whole == 0 {
			continue
		}
		n := float64(g.whole)
		row := profileRung{Streams: g.streams, Requests: g.whole, Errors: g.failed, TTFT: g.ttft / n, TBOT: g.tbot / n, Latency: g.total / n}
		// A closed loop: each stream's next request follows its last.
		row.Load = float64(g.streams) / row.Latency * 1000
		row.Expected = profile.Closed(speed, profile.Request{Prompt: g.prompt / n, Cached: g.cached / n, Output: g.output / n}, float64(g.streams))
		r.Off += abs(row.Expected/row.Latency - 1)
		r.Rungs = append(r.Rungs, row)
	}
	if len(r.Rungs) > 0 {
		r.Off /= float64(len(r.Rungs))
	}
	return r
}

func abs(v float64) float64 { return max(v, -v) }

func (r profileReport) print(w io.Writer) error {
	facts := newFacts(w)
	facts.add("engine", r.Engine+", model "+plainText(r.Model))
	facts.add("a step", fmt.Sprintf("%s ms, and %s ms for each sequence, %s ms for each prompt token", short(r.Speed.Step), short(r.Speed.PerSeq), short(r.Speed.PerToken)))
	curve, capacity, _ := profile.Curve(r.speed(), r.latency, profile.Known{})
	facts.add("that is", fmt.Sprintf("at most %s requests/s like these (prompt %.0f, answer %.0f tokens), %s ms each with nothing else to do",
		short(capacity), r.latency.Prompt, r.latency.Output, short(curve.Zero())))
	facts.add("error", fmt.Sprintf("%.1f %% of the latency on average over the rungs", 100*r.Off))
	facts.add("ended", r.Ended)
	facts.add("profile file", r.Output)
	if err := facts.print(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "STREAMS", "REQUESTS", "ERRORS", "LOAD", "FIRST TOKEN", "BETWEEN TOKENS", "LATENCY", "EXPECTED")
	for _, g := range r.Rungs {
		t.row(fmt.Sprint(g.Streams), fmt.Sprint(g.Requests), fmt.Sprint(g.Errors), short(g.Load)+"/s", short(g.TTFT)+" ms", short(g.TBOT)+" ms", short(g.Latency)+" ms", short(g.Expected)+" ms")
	}
	return t.print()
}

func (r profileReport) speed() route.Speed {
	return route.Speed{Step: r.Speed.Step, PerSeq: r.Speed.PerSeq, PerToken: r.Speed.PerToken, Answers: profile.Calibrating}
}

func (r profileReport) file() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A profile for engine.profile, measured by `penstock profile`: what a step takes,\n# each sequence in it and each prompt token in it. Off by %.1f %% on average.\n#\n", 100*r.Off)
	fmt.Fprintf(&b, "# streams  requests/s  latency ms  expected ms\n")
	for _, g := range r.Rungs {
		fmt.Fprintf(&b, "# %7d  %10.4g  %10.4g  %11.4g\n", g.Streams, g.Load, g.Latency, g.Expected)
	}
	fmt.Fprintf(&b, "model = %q\n", plainText(r.Model))
	fmt.Fprintf(&b, "step_ms = %.5g\nper_seq_ms = %.5g\nper_token_ms = %.5g\n", r.Speed.Step, r.Speed.PerSeq, r.Speed.PerToken)
	return b.String()
}

func (r profileReport) csv() string {
	var b strings.Builder
	b.WriteString("load,latency\n")
	for _, g := range r.Rungs {
		fmt.Fprintf(&b, "%.6g,%.6g\n", g.Load, g.Latency)
	}
	return b.String()
}
