package selector

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/engine"
)

// A cordoned engine's conversations are guests elsewhere and return with it;
// those of a drained engine have settled elsewhere.
func TestConversationsOfAnEngineUnderOrders(t *testing.T) {
	for order, returns := range map[engine.Order]bool{engine.Cordon: true, engine.Drain: false} {
		t.Run(order.String(), func(t *testing.T) {
			f := newTestFleet(t, 4, "m")
			s := f.selector()
			away := f.fleet.Set().Engines[2]
			pick := func(key uint64, turns bool) *engine.Engine {
				t.Helper()
				var d Decision
				l := s.Pick(class(t, s, "m", Need{}), keyed(key, turns), &d)
				if l.Engine == nil {
					t.Fatal("nobody has room")
				}
				e := l.Engine
				l.Release()
				return e
			}
			homes := map[uint64]*engine.Engine{}
			for range 400 {
				key := rand.Uint64()
				homes[key] = pick(key, false)
			}
			away.SetOrder(order, time.Now())
			check := func(when string) (hosts map[uint64]*engine.Engine) {
				hosts = map[uint64]*engine.Engine{}
				for key, home := range homes {
					e := pick(key, true)
					hosts[key] = e
					if e == away || home != away && e != home {
						t.Fatalf("%s: a conversation of %s went to %s", when, home.Name, e.Name)
					}
				}
				return hosts
			}
			check("before the table knows")
			f.publish()
			hosts := check("by the new table")
			away.SetOrder(engine.Serve, time.Now())
			f.publish()
			for key, home := range homes {
				e := pick(key, true)
				switch {
				case home != away && e != home:
					t.Fatalf("a conversation of %s moved to %s as another engine returned", home.Name, e.Name)
				case home == away && returns && e != away:
					t.Fatalf("a conversation did not return, it is on %s", e.Name)
				case home == away && !returns && e != hosts[key]:
					t.Fatalf("a conversation that had settled on %s is on %s", hosts[key].Name, e.Name)
				}
			}
		})
	}
}
