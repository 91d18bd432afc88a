package balancer

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// slotsOf asks the pool of model m for many keys.
func slotsOf(t *route.Table) (names []string) {
	p := t.Classes[route.ClassKey{Model: "m"}]
	for i := range uint64(4096) {
		names = append(names, p.Candidates[p.Slot(i<<52).Engine].Engine.Name)
	}
	return names
}

// A process that goes on from a saved table gives each engine its slots as it
// comes up, in any order, and versions go on.
func TestResume(t *testing.T) {
	for _, policy := range []Policy{Capacity, Optimal} {
		t.Run(policy.String(), func(t *testing.T) { testResume(t, policy) })
	}
}

func testResume(t *testing.T, policy Policy) {
	serves := map[string][]string{"a": {"m"}, "b": {"m"}, "c": {"m"}, "d": {"m"}}
	f := fleetOf(t, serves)
	tables := route.NewPublished("here")
	loop := NewLoop(Options{Fleet: f, Tables: tables, Policy: policy, Log: slog.New(slog.DiscardHandler)})
	now := time.Unix(1000, 0)
	loop.Cycle(now)
	fresh := slotsOf(tables.Load())
	tables.Load().Classes[route.ClassKey{Model: "m"}].Touch(now.Unix())
	heavier := 3.0
	var configs []engine.Config
	for _, e := range f.Set().Engines {
		c := e.Config
		one := 1.0
		if c.Capacity = &one; c.Name == "a" {
			c.Capacity = &heavier
		}
		configs = append(configs, c)
	}
	for _, change := range []func(){func() { f.Apply(configs) }, func() { heavier = 1; f.Apply(configs) }} {
		change()
		now = now.Add(time.Second)
		loop.Cycle(now)
		tables.Load().Classes[route.ClassKey{Model: "m"}].Touch(now.Unix())
	}
	was := slotsOf(tables.Load())
	if equalNames(was, fresh) {
		t.Fatal("the past made no difference: the test shows nothing")
	}
	var file bytes.Buffer
	if _, err := tables.Load().WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	saved, err := route.ReadSaved(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	version := tables.Load().Version

	for _, late := range []bool{false, true} { // engines that are found come after the first cycles
		f = engine.NewFleet()
		if f.Await(late); !late {
			if err := f.Apply(configs); err != nil {
				t.Fatal(err)
			}
		}
		tables = route.NewPublished("here")
		loop = NewLoop(Options{Fleet: f, Tables: tables, Saved: saved, Policy: policy, Log: slog.New(slog.DiscardHandler)})
		for range 3 {
			loop.Cycle(now)
		}
		if late {
			if err := f.Apply(configs); err != nil {
				t.Fatal(err)
			}
			f.Await(false)
		}
		for _, name := range []string{"c", "a", "d", "b"} {
			f.Set().ByName(name).SetStatus(engine.Ready, engine.ReasonHealthy, now)
			now = now.Add(time.Second)
			loop.Cycle(now)
			tables.Load().Classes[route.ClassKey{Model: "m"}].Touch(now.Unix())
		}
		if !equalNames(slotsOf(tables.Load()), was) {
			t.Error("slots are elsewhere after the restart")
		}
		if tables.Load().Version <= version {
			t.Errorf("version %d after %d", tables.Load().Version, version)
		}
		if loop.Cycle(now.Add(time.Second)); loop.saved != nil {
			t.Error("the saved table still counts after all engines were heard of")
		}
	}
}

func equalNames(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}
