package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// report is a scenario's result.
type report struct {
	Scenario string          `json:"scenario"`
	Title    string          `json:"title"`
	Rate     float64         `json:"offered_per_s"`
	Virtual  []figures       `json:"omniscient_on_virtual_time"` // by seed
	Planned  []figures       `json:"planned_on_virtual_time"`    // by seed
	Right    []engineFacts   `json:"right,omitempty"`            // with all speeds known, by engine
	Columns  []*columnReport `json:"policies"`

	s *scenario
}

type columnReport struct {
	Name string   `json:"policy"`
	Runs []oneRun `json:"runs"` // by seed
}

// oneRun is one policy with one seed.
type oneRun struct {
	Seed uint64 `json:"seed"`
	figures
	CPU     usage         `json:"cpu"`
	Learned []engineFacts `json:"learned,omitempty"` // by engine, what the gateway says at the end
}

// print writes the scenario's table.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s, %.1f requests/s offered, %d seeds\n\n", strings.ToUpper(r.Scenario), r.Title, r.Rate, len(r.Virtual))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tx omniscient\tby seed\tmean s\tp99 s\tTTFT s\tp99 s\tTBOT ms\tgoodput\tgood/s\tprefix hit\tshare of engines\tfaults\tgateway CPU\tmachine\tload late ms\t")
	for _, c := range r.Columns {
		r.row(t, c.Name, c.Runs, r.best())
	}
	r.row(t, "omniscient, virtual time", runsOf(r.Virtual), r.Virtual)
	r.row(t, "planned, virtual time", runsOf(r.Planned), r.Virtual)
	_ = t.Flush()
	r.printLearned(w)
	if late := r.disturbed(); late != "" {
		fmt.Fprintf(w, "\n%s\n", late)
	}
}

// printLearned tells what the gateways say of the engines, beside what is right.
func (r *report) printLearned(w io.Writer) {
	list := func(facts []engineFacts, of func(*engineFacts) float64, format string) string {
		var b []string
		for i := range facts {
			b = append(b, fmt.Sprintf(format, of(&facts[i])))
		}
		return strings.Join(b, " ")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nlearned\tseed\tms alone\tcapacity/s\tweight\tshare of turns\t")
	row := func(name, seed string, facts []engineFacts, share map[string]float64) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", name, seed, list(facts, func(e *engineFacts) float64 { return e.Zero }, "%.0f"),
			list(facts, func(e *engineFacts) float64 { return e.Capacity }, "%.1f"), list(facts, func(e *engineFacts) float64 { return e.Weight }, "%.3f"), shares(r.s, share))
	}
	told := false
	for _, c := range r.Columns {
		for i := range c.Runs {
			if o := &c.Runs[i]; o.Learned != nil {
				told = true
				row(c.Name, fmt.Sprint(o.Seed), o.Learned, o.Share)
			}
		}
	}
	if !told || len(r.Planned) == 0 {
		return
	}
	row("right", "", r.Right, r.Planned[0].Share)
	_ = t.Flush()
}

func runsOf(list []figures) (runs []oneRun) {
	for _, f := range list {
		runs = append(runs, oneRun{figures: f})
	}
	return runs
}

// row tells of runs, by seed, and how their means compare with the best ones.
func (r *report) row(w io.Writer, name string, runs []oneRun, best []figures) {
	var ratios []float64
	avg := func(of func(*oneRun) float64) float64 {
		x := make([]float64, len(runs))
		for i := range runs {
			x[i] = of(&runs[i])
		}
		return mean(x)
	}
	var bySeed []string
	for i := range runs {
		ratios = append(ratios, runs[i].Mean/best[i].Mean)
		bySeed = append(bySeed, fmt.Sprintf("%.2f", ratios[i]))
	}
	faults := make(map[string]int)
	share := make(map[string]float64)
	for i := range runs {
		for k, n := range runs[i].Faults {
			faults[k] += n
		}
		for e, x := range runs[i].Share {
			share[e] += x / float64(len(runs))
		}
	}
	var told []string
	for _, k := range slices.Sorted(maps.Keys(faults)) {
		told = append(told, fmt.Sprintf("%d %s", faults[k], k))
	}
	fmt.Fprintf(w, "%s\t%.3f\t%s\t%.3f\t%.2f\t%.3f\t%.2f\t%.1f\t%.1f %%\t%.1f\t%.2f\t%s\t%s\t%.2f\t%.0f %%\t%.0f\t\n", name,
		mean(ratios), strings.Join(bySeed, " "), avg(func(o *oneRun) float64 { return o.Mean }), avg(func(o *oneRun) float64 { return o.P99 }),
		avg(func(o *oneRun) float64 { return o.First }), avg(func(o *oneRun) float64 { return o.FirstP99 }), avg(func(o *oneRun) float64 { return 1000 * o.Between }),
		avg(func(o *oneRun) float64 { return 100 * o.Good }), avg(func(o *oneRun) float64 { return o.GoodRate }), avg(func(o *oneRun) float64 { return o.Hit }),
		shares(r.s, share), strings.Join(told, ", "), avg(func(o *oneRun) float64 { return o.CPU.Gateway }),
		avg(func(o *oneRun) float64 { return 100 * o.CPU.Machine }), avg(func(o *oneRun) float64 { return 1000 * o.Late }))
}

// best is the omniscient placement by seed: of the same run where it took
// part, else on virtual time.
func (r *report) best() (list []figures) {
	for _, c := range r.Columns {
		if c.Name == "omniscient" {
			for i := range c.Runs {
				list = append(list, c.Runs[i].figures)
			}
			return list
		}
	}
	return r.Virtual
}

// disturbed says where the machine could not keep up: where clients were late,
// or where the omniscient placement did worse than it does on virtual time.
func (r *report) disturbed() string {
	var bad []string
	for _, c := range r.Columns {
		for i := range c.Runs {
			o := &c.Runs[i]
			slow := c.Name == "omniscient" && o.Mean > 1.1*r.Virtual[i].Mean
			if slow || o.Late > 0.05 {
				bad = append(bad, fmt.Sprintf("%s, seed %d (machine %.0f %% busy, load %.0f ms late)", c.Name, o.Seed, 100*o.CPU.Machine, 1000*o.Late))
			}
		}
	}
	if bad == nil {
		return ""
	}
	return "the machine did not keep up in " + strings.Join(bad, "; ") + ": see --stretch"
}

// shares are the engines' parts of the turns, in their order.
func shares(s *scenario, share map[string]float64) string {
	var b []string
	for i := range s.speeds {
		b = append(b, fmt.Sprintf("%.3f", share[s.engineName(i)]))
	}
	return strings.Join(b, " ")
}
