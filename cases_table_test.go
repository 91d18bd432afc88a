package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// provenTable is what GET /table gives for anybody to prove its weights with.
type provenTable struct {
	Version     uint64 `json:"version"`
	Policy      string `json:"policy"`
	Certificate *struct{ Objective, Bound, Gap float64 }
	Weights     []struct {
		Source, Class, Engine string
		Weight                float64
	}
	Proofs []struct {
		Problem struct {
			Engines []struct {
				Name, Cluster string
				Capacity      float64
				Latency       struct {
					Base   float64      `json:"base_ms"`
					Slope  float64      `json:"slope_ms"`
					Limit  float64      `json:"limit"`
					Points [][2]float64 `json:"points"`
				}
			}
			Classes []struct {
				Name, Priority string
				Distance       float64 `json:"distance_weight"`
				Work           float64
				Engines        *[]string
			}
			Demand []struct {
				Source, Class string
				Rate          float64
			}
			RTT       map[string]map[string]float64 `json:"rtt_ms"`
			Shed      map[string]float64            `json:"shed_price_ms"`
			Curvature float64                       `json:"shed_curvature"`
			Previous  []struct {
				Source, Class string
				Weights       map[string]float64
			}
			Move float64 `json:"move_price_ms"`
		}
		Prices   map[string]float64 `json:"prices_ms"`
		Solution []struct {
			Source, Class string
			Weights       map[string]float64
			Shed          float64
		}
		Certificate struct{ Objective, Bound, Gap float64 }
	}
}

// least is the minimum of a convex function on [low, high].
func least(low, high float64, of func(float64) float64) float64 {
	for range 200 {
		a, b := low+(high-low)*0.382, low+(high-low)*0.618
		if of(a) < of(b) {
			high = b
		} else {
			low = a
		}
	}
	return min(of(low), of(high), of((low+high)/2))
}

// recompute is the objective and the bound of a proof, from the problem's text
// alone: nothing of the solver or of its package is in it.
func (p *provenTable) recompute(k int) (objective, bound float64) {
	proof := &p.Proofs[k]
	pr := &proof.Problem
	latency := func(j int, y float64) float64 {
		l := &pr.Engines[j].Latency
		if len(l.Points) == 0 {
			return l.Base + l.Slope/(1-y/l.Limit)
		}
		for i := 1; i < len(l.Points); i++ {
			if a, b := l.Points[i-1], l.Points[i]; y <= b[0] {
				return a[1] + (b[1]-a[1])*(y-a[0])/(b[0]-a[0])
			}
		}
		return math.Inf(1)
	}
	loads := make([]float64, len(pr.Engines))
	for j, e := range pr.Engines {
		if e.Capacity > 0 {
			price := proof.Prices[e.Name]
			bound += least(0, e.Capacity, func(y float64) float64 { return y*(latency(j, y)-latency(j, 0)) - price*y })
		}
	}
	for c, d := range pr.Demand {
		solution := proof.Solution[c]
		for _, class := range pr.Classes {
			if class.Name != d.Class {
				continue
			}
			var kept map[string]float64
			for _, was := range pr.Previous {
				if was.Source == d.Source && was.Class == d.Class {
					kept = was.Weights
				}
			}
			pi, move := class.Work*pr.Shed[class.Priority], pr.Move
			shedding := func(z float64) float64 { return d.Rate * pi * (z + pr.Curvature*z*z/2) }
			objective += shedding(solution.Shed)
			cost := map[string]float64{}
			for j, e := range pr.Engines {
				if class.Engines != nil && !strings.Contains(" "+strings.Join(*class.Engines, " ")+" ", " "+e.Name+" ") {
					continue
				}
				way, own := pr.RTT[d.Source][e.Name]
				if !own {
					way = pr.RTT[d.Source][e.Cluster]
				}
				flow := d.Rate * solution.Weights[e.Name]
				loads[j] += class.Work * flow
				if flow > 0 {
					objective += flow * (class.Distance*way + class.Work*latency(j, 0))
				}
				if kept != nil {
					objective += move * max(0, flow-d.Rate*kept[e.Name])
				}
				cost[e.Name] = class.Distance*way + class.Work*(latency(j, 0)+proof.Prices[e.Name])
			}
			bound += least(0, 1, func(z float64) float64 { return shedding(z) + serve(d.Rate*(1-z), d.Rate, cost, kept, move) })
		}
	}
	for j, y := range loads {
		if y > 0 {
			objective += y * (latency(j, y) - latency(j, 0))
		}
	}
	return objective, bound
}

