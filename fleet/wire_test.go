package fleet

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"penstock/route"
)

var (
	testKey = NewKey("a secret of this fleet")
	alice   = Identity{"alice", 11}
	bob     = Identity{"bob", 22}
)

// testPlan is a plan of the given size whose rows use a few engines each, as
// optimal ones do.
func testPlan(r *rand.Rand, sources, engines, perRow int) *route.Plan {
	p := &route.Plan{Epoch: 7, Version: 1, Policy: "optimal", Certificate: &route.Certificate{Objective: r.Float64() * 1e5, Bound: r.Float64() * 1e5, Gap: 1e-9, Method: "gradient", Iterations: 12, Took: time.Millisecond},
		Uncalibrated: []string{engineName(0)}}
	for j := range engines {
		p.Engines = append(p.Engines, route.PlanEngine{Name: engineName(j), Load: r.Float64() * 40, Capacity: 40, InFlight: r.Float64() * 60, Latency: 900 * r.Float64(), Price: 100 * r.Float64(),
			Cost: route.Cost{Alone: 4000 * r.Float32(), PerSeq: 40 * r.Float32(), PerToken: r.Float32(), Slots: 256}})
	}
	for i := range sources {
		for _, model := range []string{"llama-3.3-70b", "qwen3-32b"} {
			row := route.PlanRow{Source: "region-" + string(rune('a'+i)), Class: route.ClassKey{Model: model, Caps: 3, Tier: 1, Require: "residency=eu"}}
			left := 1.0
			for k := range perRow {
				w := left * r.Float64()
				if k == perRow-1 {
					w = left
				}
				left -= w
				row.Weights = append(row.Weights, route.PlanWeight{Engine: engineName(r.IntN(engines)), Weight: w, InFlight: 60 * r.Float64()})
			}
			row.Shed[2] = 0.1 * float64(i%2)
			p.Rows = append(p.Rows, row)
		}
	}
	return p
}

func engineName(j int) string {
	return "vllm-" + string(rune('a'+j/26%26)) + string(rune('a'+j%26)) + ".serving"
}

// moved is the plan a cycle later: some rows move a little.
func moved(r *rand.Rand, p *route.Plan) *route.Plan {
	next := *p
	next.Version++
	next.Rows = slices.Clone(p.Rows)
	for i := range next.Rows {
		if r.IntN(3) != 0 {
			continue
		}
		row := &next.Rows[i]
		row.Weights = slices.Clone(row.Weights)
		for k := range row.Weights {
			row.Weights[k].Weight *= 0.99
		}
	}
	next.Engines = slices.Clone(p.Engines)
	for j := range next.Engines {
		next.Engines[j].Load *= 1 + 0.01*r.Float64()
	}
	return &next
}

// rounded is the plan with its figures as they are after they were sent.
func rounded(p *route.Plan) *route.Plan {
	next := *p
	f := func(v *float64) { *v = float64(float32(*v)) }
	next.Engines = slices.Clone(p.Engines)
	for j := range next.Engines {
		e := &next.Engines[j]
		for _, v := range []*float64{&e.Load, &e.Capacity, &e.InFlight, &e.Latency, &e.Price, &e.CapacityPrice} {
			f(v)
		}
	}
	next.Rows = slices.Clone(p.Rows)
	for i := range next.Rows {
		next.Rows[i].Weights = slices.Clone(p.Rows[i].Weights)
		for k := range next.Rows[i].Weights {
			f(&next.Rows[i].Weights[k].InFlight)
		}
	}
	return &next
}

