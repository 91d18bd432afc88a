package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"penstock/bench/child"
)

func main() { child.Command("chaos", run) }

// errMissed is a goal that was missed, exit code 1.
var errMissed = errors.New("a goal was missed")

// bench is one run of the command.
type bench struct {
	parts    []string
	requests int
	length   time.Duration
	seed     uint64
	json     bool
	penstock string
	keep     string
	dir      string
	quiet    bool
	errs     io.Writer

	mu   sync.Mutex // guards told
	told time.Time
}

func parse(args []string, errs io.Writer) (b *bench, err error) {
	b = &bench{errs: errs}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprint(errs, "Requests through a real gateway before engines that fail in every way; exit code 1 where a goal is missed.\n\n"+
			"  go run ./bench/chaos                            200,000 requests, some ten minutes\n"+
			"  go run ./bench/chaos --requests 5000            a short one\n"+
			"  go run ./bench/chaos --parts soak --for 30m     faults at a steady rate, memory by the hour\n\n")
		f.PrintDefaults()
	}
	parts := f.String("parts", "chaos,tls,one,full", "parts, separated by commas: chaos, tls, one (or one0 to one3 alone), full, soak (see the package's documentation)")
	f.IntVar(&b.requests, "requests", 200_000, "requests of all parts but soak together")
	f.DurationVar(&b.length, "for", 30*time.Minute, "length of the soak")
	f.Uint64Var(&b.seed, "seed", 1, "of requests and faults")
	f.BoolVar(&b.json, "json", false, "print one JSON document")
	f.StringVar(&b.penstock, "penstock", "", "binary to use; default: built from this tree")
	f.StringVar(&b.keep, "keep", "", "directory for configurations and logs; default: none is kept")
	f.BoolVar(&b.quiet, "quiet", false, "no progress on stderr")
	if err := child.Parse(f, args); err != nil {
		return nil, err
	}
	b.parts = strings.Split(*parts, ",")
	switch {
	case f.NArg() > 0:
		return nil, child.Wrong("unexpected argument %q", f.Arg(0))
	case b.requests < 1000, b.length <= 0:
		return nil, child.Wrong("--requests must be 1000 or more, --for above 0")
	}
	return b, nil
}

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	b, err := parse(args, errs)
	if err != nil {
		return err
	}
	list, err := b.partsNamed()
	if err != nil {
		return err
	}
	if b.dir = b.keep; b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "penstock-chaos-"); err != nil {
			return err
		}
		defer os.RemoveAll(b.dir)
	} else if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	if b.penstock, err = child.Penstock(ctx, b.penstock, b.dir); err != nil {
		return err
	}
	reports, err := b.all(ctx, list)
	if err != nil {
		return err
	}
	verdict := goals(reports)
	if b.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(struct {
			Go     string    `json:"go"`
			Seed   uint64    `json:"seed"`
			Parts  []*report `json:"parts"`
			Goals  []goal    `json:"goals"`
			System string    `json:"system"`
		}{runtime.Version(), b.seed, reports, verdict, fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())})
	} else {
		print(out, reports, verdict)
	}
	for _, g := range verdict {
		if err == nil && !g.Met && !g.Untold {
			err = errMissed
		}
	}
	return err
}

func (b *bench) all(ctx context.Context, list []*part) (reports []*report, err error) {
	reports = make([]*report, len(list))
	for at := 0; at < len(list); {
		upTo := at + 1
		for upTo < len(list) && list[upTo].group() == list[at].group() {
			upTo++
		}
		b.say("%s: %s\n", list[at].group(), list[at].title)
		faults := make([]error, len(list))
		var wg sync.WaitGroup
		for i := at; i < upTo; i++ {
			wg.Go(func() {
				reports[i], faults[i] = b.run(ctx, list[i], max(2*warmUp, int(list[i].share*float64(b.requests))))
			})
		}
		wg.Wait()
		for i := at; i < upTo; i++ {
			if faults[i] != nil {
				return nil, fmt.Errorf("%s: %w", list[i].name, faults[i])
			}
		}
		at = upTo
	}
	return reports, nil
}

func (b *bench) say(format string, args ...any) {
	if !b.quiet {
		fmt.Fprintf(b.errs, format, args...)
	}
}

const tellEvery = 5 * time.Second

// progress tells now and then how far a part is.
func (b *bench) progress(name string, of int) func(done int) {
	began := time.Now()
	return func(done int) {
		if b.quiet {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if now := time.Now(); now.Sub(b.told) >= tellEvery {
			b.told = now
			b.say("%s: %d of %d requests, %.0f/s\n", name, done, of, float64(done)/max(now.Sub(began).Seconds(), 0.001))
		}
	}
}
