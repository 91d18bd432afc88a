package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// usage is what parts took of processors during the measured time; 1 = one
// processor. Machine is the share of all of them that was busy, others' work
// included.
type usage struct {
	Gateway float64 `json:"gateway"`
	Engines float64 `json:"engines"`
	Load    float64 `json:"load"`
	Machine float64 `json:"machine"`
}

func (u usage) String() string {
	return fmt.Sprintf("gateway %.2f engines %.2f load %.2f, machine %.0f %%", u.Gateway, u.Engines, u.Load, 100*u.Machine)
}

// meter reads the counters of a run's processes.
type meter struct {
	f *fleet

	mu       sync.Mutex // guards what is below: timers write it
	from, to reading
	facts    []engineFacts
}

type reading struct {
	at                     time.Time
	gateway, engines, load time.Duration
	busy, all              time.Duration
}

func newMeter(f *fleet) *meter { return &meter{f: f} }

func (m *meter) read() (r reading) {
	r.at = time.Now()
	if m.f.gateway != nil {
		r.gateway = cpuTime(m.f.gateway.ID())
	}
	for _, e := range m.f.engines {
		r.engines += cpuTime(e.ID())
	}
	r.load = cpuTime(os.Getpid())
	r.busy, r.all = machineTime()
	return r
}

func (m *meter) begin() {
	r := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.from = r
}

func (m *meter) end() {
	r, facts := m.read(), m.ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to, m.facts = r, facts
}

// used is what the parts took between begin and end.
func (m *meter) used() (u usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	span := m.to.at.Sub(m.from.at).Seconds()
	if span <= 0 {
		return u
	}
	share := func(a, b time.Duration) float64 { return max(0, (b-a).Seconds()/span) }
	u = usage{Gateway: share(m.from.gateway, m.to.gateway), Engines: share(m.from.engines, m.to.engines), Load: share(m.from.load, m.to.load)}
	if all := m.to.all - m.from.all; all > 0 {
		u.Machine = float64(m.to.busy-m.from.busy) / float64(all)
	}
	return u
}

// tablePage is what is read of the gateway's /table.
type tablePage struct {
	Weights []struct {
		Engine string
		Weight float64
	}
	Plan *struct {
		Engines []struct {
			Engine         string
			Load, Capacity float64
		}
	}
	Proofs []struct {
		Problem struct {
			Engines []struct {
				Name     string
				Capacity float64
				Latency  struct {
					Base  float64 `json:"base_ms"`
					Slope float64 `json:"slope_ms"`
				}
			}
		}
	}
}

// ask reads what the gateway says about its engines.
func (m *meter) ask() []engineFacts {
	if m.f.gateway == nil {
		return nil
	}
	resp, err := http.Get("http://" + m.f.gateway.Admin + "/table")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var page tablePage
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&page) != nil {
		return nil
	}
	return page.facts(m.f.s)
}

// facts are those of the scenario's engines, in their order.
func (t *tablePage) facts(s *scenario) []engineFacts {
	facts := make([]engineFacts, len(s.speeds))
	of := func(name string) *engineFacts {
		for i := range facts {
			if s.engineName(i) == name {
				return &facts[i]
			}
		}
		return &engineFacts{}
	}
	for _, w := range t.Weights {
		of(w.Engine).Weight = w.Weight
	}
	if t.Plan != nil {
		for _, e := range t.Plan.Engines {
			of(e.Engine).Load, of(e.Engine).Capacity = e.Load, e.Capacity
		}
	}
	for _, p := range t.Proofs {
		for _, e := range p.Problem.Engines {
			of(e.Name).Zero, of(e.Name).Capacity = e.Latency.Base+e.Latency.Slope, e.Capacity
		}
	}
	return facts
}

// learned is what the gateway said at the end of the measured time.
func (m *meter) learned() []engineFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}
