package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"penstock/route"
)

// join adds gateways that have reported once, in the order given.
func join(t *testing.T, m *Memory, names ...string) (all []*Member) {
	t.Helper()
	for _, name := range names {
		s, err := m.Join(name, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		s.Tell(demandOf(s))
		all = append(all, s)
	}
	return all
}

func demandOf(s *Member) *route.Demand {
	return &route.Demand{Gateway: s.name, Source: "of-" + s.name, At: time.Now()}
}

// leaderOf is who leads as each of them sees it.
func leaderOf(t *testing.T, members ...*Member) (name string, epoch uint64) {
	t.Helper()
	for _, s := range members {
		if e, leads := s.Leads(); leads {
			if name != "" {
				t.Fatalf("%s and %s lead", name, s.name)
			}
			name, epoch = s.name, e
		}
	}
	return name, epoch
}

func namesOf(demands []*route.Demand) string {
	var all []string
	for _, d := range demands {
		all = append(all, d.Gateway)
	}
	return strings.Join(all, " ")
}

func TestPlansReachAll(t *testing.T) {
	m := NewMemory()
	all := join(t, m, "b", "a", "c")
	if got := namesOf(all[2].Demands()); got != "a b c" {
		t.Errorf("demands of %q", got)
	}
	name, epoch := leaderOf(t, all...)
	if name != "b" {
		t.Errorf("%q leads; the first to report was b", name)
	}
	if all[0].Plan() != nil {
		t.Error("a plan before there was one")
	}
	p := &route.Plan{Epoch: epoch, Version: 1}
	if err := all[0].Publish(p); err != nil {
		t.Fatal(err)
	}
	late := join(t, m, "d")
	for _, s := range slices.Concat(all, late) {
		if s.Plan() != p {
			t.Errorf("%s has another plan", s.name)
		}
		select {
		case <-s.News():
		default:
			t.Errorf("%s was not told of it", s.name)
		}
	}
	if _, err := m.Join("c", time.Second); !errors.Is(err, ErrNameTaken) {
		t.Errorf("a second c: %v", err)
	}
}

func TestLeaderIsFollowed(t *testing.T) {
	m := NewMemory()
	all := join(t, m, "c", "b", "a")
	_, first := leaderOf(t, all...)
	if err := all[0].Publish(&route.Plan{Epoch: first, Version: 7}); err != nil {
		t.Fatal(err)
	}
	all[0].Leave()
	name, second := leaderOf(t, all...)
	if name != "a" || second <= first {
		t.Errorf("%q leads in epoch %d, before it was %d", name, second, first)
	}
	// Versions may begin again: the epoch is larger.
	if err := all[2].Publish(&route.Plan{Epoch: second, Version: 1}); err != nil {
		t.Error(err)
	}
	all[0].Tell(demandOf(all[0]))
	if got := namesOf(all[1].Demands()); got != "a b" {
		t.Errorf("demands of %q after c left", got)
	}
	again := join(t, m, "c")
	if name, epoch := leaderOf(t, append(again, all[1:]...)...); name != "a" || epoch != second {
		t.Errorf("%q leads in epoch %d although a stayed", name, epoch)
	}
}

func TestSilentGatewayIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		all := join(t, m, "a", "b", "c")
		_, first := leaderOf(t, all...)
		tick := func(from int) { // a second passes, then those from there on report
			time.Sleep(time.Second)
			for _, s := range all[from:] {
				s.Tell(demandOf(s))
			}
		}
		for range Misses {
			tick(1)
		}
		if name, epoch := leaderOf(t, all...); name != "a" || epoch != first {
			t.Errorf("after %d missing reports %q leads in epoch %d, want a in %d", Misses-1, name, epoch, first)
		}
		if got := namesOf(all[1].Demands()); got != "a b c" {
			t.Errorf("demands of %q", got)
		}
		tick(1)
		name, second := leaderOf(t, all...)
		if got := namesOf(all[1].Demands()); name != "b" || second <= first || got != "b c" {
			t.Errorf("%q leads in epoch %d with demands of %q", name, second, got)
		}
		// It wakes up and believes that it still leads.
		err := all[0].Publish(&route.Plan{Epoch: first, Version: 99})
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Why != NotLeading || refused.Leader != "b" || all[1].Plan() != nil {
			t.Errorf("its plan: %v", err)
		}
		tick(0)
		if name, epoch := leaderOf(t, all...); name != "b" || epoch != second {
			t.Errorf("%q leads in epoch %d after a came back", name, epoch)
		}
		if got := namesOf(all[1].Demands()); got != "a b c" {
			t.Errorf("demands of %q after a came back", got)
		}
		for _, s := range all {
			s.SetPeriod(time.Minute)
		}
		tick(0)
		time.Sleep(Misses * time.Minute)
		if name, _ := leaderOf(t, all...); name != "b" {
			t.Errorf("%q leads of gateways that report once a minute", name)
		}
		time.Sleep(time.Hour)
		if name, _ := leaderOf(t, all...); name != "" {
			t.Errorf("%s leads although nobody reports", name)
		}
	})
}

