package balancer

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/engine"
	"penstock/route"
)

// observed is an observer over a fleet and a ledger, on a clock of its own.
type observed struct {
	t      *testing.T
	o      Observer
	fleet  *engine.Fleet
	table  *route.Table
	now    time.Time
	others []*route.Demand
	last   *route.Demand
}

func observe(t *testing.T, models map[string][]string) *observed {
	f := fleetOf(t, models)
	now := time.Unix(10_000, 0)
	table, _ := Build(f.Set(), route.NewPublished("here").Load(), nil, nil, nil, now)
	return &observed{t: t, o: Observer{Gateway: "gw"}, fleet: f, table: table, now: now}
}

// pass lets seconds pass, one cycle each, with each called before it.
func (v *observed) pass(seconds int, each func()) *route.Demand {
	for range seconds {
		if each != nil {
			each()
		}
		v.now = v.now.Add(time.Second)
		v.last = v.o.Demand(v.fleet.Set(), v.table, v.others, v.now)
	}
	return v.last
}

func (v *observed) traffic(k route.ClassKey) *route.Traffic { return v.table.Ledger.Of(k, v.now) }

func (v *observed) row(k route.ClassKey, priority uint8) *route.DemandRow {
	for i := range v.last.Rows {
		if r := &v.last.Rows[i]; r.Class == k && r.Priority == priority {
			return r
		}
	}
	return nil
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within*want }

var plain = route.ClassKey{Model: "m"}

// A class without requests has no row; from its first second on it has the rate
// that it has, by priority, and repeats are not in it.
func TestDemandFromTheFirstSecond(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}})
	if d := v.pass(3, nil); len(d.Rows) != 0 || d.Gateway != "gw" || d.Source != "here" || d.Replicas != 1 || !d.At.Equal(v.now) {
		t.Errorf("%+v", d)
	}
	tr := v.traffic(plain)
	load := func() {
		for range 40 {
			tr.Offer(1, 100, 0)
		}
		for range 10 {
			tr.Retry(1)
			tr.Offer(2, 100, 0)
		}
	}
	v.pass(1, load)
	if std, shed := v.row(plain, 1), v.row(plain, 2); !near(std.Rate, 40, 0.01) || !near(std.Retries, 10, 0.01) || !near(shed.Rate, 10, 0.01) || v.row(plain, 0) != nil {
		t.Errorf("after a second: %+v", v.last.Rows)
	}
	v.pass(60, load)
	if std := v.row(plain, 1); !near(std.Rate, 40, 0.01) || !near(std.Retries, 10, 0.01) {
		t.Errorf("after a minute: %+v", std)
	}
	// One request just after a look is not hundreds in a second.
	long := route.ClassKey{Model: "m", Tier: 1}
	v.traffic(long).Offer(1, 1, 0)
	v.now = v.now.Add(2 * time.Millisecond)
	v.last = v.o.Demand(v.fleet.Set(), v.table, nil, v.now)
	if r := v.row(long, 1); r.Rate > 1 || r.Rate < 0.9 {
		t.Errorf("a single request: %+v", r)
	}
}

// Counters that begin anew, looks at the same instant and a process that stood
// still make no demand out of nothing, and a pause is forgotten as a rate.
func TestDemandAfterGaps(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}})
	load := func() {
		for range 20 {
			v.traffic(plain).Offer(1, 100, 0)
		}
		v.traffic(plain).Answer(1, 100, 0, 50)
	}
	v.pass(60, load)
	again := v.o.Demand(v.fleet.Set(), v.table, nil, v.now)
	if len(again.Rows) != 1 || again.Rows[0] != v.last.Rows[0] {
		t.Errorf("at the same instant: %+v", again.Rows)
	}
	v.table.Ledger = route.NewLedger() // as after a table without the class
	v.pass(1, load)
	if r := v.row(plain, 1); r == nil || r.Rate < 19 || r.Rate > 22 {
		t.Errorf("after counters began anew: %+v", r)
	}
	v.now = v.now.Add(30 * time.Second) // the process was stopped
	v.pass(1, load)
	if r := v.row(plain, 1); r.Rate > 20 {
		t.Errorf("after a gap: %+v", r)
	}
	v.pass(900, func() { v.traffic(plain) })
	if r := v.row(plain, 1); r.Rate != 0 || !near(r.Output, 50, 0.5) {
		t.Errorf("after a pause: %+v", r)
	}
	v.pass(1, load)
	if r := v.row(plain, 1); !near(r.Rate, 20, 0.02) {
		t.Errorf("the first second after a pause: %+v", r)
	}
	v.table.Ledger = route.NewLedger()
	if d := v.pass(1, nil); len(d.Rows) != 0 || len(v.o.classes) != 0 {
		t.Errorf("a class that is gone: %+v", d.Rows)
	}
}

