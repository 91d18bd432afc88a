//go:build unix

package solve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"penstock/balancer/problem"
)

// The benchmarks solve at utilisations 0.5, 0.8, 0.95 and 1.2 of random fleets
// of which no two engines are alike, and report CPU time beside the wall time,
// which neighbours on the machine stretch. Goals for one core, cold:
//
//	20 sources x 200 engines in 24 regions           1.5 ms
//	100 x 1,000 in 24 regions                         14 ms
//	100 x 10,000 in 100 regions                       50 ms
//	100 x 1,000, every engine its own round trips     80 ms
//	certificate of 100 x 10,000                        4 ms

var utilisations = []float64{0.5, 0.8, 0.95, 1.2}

// cpu is the CPU time of this process in ms.
func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// meter collects CPU times and what results are like.
type meter struct {
	ms                 []float64
	iterations, pivots int
	gap                float64
}

func (m *meter) time(do func()) {
	start := cpu()
	do()
	m.ms = append(m.ms, cpu()-start)
}

func (m *meter) note(r *Result) {
	m.iterations += r.Iterations
	m.pivots += r.Pivots
	m.gap = max(m.gap, r.Certificate.Gap)
}

func (m *meter) report(b *testing.B) {
	slices.Sort(m.ms)
	n := len(m.ms)
	b.ReportMetric(m.ms[n/2], "cpu-ms-median")
	b.ReportMetric(m.ms[n/10], "cpu-ms-p10")
	b.ReportMetric(m.ms[n*9/10], "cpu-ms-p90")
	b.ReportMetric(float64(m.iterations)/float64(n), "iterations")
	b.ReportMetric(float64(m.pivots)/float64(n), "pivots")
	if m.gap > Enough {
		b.Errorf("gap %.2g", m.gap)
	}
}

func cold(b *testing.B, sh shape) {
	var m meter
	var s Solver
	r := rand.New(rand.NewPCG(1, 2))
	problems := make([]*problem.Problem, 4)
	for k := range problems {
		problems[k] = generate(r, sh)
	}
	s.Solve(problems[0], Auto) // the memory of a solver that has been running
	k := 0
	for b.Loop() {
		m.time(func() { m.note(s.Solve(problems[k%len(problems)], Auto)) })
		k++
	}
	m.report(b)
}

func BenchmarkCold(b *testing.B) {
	for _, c := range []struct {
		name string
		sh   shape
	}{
		{"20x200", shape{sources: 20, engines: 200, clusters: 24}},
		{"100x1000", shape{sources: 100, engines: 1000, clusters: 24}},
		{"100x1000in100", shape{sources: 100, engines: 1000, clusters: 100}},
		{"100x10000in100", shape{sources: 100, engines: 10000, clusters: 100}},
		{"100x1000own", shape{sources: 100, engines: 1000, clusters: 24, jitter: true}},
	} {
		for _, u := range utilisations {
			b.Run(fmt.Sprintf("%s/u=%v", c.name, u), func(b *testing.B) {
				c.sh.utilisation = u
				cold(b, c.sh)
			})
		}
	}
}

// BenchmarkWarm moves every rate by up to 5 % and begins from the last plan, as
// a control cycle does; with and without a price on moving.
func BenchmarkWarm(b *testing.B) {
	for _, c := range []struct {
		name string
		sh   shape
		move float64
	}{
		{"20x200", shape{sources: 20, engines: 200, clusters: 24}, 0},
		{"20x200moves", shape{sources: 20, engines: 200, clusters: 24}, 5},
		{"100x1000", shape{sources: 100, engines: 1000, clusters: 24}, 0},
		{"100x1000moves", shape{sources: 100, engines: 1000, clusters: 24}, 5},
		{"100x10000in100", shape{sources: 100, engines: 10000, clusters: 100}, 0},
	} {
		for _, u := range utilisations {
			b.Run(fmt.Sprintf("%s/u=%v", c.name, u), func(b *testing.B) {
				c.sh.utilisation = u
				warm(b, c.sh, c.move)
			})
		}
	}
}

func warm(b *testing.B, sh shape, move float64) {
	var m meter
	var s Solver
	r := rand.New(rand.NewPCG(1, 2))
	p := generate(r, sh)
	rates := make([]float64, len(p.Demand))
	for c := range p.Demand {
		rates[c] = p.Demand[c].Rate
	}
	plan := s.Solve(p, Auto).Plan
	for b.Loop() {
		p.MovePrice, p.Previous = move, lastTable(p, plan)
		for c := range p.Demand {
			p.Demand[c].Rate = rates[c] * (0.95 + 0.1*r.Float64())
		}
		m.time(func() {
			result := s.Solve(p, Auto)
			plan = result.Plan
			m.note(result)
		})
	}
	m.report(b)
}

// lastTable is a plan as the last table of the next problem.
func lastTable(p *problem.Problem, plan *problem.Plan) []problem.Previous {
	var rows []problem.Previous
	for c, d := range p.Demand {
		rows = append(rows, problem.Previous{Source: d.Source, Class: d.Class, Weights: slices.Clone(plan.Row(c))})
	}
	return rows
}

// BenchmarkGrowth is 20 sources and ever more engines in 24 regions, and at the
// end 200 sources and 20,000 engines in 200.
func BenchmarkGrowth(b *testing.B) {
	for _, sh := range []shape{
		{sources: 20, engines: 10, clusters: 10}, {sources: 20, engines: 100, clusters: 24},
		{sources: 20, engines: 1000, clusters: 24}, {sources: 20, engines: 10000, clusters: 24},
		{sources: 20, engines: 20000, clusters: 24}, {sources: 200, engines: 20000, clusters: 200},
	} {
		sh.utilisation = 0.8
		b.Run(fmt.Sprintf("%dx%d", sh.sources, sh.engines), func(b *testing.B) { cold(b, sh) })
	}
}

// BenchmarkCertificate proves a plan of 100 x 10,000: a million arcs.
func BenchmarkCertificate(b *testing.B) {
	var m meter
	var s Solver
	p := generate(rand.New(rand.NewPCG(1, 2)), shape{sources: 100, engines: 10000, clusters: 100, utilisation: 0.8})
	plan := s.Solve(p, Auto).Plan
	var k problem.Certifier
	for b.Loop() {
		m.time(func() { m.gap = k.Certify(p, plan).Gap })
	}
	m.report(b)
}
