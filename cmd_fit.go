package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"penstock/balancer/profile"
)

const fitHelp = `Fit a latency curve to measurements of an engine: what engine.profile needs.

FILE is CSV; "-" reads standard input. Its first line names the columns: load
(requests/s; also rps or rate) and latency (mean ms from request to last token;
also latency_ms or e2e_ms); others are left alone. Two columns of numbers without
a first line of names are load and latency.

  load,latency
  1,412
  5,530
  10,901

The curve is a + b/(1 - load/limit), by least squares of relative errors with
a, b >= 0 and a limit above the largest load. Measure up to where the engine is
nearly full, at least three loads: below half of its limit nothing tells where
that is. Where the latency is not of that form, points take its place, with times
whose growth never slows. What is printed says which it is, why, and how far it
is from each measurement.

The plot goes into an SVG beside the file. --output writes a profile file:

  [[engine]]
  name = "a1"
  url = "http://127.0.0.1:8001"
  profile = "a1.toml"`

const fitExamples = `  penstock fit a1.csv
  penstock fit a1.csv --output a1.toml
  penstock fit a1.csv --plot /tmp/a1.svg --json
  penstock fit --shipped`

func newFitCommand() *cobra.Command {
	var plot, output string
	var shipped, asJSON bool
	cmd := &cobra.Command{
		Use:     "fit FILE.csv | --shipped",
		Short:   "Fit an engine's latency curve to measurements",
		Long:    fitHelp,
		Example: fitExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if shipped {
				return exactly(0, "")(cmd, args)
			}
			return exactly(1, "a CSV file (or - for standard input)")(cmd, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"csv"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case shipped && (cmd.Flags().Changed("plot") || output != ""):
				return usagef("want either FILE.csv or --shipped")
			case shipped:
				return printShipped(cmd, asJSON)
			case output != "" && filepath.Ext(output) != ".toml":
				return usagef("--output: want a name that ends in .toml, by which engine.profile knows a file")
			case cmd.Flags().Changed("plot") && plot != "" && filepath.Ext(plot) != ".svg":
				return usagef("--plot: want a name that ends in .svg")
			}
			if !cmd.Flags().Changed("plot") && args[0] != "-" {
				plot = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + ".svg"
			}
			return runFit(cmd, args[0], plot, output, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&output, "output", "", "write a profile `FILE.toml` for engine.profile")
	f.StringVar(&plot, "plot", "", "the plot; FILE.svg beside the input where not set, \"\" for none")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	f.BoolVar(&shipped, "shipped", false, "list the profiles that come with Penstock, with their sources")
	_ = cmd.MarkFlagFilename("output", "toml")
	_ = cmd.MarkFlagFilename("plot", "svg")
	return cmd
}

func runFit(cmd *cobra.Command, path, plot, output string, asJSON bool) error {
	pairs, err := readMeasured(cmd.InOrStdin(), path)
	if err != nil {
		return err
	}
	fitted, err := profile.Fit(pairs)
	if err != nil {
		return fmt.Errorf("%s: %w", nameOfInput(path), err)
	}
	r := newFitReport(nameOfInput(path), pairs, fitted)
	if plot != "" {
		switch err := os.WriteFile(plot, []byte(plotFit(r)), 0o644); {
		case err == nil:
			r.Plot = plot
		case cmd.Flags().Changed("plot"):
			return fmt.Errorf("writing the plot: %w", err)
		default: // nobody asked for it there
			fmt.Fprintf(cmd.ErrOrStderr(), "no plot: %v; --plot says where else\n", err)
		}
	}
	if output != "" {
		if err := os.WriteFile(output, []byte(r.file()), 0o644); err != nil {
			return fmt.Errorf("writing the profile: %w", err)
		}
		r.Output = output
	}
	if asJSON {
		return printJSON(cmd, r)
	}
	return r.print(cmd.OutOrStdout())
}

// fitReport is the result of fit; its JSON fields are the outward interface.
type fitReport struct {
	Input   string       `json:"input"`
	Form    string       `json:"form"` // curve or points
	Why     string       `json:"why,omitempty"`
	Latency fitLatency   `json:"latency"` // as in a problem file
	MAPE    float64      `json:"mape"`
	Worst   float64      `json:"worst"`
	Table   []fitCompare `json:"table"`
	Plot    string       `json:"plot,omitempty"`
	Output  string       `json:"output,omitempty"`

	fitted *profile.Fitted
}

type fitLatency struct {
	Base   *float64     `json:"base_ms,omitempty"`
	Slope  *float64     `json:"slope_ms,omitempty"`
	Limit  *float64     `json:"limit,omitempty"`
	Points [][2]float64 `json:"points,omitempty"`
}

type fitCompare struct {
	Load     float64 `json:"load"`
	Measured float64 `json:"measured_ms"`
	Fitted   float64 `json:"fitted_ms"`
	Off      float64 `json:"off"` // fitted/measured - 1
}

func newFitReport(input string, pairs []profile.Measured, f *profile.Fitted) fitReport {
	r := fitReport{Input: input, Form: "curve", Why: f.Why, MAPE: f.MAPE, Worst: f.Worst, fitted: f}
	if len(f.Points) > 0 {
		r.Form = "points"
		for _, p := range f.Points {
			r.Latency.Points = append(r.Latency.Points, [2]float64{p.Load, p.Time})
		}
	} else {
		r.Latency.Base, r.Latency.Slope, r.Latency.Limit = &f.Base, &f.Slope, &f.Limit
	}
	for _, p := range pairs {
		at := f.Zero() + f.Congestion(p.Load)
		r.Table = append(r.Table, fitCompare{p.Load, p.Latency, at, at/p.Latency - 1})
	}
	return r
}

// farOff is an error of a fit beyond which its result says little.
const farOff = 0.2

func (r fitReport) print(w io.Writer) error {
	facts := newFacts(w)
	f := r.fitted
	if r.Form == "curve" {
		facts.add("latency", fmt.Sprintf("%.5g + %.5g/(1 - load/%.5g) ms, load in requests/s", f.Base, f.Slope, f.Limit))
		if f.Slope > 0 {
			facts.add("idle, full", fmt.Sprintf("%.5g ms with nothing else to do; the limit is %.5g requests/s", f.Zero(), f.Limit))
		} else {
			facts.add("limit", fmt.Sprintf("none was seen: the latency is flat up to the largest load, %.5g requests/s", f.Limit))
		}
	} else {
		facts.add("latency", fmt.Sprintf("%d points, linear between them", len(f.Points)))
		facts.add("why points", f.Why)
	}
	facts.add("error", fmt.Sprintf("%.2f %% on average, %.2f %% at worst, over %d measurements", 100*f.MAPE, 100*f.Worst, len(r.Table)))
	if r.MAPE > farOff {
		facts.add("beware", "that is far off: a latency that falls as load grows, or measurements of different engines or requests, have no profile")
	}
	facts.add("plot", r.Plot)
	facts.add("profile file", r.Output)
	if err := facts.print(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "LOAD", "MEASURED", "FITTED", "OFF")
	for _, c := range r.Table {
		t.row(short(c.Load)+"/s", short(c.Measured)+" ms", short(c.Fitted)+" ms", fmt.Sprintf("%+.1f%%", 100*c.Off))
	}
	if err := t.print(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nIn the configuration:\n\n  %s\n", r.inline())
	return err
}

// inline is the profile as a line of an [[engine]].
func (r fitReport) inline() string {
	return "profile = { " + strings.Join(r.settings(), ", ") + " }"
}

func (r fitReport) settings() []string {
	f := r.fitted
	if r.Form == "curve" {
		rounded := func(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }
		return []string{"base_ms = " + rounded(f.Base), "slope_ms = " + rounded(f.Slope), "limit = " + rounded(f.Limit)}
	}
	var pairs []string
	for _, p := range f.Points {
		pairs = append(pairs, "["+exactNumber(p.Load)+", "+exactNumber(p.Time)+"]")
	}
	return []string{"points = [" + strings.Join(pairs, ", ") + "]"}
}

// exactNumber is a number as TOML has it, with all its digits: points rounded
// to fewer might not be convex any more.
func exactNumber(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// file is a profile file.
func (r fitReport) file() string {
	return fmt.Sprintf("# A latency profile for engine.profile, fitted by `penstock fit` to %s:\n# %d measurements, off by %.2f %% on average and %.2f %% at worst.\n%s\n",
		plainText(r.Input), len(r.Table), 100*r.MAPE, 100*r.Worst, strings.Join(r.settings(), "\n"))
}

func printShipped(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, profile.Defaults)
	}
	t := newTable(cmd.OutOrStdout(), "PROFILE", "MODEL", "GPU", "STEP", "PER SEQUENCE", "PER TOKEN", "OFF", "POINTS", "SOURCE", "LICENCE")
	for _, d := range profile.Defaults {
		t.row(d.Name, d.Model, fmt.Sprintf("%d x %s", d.GPUs, d.GPU), short(d.Step)+" ms", short(d.PerSeq)+" ms", short(d.PerToken)+" ms",
			fmt.Sprintf("%.0f%%", 100*d.MAPE), strconv.Itoa(d.Points), cmp.Or(strings.SplitN(d.Source, " ", 2)[0], "-"), d.Licence)
	}
	return t.print()
}

func nameOfInput(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

var errNoPairs = errors.New("no measurements in it: want a line of column names, load and latency, and a line for each load")