// Lengths come from answers; before there are any, from what requests say;
// what all requests are bounded by bounds the mean.
func TestDemandLengths(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}})
	tr := v.traffic(plain)
	v.pass(5, func() { tr.Offer(1, 300, 40) })
	if r := v.row(plain, 1); r.Prompt != 300 || r.Output != 40 || r.Cached != 0 {
		t.Errorf("before answers: %+v", r)
	}
	v.pass(120, func() {
		tr.Offer(1, 300, 0)
		tr.Offer(2, 300, 0)
		for range 4 {
			tr.Answer(1, 800, 600, 100)
		}
	})
	std, shed := v.row(plain, 1), v.row(plain, 2)
	if !near(std.Prompt, 800, 0.02) || !near(std.Output, 100, 0.05) || !near(std.Cached, 600, 0.02) {
		t.Errorf("after answers: %+v", std)
	}
	if !near(shed.Prompt, 800, 0.03) || !near(shed.Output, 100, 0.05) {
		t.Errorf("a priority without answers does not have its class's: %+v", shed)
	}
	v.pass(120, func() {
		for range 4 {
			tr.Answer(2, 800, 600, 700)
		}
	})
	if std, shed = v.row(plain, 1), v.row(plain, 2); !near(std.Output, 100, 0.2) || !near(shed.Output, 700, 0.1) {
		t.Errorf("priorities of different lengths: %+v %+v", std, shed)
	}
	v.pass(3600, func() { v.traffic(plain).Offer(1, 300, 30); tr.Offer(2, 300, 30) })
	if std, shed = v.row(plain, 1), v.row(plain, 2); std.Output > 30.5 || shed.Output > 30.5 {
		t.Errorf("all bounded by 30: %+v %+v", std, shed)
	}
}

// Engines whose answers tell no cached tokens tell them on their page.
func TestDemandCachedFromCounters(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"other"}})
	tr := v.traffic(plain)
	prompt, cached := 1e6, 4e5
	v.pass(60, func() {
		tr.Offer(1, 300, 0)
		tr.Answer(1, 1000, 0, 10)
		prompt += 1000
		cached += 700
		for _, e := range v.fleet.Set().Engines {
			s := &engine.Sample{At: v.now, Has: engine.FieldPromptTokens | engine.FieldCachedTokens, PromptTokens: prompt, CachedTokens: cached}
			switch e.Name {
			case "b":
				continue // tells nothing
			case "c":
				s.CachedTokens = 4e5
			}
			e.SetSample(s)
		}
	})
	if r := v.row(plain, 1); !near(r.Cached, 700, 0.03) {
		t.Errorf("%+v", r)
	}
	v.pass(60, func() { tr.Answer(1, 1000, 100, 10) })
	if r := v.row(plain, 1); r.Cached > 110 {
		t.Errorf("answers tell, and are not believed: %+v", r)
	}
}

// Each engine is seen with its round trip, unknown until it was measured, what
// is in flight, and what is learned from its answers, each told once.
func TestDemandSightings(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}, "b": {"m"}})
	a := v.fleet.Set().ByName("a")
	a.Reached(12500*time.Microsecond, v.now)
	a.Acquire(10)
	d := v.pass(60, func() {
		a.Answered(engine.Answer{At: v.now, Total: 2 * time.Second, TTFT: 100 * time.Millisecond, TBOT: 20 * time.Millisecond, Prompt: 200, Output: 90,
			Counted: true, InFlightFrom: 2, InFlightTo: 2})
	})
	if s := d.Engines[0]; len(d.Engines) != 2 || s.Engine != "a" || s.RTT != 12.5 || s.InFlight != 1 || s.Factor != 1 || s.Speed.Answers < 10 || !(s.Speed.Step > 0) {
		t.Errorf("%+v", d.Engines)
	}
	again := 0
	d = v.pass(60, func() {
		again++
		a.Answered(engine.Answer{At: v.now, Total: time.Second, How: engine.EndedFault, Repeat: again%4 == 0})
	})
	if f := d.Engines[0].Factor; !near(f, 0.75, 0.2) {
		t.Errorf("a factor of %g where a quarter is done for the second time", f)
	}
	if left := a.TakeAnswers(nil); len(left) != 0 {
		t.Errorf("%d answers were not taken", len(left))
	}
	if b := d.Engines[1]; b.Engine != "b" || !math.IsNaN(b.RTT) || b.InFlight != 0 || b.Speed.Answers != 0 {
		t.Errorf("%+v", b)
	}
}