func TestPlansAreTheSameAfterTheWire(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	plan := testPlan(r, 3, 100, 12)
	var gate Gate
	var have *route.Plan
	var last *route.Plan
	for seq := uint64(1); seq <= 40; seq++ {
		s := &Snapshot{Revision: seq, Version: plan.Version, Plan: plan,
			Digest: Digest{Gateways: []SourceCount{{"region-a", 3}}, InFlight: []EngineCount{{engineName(3), 2.5}}}}
		if last != nil {
			s.Base = last.Version
		}
		message, err := testKey.SealSnapshot(Header{From: alice, Epoch: 7, Seq: seq}, s, last)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := testKey.SealSnapshot(Header{From: alice, Epoch: 7, Seq: seq}, &Snapshot{Version: plan.Version, Plan: plan}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(whole) > 16<<10 || len(message) > 16<<10 {
			t.Errorf("a plan of 100 engines takes %d bytes whole, %d as a change", len(whole), len(message))
		}
		if seq == 2 {
			t.Logf("100 engines, 6 rows: %d bytes whole, %d as a change", len(whole), len(message))
		}
		h, got, why := testKey.OpenSnapshot(message, &gate, have)
		if why != Accepted {
			t.Fatalf("snapshot %d: %s", seq, why)
		}
		gate.Enter(h.From, h.Epoch, h.Seq)
		if want := rounded(plan); !reflect.DeepEqual(got.Plan, want) {
			t.Fatalf("version %d is\n%+v, want\n%+v", plan.Version, got.Plan, want)
		}
		if got.Revision != seq || !reflect.DeepEqual(got.Digest, s.Digest) {
			t.Errorf("snapshot %+v", got)
		}
		have, last = got.Plan, plan
		plan = moved(r, plan)
	}
}

// Who missed a change gets no plan made of the wrong one.
func TestGapIsSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	first := testPlan(r, 2, 10, 3)
	second := moved(r, first)
	third := moved(r, second)
	message, err := testKey.SealSnapshot(Header{From: alice, Epoch: 7, Seq: 9}, &Snapshot{Version: 3, Base: 2, Plan: third}, second)
	if err != nil {
		t.Fatal(err)
	}
	for name, have := range map[string]*route.Plan{"no plan": nil, "the one before": first, "another epoch's": {Epoch: 6, Version: 2}} {
		if _, s, why := testKey.OpenSnapshot(message, &Gate{}, have); why != Gap || s.Plan != nil || s.Version != 3 {
			t.Errorf("with %s: %s", name, why)
		}
	}
	stored, err := testKey.SealSnapshot(Header{From: alice, Epoch: 7, Seq: 8}, &Snapshot{Version: 3, Plan: third}, nil)
	if err != nil {
		t.Fatal(err)
	}
	gate := Gate{alice, 7, 9}
	if _, s, why := testKey.OpenStored(stored, &gate, first); why != Accepted || s.Plan.Version != 3 {
		t.Errorf("the stored one: %s", why)
	}
	if _, _, why := testKey.OpenStored(stored, &gate, third); why != Replayed {
		t.Errorf("the stored one again: %s", why)
	}
	if _, _, why := testKey.OpenStored(stored, &Gate{bob, 7, 1}, first); why != TwoLeaders {
		t.Errorf("the stored one of another leader: %s", why)
	}
	if _, _, why := testKey.OpenStored(stored, &Gate{bob, 8, 1}, first); why != Older {
		t.Errorf("the stored one of an epoch that is over: %s", why)
	}
}

func testDemand(r *rand.Rand, name string, engines int) *route.Demand {
	d := &route.Demand{Gateway: name, Source: "region-a", Replicas: 2, Rows: []route.DemandRow{
		{Class: route.ClassKey{Model: "m", Caps: 5}, Priority: 1, Rate: 12.345678901234567, Retries: 0.5, Prompt: 800, Cached: 200, Output: 150,
			Lately: [route.LatelyWindows]route.Lately{{Requests: 14, Expected: 12.5, Variance: 13}, {Requests: 25, Expected: 25, Variance: 26}}}}}
	for j := range engines {
		f := func() float64 { return float64(float32(r.Float64())) }
		d.Engines = append(d.Engines, route.Sighting{Engine: engineName(j), RTT: f(), InFlight: f(), Factor: f(), Held: float64(j % 3), Speed: route.Speed{Step: f(), PerSeq: f(), PerToken: f(), Slots: 4, Held: 3, Answers: 9,
			Doubt: [6]float64{f(), -f(), f(), f(), -f(), f()}}})
	}
	return d
}

