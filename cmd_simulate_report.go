package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/bench/experiments"
	"penstock/bench/sim"
	"penstock/protect"
)

// simulateReport is what a simulation came to.
type simulateReport struct {
	trace     string
	requests  int
	flags     *simulateFlags
	load      sim.Load // of the trace as it is
	slo       sim.SLO
	scenarios []simulateScenario
}

// simulateScenario is all policies on one fleet.
type simulateScenario struct {
	name     string
	rate     float64 // requests/s
	capacity float64 // of the fleet, requests/s of the mean request
	engines  int
	runs     [][]*sim.Summary // by policy and seed
}

func (r *simulateReport) print(w io.Writer) error {
	facts := newFacts(w)
	facts.add("trace", r.trace)
	facts.add("requests", fmt.Sprintf("%d, of %.0f prompt tokens (%.0f %% could be cached) and %.0f of answer", r.requests, r.load.Prompt, 100*r.load.Cached/max(r.load.Prompt, 1), r.load.Output))
	facts.add("good", "first token "+within(r.slo.TTFT)+", all "+within(r.slo.E2E)+", between tokens "+within(r.slo.TBOT))
	if r.flags.seeds > 1 {
		facts.add("runs", fmt.Sprintf("%d of each policy, means; with --json penstock report says how sure they are", r.flags.seeds))
	}
	if err := facts.print(); err != nil {
		return err
	}
	for i := range r.scenarios {
		s := &r.scenarios[i]
		fmt.Fprintf(w, "\n%s: %d engines, %.4g requests/s, %.0f %% of the %.4g that they carry\n\n", plainText(s.name), s.engines, s.rate, 100*s.rate/s.capacity, s.capacity)
		if err := s.print(w, &r.scenarios[0]); err != nil {
			return err
		}
	}
	return nil
}

func within(d time.Duration) string {
	if d == 0 {
		return "whenever"
	}
	return "within " + d.String()
}

// print tells what each policy came to, and beside it what that is more or less
// than on the fleet as it is.
func (s *simulateScenario) print(w io.Writer, asItIs *simulateScenario) error {
	t := newTable(w, "POLICY", "TTFT MEAN", "P50", "P95", "P99", "E2E MEAN", "P50", "P95", "P99", "TBOT", "GOOD", "SHED", "FAILED", "KV HIT", "MOVED", "SPILL", "REMOTE", "IMBALANCE", "E2E CHANGE")
	var results []*sim.Summary
	var before []float64
	for i, runs := range s.runs {
		results = append(results, sim.Average(runs))
		before = append(before, sim.Average(asItIs.runs[i]).E2E.Mean)
	}
	best := sim.Best(results)
	for i, r := range results {
		name := r.Policy
		if r.Fill > 0 {
			name += fmt.Sprintf(" (%.1f)", r.Fill)
		}
		if r == best && len(results) > 1 {
			name += " *"
		}
		failed := 0
		for how, n := range r.Failed {
			if !slices.Contains([]string{"queue_full", "queue_wait", "queue_timeout", "planned"}, how) {
				failed += n
			}
		}
		change := ""
		if s != asItIs && before[i] > 0 {
			change = fmt.Sprintf("%+.1f%%", 100*(r.E2E.Mean/before[i]-1))
		}
		t.row(name, seconds(r.TTFT.Mean), seconds(r.TTFT.P50), seconds(r.TTFT.P95), seconds(r.TTFT.P99),
			seconds(r.E2E.Mean), seconds(r.E2E.P50), seconds(r.E2E.P95), seconds(r.E2E.P99), fmt.Sprintf("%.1f ms", r.TBOT.Mean),
			percent(r.Goodput), shedOf(r), percent(float64(failed)/float64(max(r.Requests, 1))), percent(r.KVHit), percent(r.Moved), percent(r.Spill), percent(r.Remote), fmt.Sprintf("%.2f", r.Imbalance), change)
	}
	return t.print()
}

// shedOf is what was refused of each priority that asked for something.
func shedOf(r *sim.Summary) string {
	var parts []string
	for p := protect.Critical; p <= protect.Sheddable; p++ {
		if part, ok := r.Shed[p.String()]; ok {
			parts = append(parts, percent(part))
		}
	}
	return strings.Join(parts, "/")
}

func percent(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}

// priorityOf reads the priority that a trace names; standard where it names none.
func priorityOf(name string) (protect.Priority, error) {
	if name == "" {
		return protect.Standard, nil
	}
	return protect.ParsePriority(name)
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// policyHelp lists the policies.
func policyHelp() string {
	var b strings.Builder
	b.WriteString("  of the gateway:  ")
	n := 0
	for _, name := range sim.PolicyNames() {
		if sim.PolicyTitle(name) == "" {
			if n++; n > 1 {
				b.WriteString(", ")
			}
			b.WriteString(name)
		}
	}
	b.WriteString("\n")
	for _, name := range sim.PolicyNames() {
		if title := sim.PolicyTitle(name); title != "" {
			fmt.Fprintf(&b, "  %-16s %s\n", name, title)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// experimentHelp lists the experiments.
func experimentHelp() string {
	var b strings.Builder
	b.WriteString("\n\nExperiments, each with its aims; one that is missed is exit code 1\n\n")
	names, titles := experiments.Names()
	for i := range names {
		fmt.Fprintf(&b, "  %-4s %s\n", names[i], titles[i])
	}
	return strings.TrimRight(b.String(), "\n")
}

func runExperiment(cmd *cobra.Command, o *simulateFlags) error {
	names, _ := experiments.Names()
	name := strings.ToLower(o.experiment)
	if !slices.Contains(names, name) {
		return usagef("--experiment %q: want one of %s", o.experiment, strings.Join(names, ", "))
	}
	if o.seeds < 1 {
		return usagef("--seeds %d: want 1 or more", o.seeds)
	}
	if name != "a3" && (o.trace != "" || o.fleet != "") {
		return usagef("--trace and --fleet: of the experiments a3 alone takes them")
	}
	s := newScreen(cmd.ErrOrStderr())
	e := experiments.Options{Seeds: o.seeds, JSON: o.asJSON, Short: o.short, Trace: o.trace, Progress: s.progress}
	var err error
	if o.trace != "" {
		if e.Requests, err = readTrace(o.trace, 1, o.until); err != nil {
			return err
		}
	}
	if o.fleet != "" {
		if e.Fleet, err = experimentFleet(o.fleet, e.Requests, cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	return experiments.Run(name, e, cmd.OutOrStdout())
}

// experimentFleet is a fleet file, or a gateway's engines as fast as its
// configuration says for such requests.
func experimentFleet(path string, requests []sim.Request, notes io.Writer) (*sim.Fleet, error) {
	f, err := readFleet(path)
	if err != nil {
		return nil, err
	}
	if f.told != nil && len(requests) == 0 {
		return nil, usagef("--fleet with a configuration wants --trace: how long its steps take follows from the requests")
	}
	load, _, err := f.Mean(&sim.List{Requests: requests})
	if err != nil {
		return nil, err
	}
	f.complete(load, notes)
	return f.Fleet, nil
}