func TestLowerPlansAreRefusedAndCounted(t *testing.T) {
	m := NewMemory()
	all := join(t, m, "a", "b")
	_, epoch := leaderOf(t, all...)
	publish := func(s *Member, e, v uint64) error { return s.Publish(&route.Plan{Epoch: e, Version: v}) }
	for _, c := range []struct {
		by   *Member
		e, v uint64
		want Why // whys: accepted
	}{
		{all[0], epoch, 5, whys},
		{all[0], epoch, 5, NotNewer},
		{all[0], epoch, 4, NotNewer},
		{all[0], epoch - 1, 6, WrongEpoch},
		{all[0], epoch + 1, 6, WrongEpoch},
		{all[1], epoch, 6, NotLeading},
		{all[0], epoch, 6, whys},
	} {
		err := publish(c.by, c.e, c.v)
		var refused *RefusedError
		if c.want == whys && err != nil || c.want != whys && (!errors.As(err, &refused) || refused.Why != c.want) {
			t.Errorf("plan %d/%d of %s: %v, want %d", c.e, c.v, c.by.name, err, c.want)
		}
	}
	if p := all[1].Plan(); p.Version != 6 {
		t.Errorf("plan %d is in use", p.Version)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(all[0])
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, v := range f.GetMetric() {
			text := f.GetName()
			for _, l := range v.GetLabel() {
				text += " " + l.GetValue()
			}
			value := v.GetCounter().GetValue() + v.GetGauge().GetValue()
			if text == "penstock_fleet_epoch" {
				value -= float64(epoch)
			}
			got = append(got, fmt.Sprint(text, " ", value))
		}
	}
	want := []string{"penstock_fleet_epoch 0", "penstock_fleet_gateways 2", "penstock_fleet_leads 1",
		"penstock_plans_refused_total not_leading 0", "penstock_plans_refused_total not_newer 2", "penstock_plans_refused_total wrong_epoch 2"}
	if !slices.Equal(got, want) {
		t.Errorf("metrics\n%q, want\n%q", got, want)
	}
}

// Whatever gateways do, at most one leads, an epoch has one leader, and what
// is accepted only grows.
func TestFleetProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory()
			members := map[string]*Member{}
			led := map[uint64]string{}
			var last *route.Plan
			for range rapid.IntRange(1, 60).Draw(r, "steps") {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "gateway")
				s := members[name]
				switch rapid.IntRange(0, 9).Draw(r, "does") {
				case 0:
					if s != nil {
						s.Leave()
						members[name] = nil
					}
				case 1, 2, 3:
					time.Sleep(time.Duration(rapid.IntRange(1, 2500).Draw(r, "ms")) * time.Millisecond)
				case 4, 5:
					if s == nil {
						break
					}
					epoch, leads := s.Leads()
					p := &route.Plan{Epoch: epoch, Version: rapid.Uint64Range(0, 20).Draw(r, "version")}
					err := s.Publish(p)
					if fits := leads && newer(p, last); fits != (err == nil) {
						r.Fatalf("plan %d/%d of %s: %v", p.Epoch, p.Version, name, err)
					}
					if err == nil {
						last = p
					}
				default:
					if s == nil {
						s, _ = m.Join(name, time.Second)
						members[name] = s
					}
					s.Tell(demandOf(s))
				}
				leaders := 0
				for _, s := range members {
					if s == nil {
						continue
					}
					if s.Plan() != last {
						r.Fatalf("%s has another plan", s.name)
					}
					if epoch, leads := s.Leads(); leads {
						leaders++
						if was := led[epoch]; was != "" && was != s.name {
							r.Fatalf("%s and %s led in epoch %d", was, s.name, epoch)
						}
						led[epoch] = s.name
						if time.Since(s.heard) > (Misses+1)*time.Second {
							r.Fatalf("%s leads and was not heard of since %v", s.name, time.Since(s.heard))
						}
					}
				}
				if leaders > 1 {
					r.Fatalf("%d lead", leaders)
				}
			}
		})
	})
}

// Many gateways at once, some leaving: for the race detector, and nobody ever
// sees plans go back.
func TestFleetConcurrently(t *testing.T) {
	m := NewMemory()
	var running sync.WaitGroup
	for g := range 8 {
		running.Go(func() {
			for round := range 5 {
				s, err := m.Join(fmt.Sprint("g", g), time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				var last *route.Plan
				for v := range 100 {
					s.Tell(demandOf(s))
					if len(s.Demands()) == 0 {
						t.Error("its own demand is missing")
					}
					if epoch, leads := s.Leads(); leads {
						_ = s.Publish(&route.Plan{Epoch: epoch, Version: uint64(100*round + v)}) // it may have been followed in between
					}
					if p := s.Plan(); p != last {
						if p == nil || last != nil && !newer(p, last) {
							t.Errorf("plan %+v after %+v", p, last)
						}
						last = p
					}
					_ = s.Status()
				}
				s.Leave()
			}
		})
	}
	running.Wait()
	if len(m.members) != 0 || m.leader != nil {
		t.Errorf("%d members are left, leader %v", len(m.members), m.leader)
	}
}
