package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/bench/load"
	"penstock/bench/report"
	"penstock/bench/trace"
)

func runBench(cmd *cobra.Command, o *benchFlags) error {
	ctx, restore := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	targets, err := o.servers()
	if err != nil {
		return err
	}
	if err := writable(o.output); err != nil {
		return err
	}
	plan, err := o.plan()
	if err != nil {
		return err
	}
	for _, t := range targets {
		defer t.Client.Close()
		if t.Model != "" {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		t.Model, err = t.Client.FirstModel(asking)
		cancel()
		if err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	b := &load.Bench{Targets: targets, Scenario: o.scenario(), Settings: o.settings(), Seed: o.seed, Rounds: o.rounds, Pause: o.pause, Plan: plan,
		SLO: &report.SLO{TTFT: inMS(o.ttft), TBOT: inMS(o.tbot), E2E: inMS(o.e2e)},
		Play: load.Play{Warm: o.warm, Length: o.length, Grace: o.grace, Limit: o.limit, InFlight: o.inFlight,
			Sessions: !o.noSession, IgnoreEOS: o.ignoreEOS}}
	closeRaw := func() error { return nil }
	if o.raw != "" {
		if b.Raw, closeRaw, err = rawWriter(o.raw); err != nil {
			return err
		}
	}
	screen := newScreen(cmd.ErrOrStderr())
	b.Progress = func(p load.Progress) {
		screen.progress(p.Share, fmt.Sprintf("round %d of %d, %s: %d sent, %d open, %d not ok", p.Round, o.rounds, p.Target, p.Sent, p.Sent-p.Ended, p.Bad))
	}
	runs, interrupted, err := b.Run(ctx)
	screen.progress(1, "")
	if err := errors.Join(err, closeRaw()); err != nil {
		return err
	}
	if interrupted {
		fmt.Fprintln(cmd.ErrOrStderr(), "interrupted: these are the results so far")
	}
	if len(runs) == 0 {
		return errors.New("nothing was measured: no request was due after the time that is not measured (--warm)")
	}
	return o.publish(cmd, runs)
}

// plan is how a round's traffic is made. A trace is read from its file for each
// round, so that a fault of it is found before the first request is sent.
func (o *benchFlags) plan() (func(uint64) (*load.Plan, error), error) {
	if o.trace == "" {
		w, err := o.workload()
		if err != nil {
			return nil, err
		}
		return func(seed uint64) (*load.Plan, error) { return w.Make(seed, o.length, o.requests) }, nil
	}
	if _, err := o.read.options(o.seed); err != nil {
		return nil, err
	}
	return func(seed uint64) (*load.Plan, error) {
		options, err := o.read.options(seed)
		if err != nil {
			return nil, err
		}
		r, err := trace.Open(o.trace, options)
		if err != nil {
			return nil, err
		}
		p, err := load.OfTrace(r, o.speed, o.length, o.requests)
		return p, errors.Join(err, r.Close())
	}, nil
}

// publish writes and prints the results. A target without one whole answer makes
// the run a failed one.
func (o *benchFlags) publish(cmd *cobra.Command, runs []report.Run) error {
	results := &report.Results{Version: report.Version, Tool: "bench", Title: o.title, Commit: commitOf(), Date: time.Now().UTC().Format("2006-01-02"),
		Machine: thisMachine(), Runs: runs}
	if o.output != "" {
		text, err := json.Marshal(results)
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.output, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	if o.asJSON {
		if err := printJSON(cmd, results); err != nil {
			return err
		}
	} else if err := printComparison(cmd.OutOrStdout(), results); err != nil {
		return err
	}
	for i := range runs {
		if runs[i].OK == 0 && runs[i].Requests > 0 {
			return fmt.Errorf("%s, round with seed %d: not one whole answer of %d requests: %s", runs[i].Name, runs[i].Seed, runs[i].Requests, outcomesText(&runs[i]))
		}
	}
	return nil
}

func outcomesText(r *report.Run) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Outcomes[name], name))
	}
	return strings.Join(parts, ", ")
}

// printComparison is results as text: a line for each name, and who won.
func printComparison(w io.Writer, results *report.Results) error {
	comparisons, err := report.Compare([]*report.Results{results})
	if err != nil {
		return err
	}
	for i, c := range comparisons {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s\n\n", plainText(c.Scenario))
		head, rows := c.Table()
		t := newTable(w, head...)
		for _, row := range rows {
			t.row(row...)
		}
		if err := t.print(); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\n", plainText(c.Sentence()))
		for _, note := range c.Winner.Notes {
			fmt.Fprintf(w, "%s\n", plainText(note))
		}
	}
	return nil
}

// rawWriter writes results as lines of JSON.
func rawWriter(path string) (write func(load.Result) error, done func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	out := bufio.NewWriterSize(f, 64<<10)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return func(r load.Result) error { return enc.Encode(r) }, func() error { return errors.Join(out.Flush(), f.Close()) }, nil
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// commitOf is the source that this build is of.
func commitOf() string {
	v := readVersion(debug.ReadBuildInfo())
	if v.Revision == "" {
		return ""
	}
	if v.Modified {
		return v.Revision[:min(len(v.Revision), 12)] + "+changes"
	}
	return v.Revision[:min(len(v.Revision), 12)]
}

// thisMachine is where a run in real time was.
func thisMachine() *report.Machine {
	m := &report.Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // another system; what is known is said
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Model = strings.TrimSpace(value)
			break
		}
	}
	return m
}
