package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/engine/enginetest"
)

// convergeResult is whether a fleet plans what one solver with the whole problem
// does, and whether everybody follows.
type convergeResult struct {
	Problems  int      `json:"problems"`  // of the leader that were solved again
	Weights   float64  `json:"weights"`   // the greatest difference of a weight between the fleet's solution and penstock solve's
	Gap       float64  `json:"gap"`       // the greatest, computed from the problem's definition
	Damped    float64  `json:"damped"`    // the greatest difference of a weight in use from the solution
	Agreement int      `json:"agreement"` // times that all gateways were asked and had one plan
	Plans     []string `json:"plans"`     // differences between gateways' plans, or from tables to plans
	Last      string   `json:"last"`      // the row of the source that is asked for most, as it was solved last
	Demand    float64  `json:"demand"`    // the problem's demand in all, as a part of what clients asked for
	Sources   int      `json:"sources"`   // with demand in the problem
	Requests  uint64   `json:"requests"`
	Errors    uint64   `json:"errors"`
}

func (r *convergeResult) print(w io.Writer) {
	fmt.Fprintf(w, "%d problems of the leader, with the demand of %d sources (%.2f of what clients asked for)\n", r.Problems, r.Sources, r.Demand)
	fmt.Fprintf(w, "penstock solve, given the problem: no weight differs by more than %.1e; gap by the definition %.1e\n", r.Weights, r.Gap)
	fmt.Fprintf(w, "the last one: %s\n", r.Last)
	fmt.Fprintf(w, "weights in use, damped, are at most %.3f from the solution\n", r.Damped)
	fmt.Fprintf(w, "all gateways had the same plan, and tables that follow it, %d of %d times\n", r.Agreement, r.Agreement+len(r.Plans))
	fmt.Fprintf(w, "%d requests, %d errors\n", r.Requests, r.Errors)
}

const sameGoal = 1e-6

func (r *convergeResult) missed() (all []string) {
	if r.Problems == 0 || r.Sources < 3 {
		all = append(all, fmt.Sprintf("%d problems with the demand of %d sources", r.Problems, r.Sources))
	}
	if !(r.Weights <= sameGoal) {
		all = append(all, fmt.Sprintf("a weight differs by %.1e", r.Weights))
	}
	if !(r.Gap <= sameGoal) {
		all = append(all, fmt.Sprintf("gap %.1e", r.Gap))
	}
	if r.Agreement == 0 {
		all = append(all, "gateways never had one plan")
	}
	all = append(all, r.Plans...)
	if r.Errors > 0 {
		all = append(all, fmt.Sprintf("%d errors", r.Errors))
	}
	return all
}

// convergeLayout is three clusters at a distance, one of which is asked for more
// than its engine carries.
func convergeLayout() layout {
	trips := [3][3]time.Duration{{0, 40, 120}, {40, 0, 80}, {120, 80, 0}}
	return layout{sources: []string{"c0", "c1", "c2"}, trip: func(i, j int) time.Duration { return trips[i][j] * time.Millisecond },
		profile: "profile = { base_ms = 60, slope_ms = 60, limit = 24 }\ncapacity = 22",
		engine:  enginetest.Config{Slots: 8, TTFT: 30 * time.Millisecond, TBOT: 8 * time.Millisecond}}
}

// convergeRates are requests/s of each source.
var convergeRates = []float64{6, 26, 9}

func runConverge(ctx context.Context, o options, errs io.Writer) (result, error) {
	w, err := newWorld(ctx, o, convergeLayout())
	if err != nil {
		return nil, err
	}
	defer w.close()
	r := &convergeResult{Plans: []string{}}
	for _, g := range w.gateways {
		if err := g.awaitReady(ctx); err != nil {
			return nil, err
		}
	}
	life, stop := context.WithCancel(ctx)
	var served, failed atomic.Uint64
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i, g := range w.gateways {
		clients.Go(func() { askAt(life, g, convergeRates[i], &served, &failed, errs) })
	}
	fmt.Fprintf(errs, "fleet: %s until demand is known\n", o.length/2)
	sleep(ctx, o.length/2)
	from, begin := served.Load()+failed.Load(), time.Now()
	for end := begin.Add(o.length); time.Now().Before(end) && sleep(ctx, time.Second); {
		asked := float64(served.Load()+failed.Load()-from) / time.Since(begin).Seconds()
		if err := w.compare(ctx, r, asked); err != nil {
			return nil, err
		}
		w.agree(r)
	}
	r.Requests, r.Errors = served.Load(), failed.Load()
	return r, ctx.Err()
}

// askAt asks a gateway so many times a second, evenly, until ctx ends.
func askAt(ctx context.Context, g *gateway, rate float64, served, failed *atomic.Uint64, errs io.Writer) {
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked.Go(func() {
			body := fmt.Sprintf(`{"model":"m","max_tokens":12,"messages":[{"role":"user","content":"question %d of %s"}]}`, n, g.name)
			if _, err := g.askAs(body, ""); err == nil {
				served.Add(1)
			} else if failed.Add(1) <= 10 {
				fmt.Fprintf(errs, "fleet: a client of %s: %v\n", g.name, err)
			}
		})
	}
}