func TestReportsAreTheSameAfterTheWire(t *testing.T) {
	d := testDemand(rand.New(rand.NewPCG(5, 6)), "alice", 100)
	d.Engines[7].RTT = math.NaN()
	message, err := testKey.SealReport(Header{From: alice, Epoch: 3, Seq: 1}, &Report{Demand: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a report about 100 engines: %d bytes", len(message))
	h, got, why := testKey.OpenReport(message)
	if why != Accepted || h.From != alice || h.Epoch != 3 || h.Seq != 1 {
		t.Fatalf("%s, %+v", why, h)
	}
	if !math.IsNaN(got.Demand.Engines[7].RTT) {
		t.Error("a round trip that nobody measured became one")
	}
	got.Demand.Engines[7].RTT, d.Engines[7].RTT = 0, 0
	if !reflect.DeepEqual(got.Demand, d) {
		t.Errorf("report\n%+v, want\n%+v", got.Demand, d)
	}
}

// Everything that is wrong with a message has its name, and nothing of it is
// used.
func TestBadMessagesAreRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	plan := testPlan(r, 2, 10, 3)
	snapshot := func(from Identity, epoch, seq uint64) []byte {
		m, err := testKey.SealSnapshot(Header{From: from, Epoch: epoch, Seq: seq}, &Snapshot{Version: 1, Plan: plan}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	good := snapshot(alice, 7, 5)
	changed := func(at int) []byte {
		m := slices.Clone(good)
		m[(at+len(m))%len(m)] ^= 1
		return m
	}
	other, err := NewKey("of another fleet").SealSnapshot(Header{From: alice, Epoch: 7, Seq: 5}, &Snapshot{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(kind Kind, body []byte) []byte {
		m, err := testKey.Seal(Header{Kind: kind, From: alice, Epoch: 7, Seq: 5}, body)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	huge := encoder{}
	huge.uint(1)
	huge.uint(1)
	huge.uint(1 << 60)
	for _, c := range []struct {
		name    string
		message []byte
		gate    Gate
		want    Refusal
	}{
		{"good", good, Gate{}, Accepted},
		{"the next", good, Gate{alice, 7, 4}, Accepted},
		{"after a restart of the leader's epoch", good, Gate{bob, 6, 900}, Accepted},
		{"too large", make([]byte, MaxMessage+1), Gate{}, Oversized},
		{"empty", nil, Gate{}, Truncated},
		{"its head alone", good[:40], Gate{}, Truncated},
		{"cut in its body", good[:len(good)/2], Gate{}, Forged},
		{"without its last byte", good[:len(good)-1], Gate{}, Forged},
		{"another release's", changed(3), Gate{}, UnknownVersion},
		{"another fleet's", other, Gate{}, WrongKey},
		{"another sender written in", changed(nameAt), Gate{}, Forged},
		{"another body", changed(nameAt + 40), Gate{}, Forged},
		{"another signature", changed(-1), Gate{}, Forged},
		{"a report as a table", sealed(KindReport, []byte{1}), Gate{}, Forged},
		{"again", good, Gate{alice, 7, 5}, Replayed},
		{"an older one", good, Gate{alice, 7, 6}, Replayed},
		{"of an epoch that is over", good, Gate{bob, 8, 1}, Older},
		{"of a second leader", good, Gate{bob, 7, 1}, TwoLeaders},
		{"no content", sealed(KindSnapshot, nil), Gate{}, Unreadable},
		{"content beyond its end", sealed(KindSnapshot, append((&Snapshot{}).encode(nil), 0)), Gate{}, Unreadable},
		{"a lie about its length", sealed(KindSnapshot, huge.b), Gate{}, Unreadable},
		{"what unfolds to too much", sealed(KindSnapshot, make([]byte, maxBody+1)), Gate{}, Oversized},
	} {
		h, s, why := testKey.OpenSnapshot(c.message, &c.gate, nil)
		if why != c.want || (s != nil) != (why == Accepted) {
			t.Errorf("%s: %s, want %s", c.name, why, c.want)
		}
		if c.want > UnknownVersion && c.want != Forged && h.From != alice {
			t.Errorf("%s: it does not name its sender but %+v", c.name, h.From)
		}
	}
	for r := range refusals {
		if r.String() == "" {
			t.Errorf("refusal %d has no name", r)
		}
	}
}

// Whatever a body says, reading it ends well.
func FuzzBodies(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	plan := testPlan(r, 2, 4, 2)
	f.Add((&Snapshot{Version: 1, Plan: plan}).encode(nil))
	f.Add((&Snapshot{Version: 2, Base: 1, Plan: moved(r, plan)}).encode(plan))
	f.Add((&Report{Demand: testDemand(r, "a", 3)}).encode())
	f.Add(binary.AppendUvarint(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, body []byte) {
		have := &route.Plan{Epoch: 7, Version: 1}
		if s, why := decodeSnapshot(Header{Epoch: 7}, body, have); why == Accepted && s.Plan != nil {
			for _, row := range s.Plan.Rows {
				for _, w := range row.Weights {
					if !(w.Weight >= 0 && w.Weight <= 1+1e-9) || !(w.InFlight >= 0) {
						t.Errorf("weight %+v", w)
					}
				}
			}
		}
		if r, ok := decodeReport("a", body); ok && !r.Leaves && (r.Demand.Source == "" || r.Demand.Replicas < 1) {
			t.Errorf("report %+v", r.Demand)
		}
	})
}

func TestRoll(t *testing.T) {
	now := time.Now()
	var roll Roll
	hear := func(from Identity, seq uint64) Refusal {
		return roll.Hear(Header{From: from, Seq: seq}, &Report{Demand: &route.Demand{Gateway: from.Name, Source: "s", Replicas: 1,
			Engines: []route.Sighting{{Engine: "e", InFlight: 2}}}}, now)
	}
	want := func(what string, got, want Refusal) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	want("first", hear(alice, 5), Accepted)
	want("again", hear(alice, 5), Replayed)
	want("an older one", hear(alice, 4), Replayed)
	want("bob", hear(bob, 1), Accepted)
	twin := Identity{"alice", 99}
	want("another of the name", hear(twin, 1), NameTaken)
	if d := DigestOf(roll.Demands(now)); !reflect.DeepEqual(d, Digest{[]SourceCount{{"s", 2}}, []EngineCount{{"e", 4}}}) {
		t.Errorf("digest %+v", d)
	}
	now = now.Add(2 * time.Second)
	want("bob", hear(bob, 2), Accepted)
	now = now.Add(2 * time.Second)
	if all := roll.Demands(now); len(all) != 1 || all[0].Gateway != "bob" {
		t.Errorf("%d reports count after alice was silent for 4 s", len(all))
	}
	want("the other, once the first is silent", hear(twin, 2), Accepted)
	want("the first, back", hear(alice, 6), NameTaken)
	want("goodbye", roll.Hear(Header{From: twin, Seq: 3}, &Report{Leaves: true}, now), Accepted)
	want("the first, once the other has left", hear(alice, 7), Accepted)
	for i := range maxGateways {
		hear(Identity{"g" + string(rune(i+200)), 1}, 1)
	}
	want("one too many", hear(Identity{"late", 1}, 1), TooMany)
	now = now.Add(11 * time.Minute)
	want("once others have gone", hear(Identity{"late", 1}, 1), Accepted)
}

// The in-flight of a gateway is not that of others, and a gateway that shares
// its source with another is told.
func TestOthersOfADigest(t *testing.T) {
	own := &route.Demand{Gateway: "a", Source: "s", Replicas: 1, Engines: []route.Sighting{{Engine: "e", InFlight: 3}, {Engine: "f", InFlight: 1}}}
	d := Digest{Gateways: []SourceCount{{"s", 1}, {"t", 4}}, InFlight: []EngineCount{{"e", 10}, {"f", 1}}}
	got := d.Others(own, time.Now())
	if len(got) != 1 || len(got[0].Engines) != 1 || got[0].Engines[0].InFlight != 7 {
		t.Errorf("others %+v", got[0])
	}
	if n := d.BySource(own, true); n["s"] != 1 || n["t"] != 4 {
		t.Errorf("gateways %v", n)
	}
	d.Gateways[0].N = 2
	if n := d.BySource(own, true); n["s"] != 2 || d.BySource(own, false)["s"] != 3 {
		t.Errorf("another gateway of the source is not seen: %v", n)
	}
	own.Replicas = 3
	if n := (&Digest{}).BySource(own, true); n["s"] != 3 || len(n) != 1 {
		t.Errorf("a gateway that nobody has heard of yet: %v", n)
	}
}

// Another capacity of an engine does not wait for the next report; what changes
// all the time does.
func TestPressing(t *testing.T) {
	was := &route.Demand{Engines: []route.Sighting{{Engine: "a", Factor: 1, InFlight: 3}, {Engine: "b", Factor: 0.05, Held: 8}}}
	for _, c := range []struct {
		name string
		a, b route.Sighting
		want bool
	}{
		{"the same", was.Engines[0], was.Engines[1], false},
		{"another load", route.Sighting{Engine: "a", Factor: 1, InFlight: 30, RTT: 5}, was.Engines[1], false},
		{"a little less", route.Sighting{Engine: "a", Factor: 0.95}, was.Engines[1], false},
		{"an outlier", route.Sighting{Engine: "a", Factor: 0.8}, was.Engines[1], true},
		{"frozen", was.Engines[0], route.Sighting{Engine: "b", Held: 8}, true},
		{"recovered", was.Engines[0], route.Sighting{Engine: "b", Factor: 1, Held: 8}, true},
		{"full", route.Sighting{Engine: "a", Factor: 1, Held: 4}, was.Engines[1], true},
		{"full with much less", was.Engines[0], route.Sighting{Engine: "b", Factor: 0.05, Held: 4}, true},
		{"full with one less", was.Engines[0], route.Sighting{Engine: "b", Factor: 0.05, Held: 7}, false},
		{"in another order", was.Engines[1], route.Sighting{Engine: "a", Factor: 0.5}, true},
		{"an engine that is new", was.Engines[0], route.Sighting{Engine: "c"}, false},
	} {
		if got := Pressing(was, &route.Demand{Engines: []route.Sighting{c.a, c.b}}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if Pressing(nil, was) || Pressing(was, nil) {
		t.Error("the first report, or a goodbye, is pressing")
	}
}
