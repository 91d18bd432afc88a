package balancer

import (
	"math"
	"testing"
	"time"

	"penstock/balancer/profile"
	"penstock/engine"
	"penstock/route"
)

// Costs are known of all candidates or of none, and a little difference makes no
// new table.
func TestPrice(t *testing.T) {
	var cands []route.Candidate
	p := &route.Plan{}
	for i, name := range []string{"a", "b"} {
		e := engine.New(engine.Config{Name: name, URL: "http://127.0.0.1:1"}, engine.NewLive(uint16(i)))
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
		e.Reached(time.Duration(10*i)*time.Millisecond, time.Unix(0, 0))
		cands = append(cands, route.Candidate{Engine: e, Live: e.Live, Weight: 0.5, Share: 0.5, Cap: e.Cap()})
		p.Engines = append(p.Engines, route.PlanEngine{Name: name, Cost: route.Cost{Alone: 1000, PerSeq: 1, PerToken: 1, Slots: 8}})
	}
	pricesOf(p).set(cands, nil)
	if cands[0].Cost.Alone != 1000 || cands[1].Cost.Alone != 1010 {
		t.Errorf("%+v, %+v: want the round trip of 10 ms in the second", cands[0].Cost, cands[1].Cost)
	}
	was := &route.Class{Pool: route.NewAdHoc(append([]route.Candidate(nil), cands...), route.NewComponent("x", 0))}
	p.Engines[0].Cost.Alone = 1040
	pricesOf(p).set(cands, was)
	if cands[0].Cost.Alone != 1000 {
		t.Errorf("4 %% more: %v, want what was", cands[0].Cost.Alone)
	}
	p.Engines[0].Cost.Alone = 1400
	pricesOf(p).set(cands, was)
	if cands[0].Cost.Alone != 1400 {
		t.Errorf("40 %% more: %v", cands[0].Cost.Alone)
	}
	p.Policy, p.Engines[0].Load, p.Engines[0].Capacity, p.Engines[1].Capacity = Optimal.String(), 1, 10, 10
	if pricesOf(p).set(cands, was); !cands[0].Used || cands[1].Used {
		t.Error("one has load, the other has none")
	}
	p.Policy = Nearest.String()
	if pricesOf(p).set(cands, was); cands[0].Used {
		t.Error("nearest goes where the plan says and nowhere else")
	}
	p.Engines[1].Cost = route.Cost{}
	pricesOf(p).set(cands, was)
	if cands[0].Cost.Known() || cands[1].Cost.Known() {
		t.Error("one is not known, and the other is compared with it")
	}
}

// What others have on an engine is what its page has beyond ours, where the page
// is believed; what ends in that moment is no other's.
func TestOthersOn(t *testing.T) {
	e := engine.New(engine.Config{Name: "a", URL: "http://127.0.0.1:1"}, engine.NewLive(1))
	if n := othersOn(e, Fresh); n != 0 {
		t.Errorf("without a page: %d", n)
	}
	for range 4 {
		e.Acquire(100)
	}
	tell := func(running, waiting float64) {
		e.SetSample(&engine.Sample{Has: engine.FieldRunning | engine.FieldWaiting, Running: running, Waiting: waiting})
	}
	tell(5, 3)
	e.Acquire(100) // after the page
	if n := othersOn(e, Fresh); n != 4 {
		t.Errorf("eight, four of them ours: %d", n)
	}
	if n := othersOn(e, Stale); n != 0 {
		t.Errorf("a page that is not believed: %d", n)
	}
	for range 5 {
		e.Acquire(100)
	}
	if tell(11, 0); othersOn(e, Fresh) != 0 {
		t.Errorf("one more than our ten: %d", othersOn(e, Fresh))
	}
	replicas := engine.New(engine.Config{Name: "b", URL: "http://127.0.0.1:1", Replicas: 2}, e.Live)
	if tell(40, 0); othersOn(replicas, Fresh) != 0 {
		t.Error("the page is that of one replica")
	}
}

// What is learned of an engine with a profile stays within a factor of it.
func TestCostStaysNearTheProfile(t *testing.T) {
	told := route.Speed{Step: 10, PerSeq: 0.1, PerToken: 0.1, Slots: 64}
	mean := profile.Request{Prompt: 1000, Output: 99.5}
	for _, c := range []struct {
		learned route.Speed
		want    route.Cost
	}{
		{route.Speed{Step: 90, PerSeq: 9, PerToken: 9, Answers: 1}, route.Cost{Alone: 1010, PerSeq: 20, PerToken: 0.1, Slots: 64}},
		{route.Speed{Step: 12, PerSeq: 9, PerToken: 0.01, Slots: 64, Answers: 99}, route.Cost{Alone: 1220, PerSeq: 40, PerToken: 0.05, Slots: 64}},
	} {
		if got := profile.Cost(c.learned, mean, profile.Known{Speed: told}); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.learned, got, c.want)
		}
	}
	learned := route.Speed{Step: 12, PerSeq: 0.1, PerToken: 0.1, Slots: 64, Answers: 1000}
	for what, speed := range map[string]route.Speed{"nothing is known": {}, "no profile tells steps": learned} {
		if (profile.Cost(speed, mean, profile.Known{})) != (route.Cost{}) {
			t.Errorf("%s, and it has a cost", what)
		}
	}
}

// Engines whose answers cost about the same are compared by what is there alone;
// a slower kind, and one that is not known, keep what they have.
func TestAlikeCosts(t *testing.T) {
	engine := func(name string, alone, perSeq, slots float32) route.PlanEngine {
		return route.PlanEngine{Name: name, Cost: route.Cost{Alone: alone, PerSeq: perSeq, PerToken: 1, Slots: slots}}
	}
	costs := alikeCosts([]route.PlanEngine{engine("c", 1200, 6, 4), {Name: "none"}, engine("a", 1000, 2, 8), engine("slow", 1300, 9, 8), engine("b", 1100, 4, 8)})
	for name, want := range map[string]route.Cost{
		"a": {Alone: 1100, PerSeq: 4, PerToken: 1, Slots: 8}, "b": {Alone: 1100, PerSeq: 4, PerToken: 1, Slots: 8},
		"c": {Alone: 1100, PerSeq: 4, PerToken: 1, Slots: 4}, "slow": {Alone: 1300, PerSeq: 9, PerToken: 1, Slots: 8}, "none": {},
	} {
		if got := costs[name]; math.Abs(float64(got.Alone-want.Alone)) > 0.01 || got.PerSeq != want.PerSeq || got.PerToken != want.PerToken || got.Slots != want.Slots {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
