package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/bench/trace"
)

const traceHelp = `Read a file of recorded traffic and say what is in it: rate and burstiness, lengths of
prompts and answers, conversations, and how much of the prompts a cache could save.
The whole file is read: this also tells whether it is good, with line and field of what
is not.

What it can be, found by looking at the content (--format forces it), also as .gz:

  mooncake   JSON lines: timestamp (ms), input_length, output_length, hash_ids (512 tokens each)
  bailian    JSON lines: the same with chat_id, parent_chat_id, timestamp in s, 16 tokens a block
  ragpulse   JSON lines: t (s), session, in, out, segments [[id, tokens], ...]
  weka       JSON lines: sessions of coding agents; they have no common clock, so each starts
             a random time after the one before (--sessions, --seed)
  azure      CSV: arrival_s,input_tokens,output_tokens, or TIMESTAMP,ContextTokens,GeneratedTokens
  burstgpt   CSV: Timestamp, Request tokens, Response tokens; failed requests are left out
  servegen   CSV: clients as distributions, drawn with --seed; --scale thins them out
  access     the log of a penstock gateway: its requests with their conversations

penstock simulate and penstock bench replay such files.`

const traceExamples = `  penstock trace conversation_trace.jsonl
  penstock trace gateway.log --json
  penstock trace servegen_client_rates.csv.gz --workload language/m-large --scale 0.01 --until 1h`

// traceFlags are the flags of every command that reads a trace.
type traceFlags struct {
	format string
	o      trace.Options
}

func (t *traceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.format, "format", "auto", "format of the trace: auto, "+strings.Join(trace.Formats(), ", "))
	f.Float64Var(&t.o.SessionsPerSecond, "sessions", trace.DefaultSessionsPerSecond, "weka: sessions that start per second")
	f.DurationVar(&t.o.LongestPause, "longest-pause", trace.DefaultLongestPause, "weka: longer pauses within a session become this; -1s: as recorded")
	f.StringVar(&t.o.Workload, "workload", "", "servegen: only this workload")
	f.Float64Var(&t.o.Scale, "scale", 1, "servegen: factor of all rates")
	f.StringVar(&t.o.Lengths, "lengths", "", "servegen: `FILE` of token lengths; servegen_client_lengths.csv beside the rates where not set")
	_ = cmd.MarkFlagFilename("lengths", "csv")
	_ = cmd.RegisterFlagCompletionFunc("format", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return append([]string{"auto"}, trace.Formats()...), cobra.ShellCompDirectiveNoFileComp
	})
}

// options are the flags as the readers take them.
func (t *traceFlags) options(seed uint64) (trace.Options, error) {
	format, err := trace.ParseFormat(t.format)
	switch {
	case err != nil:
		return trace.Options{}, usagef("--format: %v", err)
	case !(t.o.SessionsPerSecond > 0 && t.o.SessionsPerSecond <= 1e6):
		return trace.Options{}, usagef("--sessions %g: want more than 0", t.o.SessionsPerSecond)
	case !(t.o.Scale > 0 && t.o.Scale <= 1e6):
		return trace.Options{}, usagef("--scale %g: want more than 0", t.o.Scale)
	}
	o := t.o
	o.Format, o.Seed = format, seed
	return o, nil
}

func newTraceCommand() *cobra.Command {
	var flags traceFlags
	var seed uint64
	var until time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "trace FILE",
		Short:   "Say what is in a file of recorded traffic",
		Long:    traceHelp,
		Example: traceExamples,
		Args:    exactly(1, "a trace file (or - for standard input)"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"jsonl", "csv", "gz", "log"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if until < 0 {
				return usagef("--until %s: want a time from the start, 0 for all", until)
			}
			o, err := flags.options(seed)
			if err != nil {
				return err
			}
			s, err := summariseTrace(cmd.InOrStdin(), args[0], o, until)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, s)
			}
			return printTrace(cmd.OutOrStdout(), s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	f.DurationVar(&until, "until", 0, "read no further than this time from the start; 0: to the end")
	flags.add(cmd)
	f.Uint64Var(&seed, "seed", 1, "seed of what is drawn (weka, servegen)")
	return cmd
}

func summariseTrace(stdin io.Reader, path string, o trace.Options, until time.Duration) (trace.Summary, error) {
	var r *trace.Reader
	var err error
	if path == "-" {
		r, err = trace.NewReader(stdin, nameOfInput(path), o)
	} else {
		r, err = trace.Open(path, o)
	}
	if err != nil {
		return trace.Summary{}, err
	}
	s, err := trace.Summarise(r, until)
	return s, errors.Join(err, r.Close())
}

func printTrace(w io.Writer, s trace.Summary) error {
	facts := newFacts(w)
	facts.add("trace", plainText(s.File)+", format "+s.Format)
	facts.add("requests", fmt.Sprintf("%d in %s", s.Requests, time.Duration(s.Seconds*float64(time.Second)).Round(time.Second)))
	var left []string
	for _, why := range slices.Sorted(maps.Keys(s.Skipped)) {
		left = append(left, fmt.Sprintf("%d (%s)", s.Skipped[why], plainText(why)))
	}
	facts.add("left out", strings.Join(left, "; "))
	facts.add("rate", fmt.Sprintf("%s/s on average, %s/s in the busiest minute; times between requests have CV %.2f (Poisson: 1)", short(s.Rate), short(s.Peak), s.CV))
	if s.Conversations > 0 {
		facts.add("conversations", fmt.Sprintf("%d; turns %.1f on average, p95 %d, at most %d", s.Conversations, s.Turns.Mean, s.Turns.P95, s.Turns.Max))
	}
	if s.Prefix != nil {
		of := ""
		if s.PrefixOf < s.Requests {
			of = fmt.Sprintf(" (of the first %d requests)", s.PrefixOf)
		}
		facts.add("prefixes", fmt.Sprintf("%.0f %% of prompt tokens begin as a prompt before them%s", 100**s.Prefix, of))
	}
	if err := facts.print(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "TOKENS", "MEAN", "P50", "P95", "P99", "MAX")
	for _, row := range []struct {
		name string
		l    trace.Lengths
	}{{"prompt", s.Prompt}, {"answer", s.Output}} {
		t.row(row.name, short(row.l.Mean), fmt.Sprint(row.l.P50), fmt.Sprint(row.l.P95), fmt.Sprint(row.l.P99), fmt.Sprint(row.l.Max))
	}
	if err := t.print(); err != nil || len(s.Classes) == 0 {
		return err
	}
	fmt.Fprintln(w)
	t = newTable(w, "CLASS", "REQUESTS", "SHARE")
	const most = 20
	for _, c := range s.Classes[:min(len(s.Classes), most)] {
		t.row(c.Class, fmt.Sprint(c.Requests), fmt.Sprintf("%.1f%%", 100*float64(c.Requests)/float64(s.Requests)))
	}
	return t.print()
}
