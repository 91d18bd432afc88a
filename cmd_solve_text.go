package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/balancer/problem"
)

// print is the result for people: how good it is, where each row goes, and what
// each engine gets and costs.
func (r solveReport) print(w io.Writer, p *problem.Problem) error {
	facts := newFacts(w)
	facts.add("problem", p.Name)
	facts.add("status", fmt.Sprintf("%s: gap %.2g (objective %.8g ms/s, bound %.8g)", r.Status, r.Gap, r.Objective, r.Bound))
	facts.add("mean latency", fmt.Sprintf("%.7g ms over %.7g requests/s served%s", r.MeanLatency, r.served, r.shedText(p)))
	took := time.Duration(r.Seconds * float64(time.Second))
	facts.add("method", fmt.Sprintf("%s, %d iterations, %s", r.Method, r.Iterations, roundedTime(took)))
	if err := facts.print(); err != nil {
		return err
	}
	if err := r.printWeights(w, p); err != nil {
		return err
	}
	return r.printLoads(w, p)
}

func roundedTime(d time.Duration) time.Duration {
	return d.Round(max(time.Microsecond, d/1000))
}

func (r solveReport) shedText(p *problem.Problem) string {
	shed := -r.served
	for _, d := range p.Demand {
		shed += d.Rate
	}
	if len(r.Shed) == 0 || shed <= 0 {
		return ", nothing shed"
	}
	return fmt.Sprintf(", %.4g/s (%.3g%%) shed", shed, 100*shed/(shed+r.served))
}

// leastShown is the weight below which a line is not worth a place: --json has
// all of them.
const leastShown = 0.0005

func (r solveReport) printWeights(w io.Writer, p *problem.Problem) error {
	if len(p.Demand) == 0 {
		_, err := fmt.Fprintln(w, "\nno demand")
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "SOURCE", "CLASS", "RATE", "ENGINE", "WEIGHT", "OF DEMAND", "FLOW", "ONE MORE COSTS")
	hidden := 0
	weights, shed := r.Weights, r.Shed
	for i, row := range r.Marginal {
		mine := func(source, class string) bool { return source == row.Source && class == row.Class }
		var lines []solvedShare
		for len(weights) > 0 && mine(weights[0].Source, weights[0].Class) {
			lines = append(lines, weights[0])
			weights = weights[1:]
		}
		if len(shed) > 0 && mine(shed[0].Source, shed[0].Class) {
			lines = append(lines, solvedShare{Engine: "(shed)", Weight: shed[0].Fraction, Flow: shed[0].Fraction * p.Demand[i].Rate})
			shed = shed[1:]
		}
		slices.SortStableFunc(lines, func(a, b solvedShare) int { return cmp.Compare(b.Weight, a.Weight) })
		for k, line := range lines {
			if k > 0 && line.Weight < leastShown {
				hidden++
				continue
			}
			source, class, rate, cost := `"`, `"`, `"`, `"`
			if k == 0 {
				source, class, rate = row.Source, row.Class, short(p.Demand[i].Rate)+"/s"
				cost = short(row.Value) + " ms"
			}
			t.row(source, class, rate, line.Engine, share(&line.Weight), bar(line.Weight), short(line.Flow)+"/s", cost)
		}
	}
	if err := t.print(); err != nil || hidden == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "%d weights below %.2g%% are not shown; --json has them\n", hidden, 100*leastShown)
	return err
}

func (r solveReport) printLoads(w io.Writer, p *problem.Problem) error {
	if len(r.Loads) == 0 {
		_, err := fmt.Fprintln(w, "\nno engines")
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "ENGINE", "CLUSTER", "LOAD", "CAPACITY", "UTILISATION", "OF CAPACITY", "LATENCY", "PRICE", "CAPACITY PRICE")
	for j, l := range r.Loads {
		e := &p.Engines[j]
		latency := short(e.Latency.Zero()+e.Latency.Congestion(l.Load)) + " ms"
		capacityPrice := ""
		if l.CapacityPrice > 0 {
			capacityPrice = short(l.CapacityPrice) + " ms"
		}
		t.row(l.Engine, e.Cluster, short(l.Load)+"/s", short(e.Capacity)+"/s", share(&l.Utilisation), bar(l.Utilisation),
			latency, short(l.Price)+" ms", capacityPrice)
	}
	return t.print()
}

// bar shows a part of a whole; a part that is there at all has at least a dot.
func bar(part float64) string {
	const width = 20
	return cmp.Or(strings.Repeat("#", min(max(int(part*width+0.5), 0), width)), ".")
}

// short is a number to five digits.
func short(v float64) string {
	text := strconv.FormatFloat(v, 'g', 5, 64)
	if at := strings.IndexByte(text, 'e'); at >= 0 {
		if exponent, err := strconv.Atoi(text[at+1:]); err == nil && exponent >= 0 && exponent < 12 {
			return strconv.FormatFloat(v, 'f', 0, 64)
		}
	}
	return text
}