// serve is the least cost of a flow over engines: what stays where it was costs
// the engine alone, the rest the price of a move on top.
func serve(flow, rate float64, cost, kept map[string]float64, move float64) (total float64) {
	cheapest := math.Inf(1)
	for _, c := range cost {
		cheapest = min(cheapest, c)
	}
	if kept == nil {
		return flow * cheapest
	}
	used := map[string]bool{}
	for flow > 0 {
		best := ""
		for name, c := range cost {
			if kept[name] > 0 && !used[name] && c < cheapest+move && (best == "" || c < cost[best]) {
				best = name
			}
		}
		if best == "" {
			return total + flow*(cheapest+move)
		}
		used[best] = true
		part := min(flow, rate*kept[best])
		total += part * cost[best]
		flow -= part
	}
	return total
}

// Every table of the optimal policy can be proved by whoever reads it.
func TestTheTableProvesItself(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	g := startGateway(t, "[routing]\npolicy = \"optimal\"\nperiod = \"200ms\"\n"+
		fleetTOML(engines, "capacity = 400", "capacity = 200", "capacity = 100\ncluster = \"far\""), nths(3)...)
	c := client(t)
	var table provenTable
	proved := 0
	for end := time.Now().Add(time.Minute); proved < 3 && time.Now().Before(end); {
		for i := range 20 {
			if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), false)); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		version := table.Version
		table = provenTable{}
		if a := g.ask("GET", "/table"); a.status != 200 || json.Unmarshal([]byte(a.body), &table) != nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if len(table.Proofs) == 0 || table.Version == version && proved > 0 && proved%2 == 1 {
			time.Sleep(50 * time.Millisecond)
		}
		objective, bound := 0.0, 0.0
		for k := range table.Proofs {
			o, b := table.recompute(k)
			objective, bound = objective+o, bound+b
		}
		if len(table.Proofs) == 0 {
			continue
		}
		proved++
		if table.Certificate == nil || !(table.Certificate.Gap <= 1e-6) {
			t.Fatalf("certificate %+v", table.Certificate)
		}
		for what, pair := range map[string][2]float64{"objective": {objective, table.Certificate.Objective}, "bound": {bound, table.Certificate.Bound}} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*pair[1] {
				t.Errorf("%s is %v by the problem and the prices, the table says %v", what, pair[0], pair[1])
			}
		}
	}
	if proved < 3 {
		t.Fatalf("%d tables with a proof", proved)
	}
	if !strings.Contains(g.logs.String(), `"gap":`) {
		t.Error("no log line has the gap of a table")
	}
	if gap := g.metric("penstock_certificate_gap"); !(gap <= 1e-6) {
		t.Errorf("penstock_certificate_gap is %v", gap)
	}
}

// A solver that fails in every way leaves the traffic alone, and is counted.
func TestAFailingSolverHarmsNoTraffic(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	var failing atomic.Bool
	g := startGateway(t, "[routing]\npolicy = \"optimal\"\nperiod = \"100ms\"\n"+fleetTOML(engines, "capacity = 400", "capacity = 200"), nths(2)...)
	g.loop.BeforeSolve(func() {
		if failing.Load() {
			panic("broken for the test")
		}
	})
	c := client(t)
	n := 0
	ask := func() {
		n++
		if a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(n), false)); !a.looksComplete() {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	solved := func() float64 {
		return g.metric(`penstock_plans_total{result="solved"}`) + g.metric(`penstock_plans_total{result="loose"}`)
	}
	g.await("a solved table", func() bool { ask(); return solved() > 0 })
	failing.Store(true)
	before := g.metric(`penstock_plans_total{result="kept"}`)
	g.await("a solver that failed often", func() bool { ask(); return g.metric(`penstock_plans_total{result="kept"}`) > before+5 })
	if w := g.table("m", "e00") + g.table("m", "e01"); math.Abs(w-1) > 1e-6 {
		t.Errorf("weights sum to %v", w)
	}
	failing.Store(false)
	was := solved()
	g.await("tables to be solved again", func() bool { ask(); return solved() > was })
}

// A decision made again from its record comes to the same engine, and says
// what the table had in mind.
func TestReplay(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	g := startGateway(t, "[routing]\npolicy = \"optimal\"\n"+fleetTOML(engines, "capacity = 400", "capacity = 200", "capacity = 100"), nths(3)...)
	c := client(t)
	for i := range 10 {
		id := fmt.Sprintf("replay-%d", i)
		headers := []string{"x-request-id", id}
		if i%2 == 1 {
			headers = append(headers, "x-penstock-affinity", "off")
		}
		a := g.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), false), headers...)
		by := a.header.Get("X-Penstock-Engine")
		code, stdout, stderr := penstock(t, "explain", id, "--replay", "--json", "--admin", g.hostPort())
		var again replayed
		if err := json.Unmarshal([]byte(stdout), &again); err != nil || code != exitDone || !again.Same || again.Engine != by || len(again.Steps) == 0 {
			t.Errorf("%s: exit %d, %q, %+v, served by %s", id, code, stderr, again, by)
		}
		if code, stdout, _ := penstock(t, "explain", id, "--admin", g.hostPort()); code != exitDone || !strings.Contains(stdout, "by table ") {
			t.Errorf("%s: exit %d\n%s", id, code, stdout)
		}
	}
}