// compare takes the leader's problem and solution, solves the problem again with
// the command, and computes the gap from the definition.
func (w *world) compare(ctx context.Context, r *convergeResult, asked float64) error {
	for _, g := range w.gateways {
		var page tablePage
		if g.get("/table", &page) != nil || page.Plan == nil || !page.Plan.Leads || len(page.Proofs) != 1 {
			continue
		}
		s := &page.Proofs[0]
		p, err := readProblem(s.Problem)
		if err != nil {
			return err
		}
		demand, sources := 0.0, make(map[string]bool)
		for _, d := range p.Demand {
			if demand += d.Rate; d.Rate > 0 {
				sources[d.Source] = true
			}
		}
		if len(sources) < len(w.sources) {
			continue // somebody has not been heard of yet
		}
		gap, err := p.gap(s)
		if err != nil {
			return err
		}
		solved, err := w.solve(ctx, s.Problem)
		if err != nil {
			return err
		}
		r.Problems++
		r.Gap, r.Sources, r.Demand = max(r.Gap, math.Abs(gap)), len(sources), demand/asked
		for _, row := range s.Solution {
			again, followed := solved[[2]string{row.Source, row.Class}], false
			// Rows of one class whose requests take different work are told apart.
			class, _, _ := strings.Cut(row.Class, " #")
			r.Weights = max(r.Weights, farthest(row.Weights, again))
			for _, used := range page.Plan.Rows {
				if used.Source == row.Source && used.Class == class {
					r.Damped, followed = max(r.Damped, farthest(row.Weights, used.Weights)), true
				}
			}
			if !followed || len(again) == 0 {
				return fmt.Errorf("the row %s %s is in %d weights of penstock solve; in the plan: %t", row.Source, row.Class, len(again), followed)
			}
			if row.Source == "c1" {
				r.Last = fmt.Sprintf("%s of %s: %v in the fleet, %v by penstock solve", row.Class, row.Source, row.Weights, again)
			}
		}
		return nil
	}
	return nil
}

// solve is what the command makes of a problem, by source and class.
func (w *world) solve(ctx context.Context, problem []byte) (map[[2]string]map[string]float64, error) {
	path := filepath.Join(w.dir, "problem.json")
	if err := os.WriteFile(path, problem, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, w.penstock, "solve", "--problem", path, "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("penstock solve: %w", err)
	}
	var page struct {
		Weights []struct {
			Source, Class, Engine string
			Weight                float64
		}
	}
	if err := json.Unmarshal(out, &page); err != nil {
		return nil, err
	}
	rows := make(map[[2]string]map[string]float64)
	for _, v := range page.Weights {
		k := [2]string{v.Source, v.Class}
		if rows[k] == nil {
			rows[k] = make(map[string]float64)
		}
		rows[k][v.Engine] = v.Weight
	}
	return rows, nil
}

// farthest is the greatest difference between two rows of weights.
func farthest(a, b map[string]float64) (far float64) {
	for name, v := range a {
		far = max(far, math.Abs(v-b[name]))
	}
	for name, v := range b {
		far = max(far, math.Abs(v-a[name]))
	}
	return far
}

// agree compares the plans that the gateways have, and their tables with them. It
// counts only where all were asked within one plan.
func (w *world) agree(r *convergeResult) {
	pages := make([]tablePage, len(w.gateways))
	for i, g := range w.gateways {
		if g.get("/table", &pages[i]) != nil || pages[i].Plan == nil || pages[i].Plan.Epoch == 0 {
			return
		}
	}
	first := pages[0].Plan
	for _, p := range pages[1:] {
		if p.Plan.Epoch != first.Epoch || p.Plan.Version != first.Version {
			return
		}
	}
	for i, p := range pages {
		if !sameRows(p.Plan.Rows, first.Rows) {
			r.Plans = append(r.Plans, fmt.Sprintf("%s has another plan %d/%d", w.gateways[i].name, first.Epoch, first.Version))
			return
		}
		used := make(map[string]map[string]float64)
		for _, v := range p.Weights {
			if used[v.Class] == nil {
				used[v.Class] = make(map[string]float64)
			}
			used[v.Class][v.Engine] = v.Weight
		}
		for _, row := range p.Plan.Rows {
			// An engine without weight has the least there is, for when all others are full.
			if row.Source == w.gateways[i].source && farthest(row.Weights, used[row.Class]) > 1e-8 {
				r.Plans = append(r.Plans, fmt.Sprintf("%s does not follow plan %d/%d: %v, not %v", w.gateways[i].name, first.Epoch, first.Version, used[row.Class], row.Weights))
				return
			}
		}
	}
	r.Agreement++
}

func sameRows(a, b []planRow) bool {
	return slices.EqualFunc(a, b, func(x, y planRow) bool {
		return x.Source == y.Source && x.Class == y.Class && maps.Equal(x.Weights, y.Weights) && x.Guessed == y.Guessed
	})
}
