package main

import (
	"context"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/balancer"
)

// The same requests come under every policy, at the rate of the cluster, and
// conversations are as long as they say.
func TestSchedule(t *testing.T) {
	const length = 10 * time.Minute
	for place, c := range demoWorld.clusters {
		one, other := newSchedule(&c, place), newSchedule(&c, place)
		n, residents := 0, 0
		turns, ended := make(map[int]int), make(map[int]bool)
		for last := time.Duration(0); ; n++ {
			a := one.take()
			if b := other.take(); a != b {
				t.Fatalf("%s: %+v and %+v", c.name, a, b)
			}
			if a.at > length {
				break
			}
			if a.at <= last || ended[a.talk] {
				t.Fatalf("%s: %+v after %v, its conversation had ended: %t", c.name, a, last, ended[a.talk])
			}
			if before, ok := turns[a.talk]; ok && a.turn != before+1 {
				t.Fatalf("%s: turn %d of conversation %d after %d", c.name, a.turn, a.talk, before)
			}
			if talk := a.conversation(c.name); len(talk) != 2*a.turn+1 || talk[len(talk)-1].Role != "user" {
				t.Fatalf("turn %d sends %v", a.turn, talk)
			}
			last, turns[a.talk], ended[a.talk] = a.at, a.turn, a.last
			if a.resident {
				residents++
			}
		}
		if rate := float64(n) / length.Seconds(); math.Abs(rate/c.demand-1) > 0.02 {
			t.Errorf("%s: %.2f requests/s, want %g", c.name, rate, c.demand)
		}
		if part := float64(residents) / float64(n); math.Abs(part-float64(residentOf-1)/residentOf) > 0.02 {
			t.Errorf("%s: %.3f of all are resident", c.name, part)
		}
	}
}

func TestExchangedWorld(t *testing.T) {
	w, was := demoWorld.exchanged(), demoWorld
	first, last := w.clusters[0], w.clusters[2]
	if first.demand != was.clusters[2].demand || first.capacity != was.clusters[2].capacity || first.engine.Slots != was.clusters[2].engine.Slots ||
		last.demand != was.clusters[0].demand || last.engine.TBOT != was.clusters[0].engine.TBOT {
		t.Errorf("exchanged: %+v", w.clusters)
	}
	if first.name != "A" || first.engine.Name != "a" || last.engine.Name != "c" || w.rtt(0, 1) != was.rtt(1, 0) {
		t.Errorf("places have moved: %+v", w.clusters)
	}
	if demoWorld.clusters[0].demand != 9 {
		t.Error("the world itself has changed")
	}
}

func TestTallyCountsMovesAndShed(t *testing.T) {
	seen := newTally([]string{"a", "b"}, nil)
	for _, e := range []string{"a", "a", "b", "a"} {
		seen.add(told{engine: e, first: time.Millisecond, total: 3 * time.Millisecond}, nil)
		seen.turn("x", e, e == "b")
	}
	seen.add(told{}, errShed)
	f := seen.figures()
	if f.requests != 5 || f.shed != 1 || f.errors != 0 || f.moved != 1 || f.served["a"] != 3 || f.mean != 3 || f.p99 != 3 {
		t.Errorf("%+v", f)
	}
	if !seen.used() || newTally([]string{"a"}, nil).used() {
		t.Error("used is wrong")
	}
}

// What the screen shows of given figures.
func TestComparisonText(t *testing.T) {
	s := standing{name: "optimal-residency", weights: map[string]map[string]float64{
		"A": {"a": 1}, "B": {"a": 0.1, "b": 0.25, "c": 0.65}, "B, require residency=b": {"b": 1}}}
	if got, want := s.excessText("B"), "c 65%, b 25%, a 10%; require residency=b: b 100%"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f, err := newDemoFleet(demoWorld, contestant{name: "capacity", policy: balancer.Capacity}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer f.abandon()
	r := newRival(f, newTally(demoWorld.engines(), nil))
	r.seen.add(told{engine: "b", first: time.Millisecond, total: 250 * time.Millisecond}, nil)
	begin := time.Unix(1000, 0)
	c := &comparison{world: demoWorld, rivals: []*rival{r}, begin: begin, end: begin.Add(time.Second)}
	want := `POLICY    SENT  MEAN    P99     LOAD a  b    c   MOVED  SHED
capacity  1     250 ms  250 ms  0%      10%  0%  0      0

Where B's requests go:
  capacity           ` + "\n"
	if got := c.table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWhyText(t *testing.T) {
	why := &balancer.Why{Options: []balancer.Option{
		{Engine: "b", Weight: 0.75, Network: 0, Latency: 586, Price: 790, Marginal: 1376},
		{Engine: "a", Network: 120, Latency: 582, Price: 911, Marginal: 1613}},
		Text: []string{"75.0% to b.", "It makes room on b: demo require residency=b from B may go nowhere else and takes 7.96 of the 9.5 requests/s there."}}
	want := `Why, by the plan's prices: what one more request of B would cost all clients
  on b  1.38 s: 0 ms away, 586 ms there, 790 ms that others wait longer; gets 75%
  on a  1.61 s: 120 ms away, 582 ms there, 911 ms that others wait longer; gets nothing
`
	if got := pricesText("B", why); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = `  It makes room on b: demo require residency=b from B may go nowhere else and
  takes 7.96 of the 9.5 requests/s there.
`
	if got := wrapped(roomText(why), "  ", 78); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if pricesText("B", nil) != "" || roomText(nil) != "" || roomText(&balancer.Why{Text: []string{"As before."}}) != "" {
		t.Error("there is nothing to say")
	}
}

// B's residents fill much of b: its other requests go elsewhere by themselves,
// and explain says so. Its gateway plans for all.
func TestResidencyMakesRoom(t *testing.T) {
	t.Parallel()
	c := &comparison{world: demoWorld}
	for _, each := range contestants {
		if each.policy == balancer.Optimal {
			f, err := newDemoFleet(demoWorld, each, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			c.rivals = append(c.rivals, newRival(f, newTally(demoWorld.engines(), io.Discard)))
		}
	}
	defer c.close()
	err := c.serve(t.Context(), func(ctx context.Context) error {
		over, end := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { c.run(ctx, over) })
		keeps := func(i int) float64 { return c.rivals[i].allWeights()["B"]["b"] }
		awaitCond(t, "the plans to follow the demand", func() bool {
			_, leads := c.rivals[1].home().member.Leads()
			return leads && strings.Contains(c.whyText(), "makes room on b") && keeps(0) > 0.6 && keeps(0) < 0.95 && keeps(1) < keeps(0)-0.2
		})
		if w := c.rivals[1].allWeights()["B, require residency=b"]; w["b"] < 0.999 {
			t.Errorf("weights of those that may not leave: %v", w)
		}
		end()
		running.Wait()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
