package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/bench/child"
)

func main() { child.Command("live", run) }

// options are what the command line says.
type options struct {
	scenarios string
	columns   string
	session   string
	seeds     int
	first     uint64
	warm      time.Duration
	measure   time.Duration
	stretch   float64
	json      bool
	penstock  string
	keep      string
	extra     string
	quiet     bool
}

func parse(args []string, errs io.Writer) (o options, err error) {
	f := flag.NewFlagSet("live", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&o.scenarios, "scenario", "all", "scenarios, separated by commas: "+scenarioNames())
	f.StringVar(&o.columns, "policies", "penstock,least-request,bounded-hash,omniscient", "what is compared: penstock (nothing configured), any routing.policy, omniscient; direct-least-request needs no gateway")
	f.StringVar(&o.session, "session", "both", "clients send X-Session-Id: on, off or both")
	f.IntVar(&o.seeds, "seeds", 3, "runs of each, every one with conversations of its own")
	f.Uint64Var(&o.first, "first-seed", 1, "the first of them")
	f.DurationVar(&o.warm, "warm", time.Minute, "time to learn and to fill caches")
	f.DurationVar(&o.measure, "measure", 40*time.Second, "time measured")
	f.Float64Var(&o.stretch, "stretch", 1, "make engines and load this much slower, for a machine that cannot keep up; results are told as if it were 1")
	f.BoolVar(&o.json, "json", false, "print one JSON document")
	f.StringVar(&o.penstock, "penstock", "", "binary to use; default: built from this tree")
	f.StringVar(&o.keep, "keep", "", "directory for configurations and logs; default: none is kept")
	f.StringVar(&o.extra, "config", "", "lines to add to the gateway's configuration")
	f.BoolVar(&o.quiet, "quiet", false, "no progress on stderr")
	if err := child.Parse(f, args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, child.Wrong("unexpected argument %q", f.Arg(0))
	case o.seeds < 1, o.stretch <= 0, o.measure <= 0, o.warm < 0:
		return o, child.Wrong("--seeds, --stretch and --measure must be above 0, --warm not below it")
	case o.session != "on" && o.session != "off" && o.session != "both":
		return o, child.Wrong("--session %q: want on, off or both", o.session)
	}
	return o, nil
}

// column is one thing that is compared.
type column struct {
	name      string
	gateway   bool
	policy    string // routing.policy; "" = not configured
	session   bool
	placement placement // without a gateway, made anew for each run
}

func (o *options) columnsOf() (columns []column) {
	for name := range strings.SplitSeq(o.columns, ",") {
		switch name {
		case "omniscient", "direct-least-request":
			columns = append(columns, column{name: name})
			continue
		}
		c := column{name: name, gateway: true}
		if name != "penstock" {
			c.policy = name
		}
		if o.session != "on" {
			columns = append(columns, c)
		}
		if o.session != "off" {
			c.name, c.session = name+" +s", true
			columns = append(columns, c)
		}
	}
	return columns
}

// placementOf makes the placement of a column without a gateway.
func placementOf(c *column, s *scenario, stretch float64) placement {
	if c.name == "omniscient" {
		return newOmniscient(s, stretch)
	}
	return newLeastRequest(len(s.speeds))
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	list, err := scenariosNamed(o.scenarios)
	if err != nil {
		return child.Wrong("%w", err)
	}
	progress := errs
	if o.quiet {
		progress = io.Discard
	}
	dir := o.keep
	if dir == "" {
		if dir, err = os.MkdirTemp("", "penstock-live-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if o.penstock, err = child.Penstock(ctx, o.penstock, dir); err != nil {
		return err
	}
	b := &bench{options: o, dir: dir, progress: progress}
	reports := []*report{}
	for i := range list {
		r, err := b.compare(ctx, &list[i])
		if err != nil {
			return err
		}
		reports = append(reports, r)
		if !o.json {
			r.print(out)
		}
	}
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(reports)
	}
	return nil
}

// bench plays scenarios.
type bench struct {
	options
	dir      string
	progress io.Writer
}