// With replicas of this gateway, or another one at its source, slots are made
// without regard to the past and new conversations follow them; their attempts
// are not a stranger's.
func TestSharedSource(t *testing.T) {
	now := time.Unix(10_000, 0)
	peer := func(name, source string, age time.Duration) []*route.Demand {
		return []*route.Demand{nil, {Gateway: "gw", Source: "here", At: now}, {Gateway: name, Source: source, At: now.Add(-age)}}
	}
	alone, three := &Observer{Gateway: "gw", Replicas: 1}, &Observer{Gateway: "gw", Replicas: 3}
	for _, c := range []struct {
		o        *Observer
		gateways map[string]int
		want     bool
		at       time.Time
	}{{alone, nil, false, now}, {three, nil, true, now}, {alone, map[string]int{"here": 1, "there": 5}, false, now}, {alone, map[string]int{"here": 2}, true, now},
		{alone, map[string]int{"here": 1}, true, now.Add(sharedFor - 1)}, {alone, map[string]int{"here": 1}, false, now.Add(sharedFor)}} {
		if got := c.o.shares(c.gateways, "here", c.at); got != c.want {
			t.Errorf("%d replicas and gateways %v: %t", c.o.Replicas, c.gateways, got)
		}
	}
	demands := peer("other", "there", time.Second)
	demands[1].Replicas, demands[2].Replicas = 3, 2
	demands[1].Engines = []route.Sighting{{Engine: "a", InFlight: 5}}
	demands[2].Engines = []route.Sighting{{Engine: "a", InFlight: 7}, {Engine: "b", InFlight: 1}}
	if got := three.elsewhere(demands, now); got["a"] != 2*5+2*7 || got["b"] != 2 {
		t.Errorf("elsewhere: %v", got)
	}

	f := fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m"}})
	tables := route.NewPublished("here")
	l := NewLoop(Options{Fleet: f, Tables: tables, Gateway: "gw", Replicas: 2, Log: slog.New(slog.DiscardHandler)})
	l.Cycle(now)
	if p := tables.Load().Classes[plain].Pool; !tables.Load().Shared || !p.Shared {
		t.Error("a table of replicas is not shared")
	}
}

// Whatever is counted and whenever it is looked at, what is told is possible.
func TestDemandOfAnything(t *testing.T) {
	v := observe(t, map[string][]string{"a": {"m"}, "b": {"m", "n"}})
	rapid.Check(t, func(t *rapid.T) {
		v.o, v.table.Ledger = Observer{Gateway: "gw"}, route.NewLedger()
		n := rapid.IntRange(-5, 1<<30)
		offered := uint64(0)
		began := v.now
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			v.now = v.now.Add(time.Duration(rapid.IntRange(-1000, 90_000).Draw(t, "ms")) * time.Millisecond)
			for range rapid.IntRange(0, 6).Draw(t, "requests") {
				tr := v.traffic(route.ClassKey{Model: rapid.SampledFrom([]string{"m", "n", "gone"}).Draw(t, "model")})
				p := uint8(rapid.IntRange(0, 3).Draw(t, "priority"))
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					tr.Offer(p, n.Draw(t, "prompt"), n.Draw(t, "limit"))
					offered++
				case 1:
					tr.Retry(p)
				default:
					tr.Answer(p, n.Draw(t, "prompt"), n.Draw(t, "cached"), n.Draw(t, "output"))
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "anew") == 0 {
				v.table.Ledger = route.NewLedger()
			}
			rate := 0.0
			for _, r := range v.o.Demand(v.fleet.Set(), v.table, nil, v.now).Rows {
				rate += r.Rate
				for _, x := range []float64{r.Rate, r.Retries, r.Prompt, r.Cached, r.Output} {
					if !(x >= 0) || math.IsInf(x, 0) {
						t.Fatalf("%+v", r)
					}
				}
				if r.Cached > r.Prompt {
					t.Fatalf("more cached than there is: %+v", r)
				}
			}
			if rate > 1.3*float64(offered) { // the newest of a second weigh more
				t.Fatalf("%g requests/s of %d ever offered since %s", rate, offered, began)
			}
		}
	})
}
