package selector

import (
	"fmt"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// testFleet is a fleet of ready engines with the tables a test builds of it.
type testFleet struct {
	t      testing.TB
	fleet  *engine.Fleet
	tables *route.Published
	cost   route.Cost         // of all engines but
	slower map[string]float32 // these, by what factor
	used   bool               // the plan has requests on all of them
}

// newTestFleet has n engines, e00000 on, that serve the models.
func newTestFleet(t testing.TB, n int, models ...string) *testFleet {
	configs := make([]engine.Config, n)
	for i := range configs {
		configs[i] = engine.Config{Name: fmt.Sprintf("e%05d", i), URL: "http://127.0.0.1:1", Models: models}
	}
	return fleetOf(t, configs...)
}

func fleetOf(t testing.TB, configs ...engine.Config) *testFleet {
	f := &testFleet{t: t, fleet: engine.NewFleet(), tables: route.NewPublished("here")}
	if err := f.fleet.Apply(configs); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.fleet.Set().Engines {
		e.SetStatus(engine.Ready, engine.ReasonHealthy, time.Unix(0, 0))
	}
	f.publish()
	return f
}

// publish builds and installs the next table: every model's plain class and
// the classes that were asked for, all engines one component.
func (f *testFleet) publish(extra ...route.ClassKey) {
	last := f.tables.Load()
	next := &route.Table{Version: last.Version + 1, Built: time.Now(), Source: "here", Wants: last.Wants, Ledger: last.Ledger,
		Models: make(map[string]*route.Model), Classes: make(map[route.ClassKey]*route.Class)}
	for _, e := range f.fleet.Set().Engines {
		for _, name := range e.Config.Models {
			m := next.Models[name]
			if m == nil {
				m = &route.Model{Name: name, Unlimited: true}
				next.Models[name] = m
			}
			m.Engines = append(m.Engines, e)
		}
	}
	comp := route.NewComponent("all", 0)
	for _, p := range last.Classes {
		comp = p.Component
	}
	pools := make(map[string]*route.Pool)
	for name, m := range next.Models {
		for _, key := range append([]route.ClassKey{{Model: name}}, extra...) {
			if key.Model != name {
				continue
			}
			cands := route.Candidates(m, key)
			for i := range cands {
				cands[i].Cost, cands[i].Used = f.cost, f.used
				if by := f.slower[cands[i].Engine.Name]; by > 0 {
					cands[i].Cost.Alone *= by
				}
			}
			id := fmt.Sprint(len(cands), cands[0].Engine.Name, cands[len(cands)-1].Engine.Name)
			if pools[id] == nil {
				var prev *route.Pool
				if was := last.Classes[key]; was != nil {
					prev = was.Pool
				}
				pools[id] = route.NewPool(cands, comp, prev, time.Now().Unix())
			}
			next.Classes[key] = &route.Class{Pool: pools[id], Traffic: next.Ledger.Of(key, time.Now())}
		}
	}
	f.tables.Publish(next)
}
