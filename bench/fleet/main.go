package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"penstock/bench/child"
)

// options are what the command line says.
type options struct {
	penstock string
	servers  int
	rounds   int
	events   int
	seed     uint64
	gone     time.Duration
	gateways int
	whole    int
	length   time.Duration
	json     bool
}

// result is what a run found. It is told as JSON or by print.
type result interface {
	print(w io.Writer)
	missed() []string // goals that it does not meet
}

var runs = []struct {
	name, title string
	run         func(context.Context, options, io.Writer) (result, error)
}{
	{"faults", "random faults between real gateways and their store: who leads, what is taken, what clients see", runFaults},
	{"store-gone", "real gateways without a store: errors and goodput beside those with one", runStoreGone},
	{"converge", "gateways with delays between them plan what one solver with the whole problem does", runConverge},
	{"rolling", "every gateway replaced in turn under load: what clients see", runRolling},
	{"scale", "many members on one server: how late snapshots are, bytes and CPU", runScale},
}

func main() { child.Command("fleet", run) }

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(errs, "usage: fleet RUN [--flags]; fleet RUN --help lists them")
		for _, r := range runs {
			fmt.Fprintf(errs, "  %-11s %s\n", r.name, r.title)
		}
		if len(args) > 0 && strings.Trim(args[0], "-") == "help" {
			return flag.ErrHelp
		}
		return child.Wrong("want the name of a run")
	}
	for _, r := range runs {
		if r.name == args[0] {
			o, err := readOptions(r.name, args[1:], errs)
			if err != nil {
				return err
			}
			res, err := r.run(ctx, o, errs)
			if err != nil {
				return err
			}
			return tell(res, o.json, out)
		}
	}
	return child.Wrong("there is no run %q", args[0])
}

func readOptions(name string, args []string, errs io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("fleet "+name, flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&o.json, "json", false, "print one JSON document")
	if name == "scale" {
		flags.IntVar(&o.gateways, "gateways", 1000, "gateways")
		flags.IntVar(&o.whole, "whole", 0, "how many of them read and follow the tables, as they do on machines of their own; 0: all")
		flags.DurationVar(&o.length, "for", time.Minute, "how long to measure")
	} else {
		flags.StringVar(&o.penstock, "penstock", "", "the `binary` to run; without it, it is built")
		flags.Uint64Var(&o.seed, "seed", 1, "of the faults")
		flags.IntVar(&o.servers, "servers", 1, "NATS servers, 1 or 3")
		flags.IntVar(&o.events, "events", 500, "faults")
		flags.IntVar(&o.rounds, "rounds", 2, "times that every gateway is replaced")
		flags.DurationVar(&o.gone, "gone", 10*time.Minute, "how long there is no store")
		flags.DurationVar(&o.length, "for", 40*time.Second, "how long converge compares")
	}
	if err := child.Parse(flags, args); err != nil {
		return o, err
	}
	if o.whole == 0 {
		o.whole = o.gateways
	}
	if name == "scale" && (o.whole < 2 || o.whole > o.gateways) {
		return o, child.Wrong("want two whole members or more, and no more than gateways")
	}
	if name != "scale" && o.servers != 1 && o.servers != 3 {
		return o, child.Wrong("want one server or three")
	}
	if flags.NArg() > 0 || o.events < 0 || o.gone < 0 || name == "scale" && (o.gateways < 2 || o.length < time.Second) {
		return o, child.Wrong("want numbers above 0, and nothing beside the flags")
	}
	return o, nil
}

func tell(res result, asJSON bool, out io.Writer) error {
	missed := res.missed()
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"result": res, "missed": append([]string{}, missed...)}); err != nil {
			return err
		}
	} else {
		res.print(out)
	}
	if len(missed) > 0 {
		return errors.New("not met: " + strings.Join(missed, "; "))
	}
	return nil
}