// compare plays a scenario for every column and seed: seed by seed, the
// columns of each in another order.
func (b *bench) compare(ctx context.Context, s *scenario) (*report, error) {
	columns := b.columnsOf()
	r := &report{Scenario: s.name, Title: s.title, Rate: s.rate(), s: s}
	for _, c := range columns {
		r.Columns = append(r.Columns, &columnReport{Name: c.name})
	}
	left := time.Duration(len(columns)*b.seeds) * (b.warm + b.measure + tail + 5*time.Second)
	fmt.Fprintf(b.progress, "%s: %s, %.1f requests/s; %d runs, about %s\n", s.name, s.title, s.rate(), len(columns)*b.seeds, left.Round(time.Minute))
	for k := range b.seeds {
		seed := b.first + uint64(k)
		convs := talks(s, seed, b.stretch, b.warm, b.measure)
		if err := r.foresee(b, convs, seed); err != nil {
			return nil, err
		}
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(columns)) {
			one, err := b.once(ctx, s, columns[i], seed, convs)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, seed %d: %w", s.name, columns[i].name, seed, err)
			}
			r.Columns[i].Runs = append(r.Columns[i].Runs, *one)
			fmt.Fprintf(b.progress, "  seed %d  %-20s mean %.3f s (omniscient on virtual time %.3f)  good %.1f %%  %.1f good/s  share %s  cpu %s\n",
				seed, columns[i].name, one.Mean, r.Virtual[k].Mean, 100*one.Good, one.GoodRate, shares(s, one.Share), one.CPU)
		}
	}
	return r, nil
}

// foresee plays a seed on virtual time. A load that no plan can carry has no
// planned row.
func (r *report) foresee(b *bench, convs []conversation, seed uint64) error {
	s := r.s
	r.Virtual = append(r.Virtual, sum(virtually(s, convs, newOmniscient(s, b.stretch), b.stretch, b.warm, b.measure), b.stretch, b.measure))
	// Plans and what they remember count in seconds as they are.
	plain := talks(s, seed, 1, unstretched(b.warm, b.stretch), unstretched(b.measure, b.stretch))
	p, err := newPlanned(s, plain)
	if err != nil {
		return err
	}
	r.Right = p.engines
	r.Planned = append(r.Planned, sum(virtually(s, plain, p, 1, unstretched(b.warm, b.stretch), unstretched(b.measure, b.stretch)), 1, unstretched(b.measure, b.stretch)))
	return nil
}

func unstretched(d time.Duration, stretch float64) time.Duration {
	return time.Duration(float64(d) / stretch)
}

// once is one run: a fresh fleet, the conversations, what was seen.
func (b *bench) once(ctx context.Context, s *scenario, c column, seed uint64, convs []conversation) (*oneRun, error) {
	dir := filepath.Join(b.dir, strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", s.name, c.name, seed), " +", "+"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := newFleet(ctx, s, &c, &b.options, dir)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if !c.gateway {
		c.placement = placementOf(&c, s, b.stretch)
	}
	p := &play{s: s, column: &c, fleet: f, client: newClient(), seed: seed, stretch: b.stretch, warm: b.warm, end: b.warm + b.measure}
	defer p.client.close()
	m := newMeter(f)
	marks := make([]*time.Timer, 0, 3)
	mark := func(at time.Duration, do func()) { marks = append(marks, time.AfterFunc(at, do)) }
	mark(b.warm, m.begin)
	mark(b.warm+b.measure, m.end)
	if s.kill > 0 {
		mark(b.warm+time.Duration(changeAt*float64(b.measure)), func() {
			f.engines[s.kill-1].Kill()
			if c.placement != nil {
				c.placement.lose(s.kill - 1)
			}
		})
	}
	all := p.run(ctx, convs)
	for _, t := range marks {
		t.Stop()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &oneRun{Seed: seed, figures: sum(all, b.stretch, b.measure), CPU: m.used(), Learned: m.learned()}, nil
}
