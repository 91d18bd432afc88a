package admin

import (
	"fmt"
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// engineRow is one element of GET /engines.
type engineRow struct {
	Name         string              `json:"name"`
	URL          string              `json:"url"`
	Cluster      string              `json:"cluster"`
	FoundBy      string              `json:"found_by"` // "config", "dns NAME", "file_sd PATH"
	Models       []string            `json:"models"`
	State        string              `json:"state"`
	Reason       string              `json:"reason"`
	Detail       string              `json:"detail,omitempty"` // what TLS has against it
	Since        time.Time           `json:"since"`
	Order        string              `json:"order"`     // an operator's: serve, cordon or drain
	Health       string              `json:"health"`    // what state would be without an order
	Factor       float64             `json:"factor"`    // what penalty, slow start and busy leave of its weight
	Penalty      float64             `json:"penalty"`   // what its penalty alone leaves
	Breaker      string              `json:"breaker"`   // closed, open or half_open
	Lifted       bool                `json:"lifted"`    // its breaker is ignored: too much of its models' capacity is out
	Busy         bool                `json:"busy"`      // it said a moment ago that it is full
	Slow         bool                `json:"slow"`      // much slower than its peers
	Attention    string              `json:"attention"` // what a person should look at; "" = nothing
	InFlight     int64               `json:"in_flight"`
	RoundTrip    *float64            `json:"round_trip_ms"` // the least of a connection's set-up; null = not measured
	Abandoned    int64               `json:"abandoned"`     // part of in_flight: nobody waits for them, the engine works on
	MaxInFlight  int64               `json:"max_in_flight"`
	Capacity     *float64            `json:"capacity"` // requests/s; null = not configured
	Dialect      string              `json:"dialect"`
	DialectBy    string              `json:"dialect_by"` // how it is known
	Version      string              `json:"version"`    // as it says; "" = not told
	Labels       map[string][]string `json:"labels"`
	Capabilities []string            `json:"capabilities"`
	Paths        []string            `json:"paths"`   // of the API, beyond those that all engines serve
	Signals      *signals            `json:"signals"` // null = none
}

// signals is the engine's last sample; a field it did not give is null.
type signals struct {
	AgeMS   float64  `json:"age_ms"`
	Running *float64 `json:"running"`
	Waiting *float64 `json:"waiting"`
	KVUsed  *float64 `json:"kv_used"`

	Adapters *adapters `json:"adapters"` // in use; null = not told
}

type adapters struct {
	Running []string `json:"running"`
	Waiting []string `json:"waiting"`
	Max     int      `json:"max"` // 0 = not told
}

func enginesPage(set *engine.Set, now time.Time) []engineRow {
	rows := make([]engineRow, 0, len(set.Engines))
	for _, e := range set.Engines {
		rows = append(rows, engineRowOf(e, now))
	}
	return rows
}

func engineRowOf(e *engine.Engine, now time.Time) engineRow {
	status := e.Status()
	order, _ := e.Order()
	guard := e.Protection()
	row := engineRow{
		Name: e.Name, URL: e.URL, Cluster: e.Cluster, FoundBy: e.FoundBy(), Models: []string{}, Labels: e.Labels, Capacity: e.Capacity,
		State: status.State.String(), Reason: status.Reason.String(), Detail: e.Detail(), Since: status.Since,
		Order: order.String(), Health: e.Health().State.String(),
		Factor: e.Allowance().Factor(), Penalty: guard.Penalty, Breaker: guard.Breaker.String(), Lifted: guard.Lifted, Busy: guard.Busy, Slow: guard.Slow, Attention: guard.Attention,
		InFlight: e.InFlight(), Abandoned: e.Abandoned(), MaxInFlight: e.Cap(), Dialect: e.Dialect, DialectBy: "configured",
		Capabilities: e.Can().Words().Names(), Paths: e.Can().Paths().Names(), Signals: signalsOf(e.Sample(), now),
	}
	if rtt := e.RoundTrip(); rtt > 0 {
		ms := float64(rtt) / float64(time.Millisecond)
		row.RoundTrip = &ms
	}
	if d := e.Detected(); d != nil {
		row.Dialect, row.DialectBy, row.Version = d.Dialect, d.How, d.Version
	} else if row.Dialect == "" || row.Dialect == engine.DialectAuto {
		row.Dialect, row.DialectBy = engine.DialectAuto, "not identified yet"
	}
	models, _ := e.Serves()
	for _, m := range models {
		row.Models = append(row.Models, m.ID)
	}
	return row
}

func signalsOf(s *engine.Sample, now time.Time) *signals {
	if s == nil {
		return nil
	}
	field := func(f engine.Field, v float64) *float64 {
		if s.Has&f == 0 {
			return nil
		}
		return &v
	}
	page := &signals{AgeMS: ms(s.Age(now)), Running: field(engine.FieldRunning, s.Running),
		Waiting: field(engine.FieldWaiting, s.Waiting), KVUsed: field(engine.FieldKVUsed, s.KVUsed)}
	if a := s.Adapters; a != nil {
		page.Adapters = &adapters{Running: append([]string{}, a.Running...), Waiting: append([]string{}, a.Waiting...), Max: a.Max}
	}
	return page
}

// record is GET /requests/{id}.
type record struct {
	ID         string      `json:"id"`
	Time       time.Time   `json:"time"`
	Model      string      `json:"model"`
	Source     string      `json:"source"`
	Class      string      `json:"class"`
	Tenant     string      `json:"tenant"`
	Priority   string      `json:"priority"`
	KeySource  string      `json:"key_source"`
	Key        string      `json:"key,omitempty"`
	Engine     string      `json:"engine"`
	Why        string      `json:"why"`
	Rule       string      `json:"rule,omitempty"` // that picked; empty where there was no choice
	Table      uint64      `json:"table"`
	Planned    *planned    `json:"planned,omitempty"` // absent where the table has changed since, or another gateway plans
	Slot       *slot       `json:"slot,omitempty"`    // of its key, in the table in use now; absent without a key or a slot table
	Candidates []candidate `json:"candidates"`        // those the deciding pick looked at, in order
	Excluded   []excluded  `json:"excluded"`          // engines that could not have served it
	Attempts   []attempt   `json:"attempts"`
	Outcome    string      `json:"outcome"` // empty while it runs
	Status     int         `json:"status,omitempty"`
	Code       string      `json:"code,omitempty"`
	TTFT       *float64    `json:"ttft_ms"`
	Total      *float64    `json:"total_ms"`
	Usage      *tokens     `json:"usage"`
	Stream     bool        `json:"stream"`
}

// planned is what the table that decided had in mind for the request's class.
type planned struct {
	Share    float64 `json:"share"` // of the class's requests on the engine
	RunnerUp string  `json:"runner_up,omitempty"`
	Dearer   float64 `json:"runner_up_ms"`
}

// planFor finds what the plan says of a request, where its table is still in
// use.
func planFor(page *record, t *route.Table, d *balancer.Decision) *planned {
	if d == nil || t.Version != page.Table || t.Plan != d.Plan {
		return nil
	}
	whys := d.Explain()
	for i := range d.Plan.Rows {
		row := &d.Plan.Rows[i]
		if row.Source != t.Source || row.Class.String() != page.Class {
			continue
		}
		p := &planned{RunnerUp: whys[i].RunnerUp, Dearer: whys[i].Dearer}
		for _, w := range row.Weights {
			if w.Engine == page.Engine {
				p.Share = w.Weight
			}
		}
		return p
	}
	return nil
}

type candidate struct {
	Engine   string  `json:"engine"`
	Weight   float64 `json:"weight"`
	InFlight int64   `json:"in_flight"`
	Bound    int64   `json:"bound"`
	Factor   float64 `json:"factor"` // what protection had left of it
	State    string  `json:"state"`
	Cost     float64 `json:"cost_ms,omitempty"` // of the request there, others' delay included; 0: not compared

	// What the bound follows from.
	Share     float64 `json:"share"`               // of what is in flight on the component; 0: the cap alone
	Component int64   `json:"component_in_flight"` // before the pick
	Cap       int64   `json:"cap"`
}

type attempt struct {
	Engine  string  `json:"engine"`
	Why     string  `json:"why"`
	Outcome string  `json:"outcome"`
	Cause   string  `json:"cause"`
	MS      float64 `json:"ms"`
}

type tokens struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Cached     int `json:"cached_tokens"`
}

func recordPage(r *selector.Record, source string) record {
	attempts, end := r.Attempts()
	page := record{ID: r.ID, Time: r.Time, Model: r.Model, Source: source, Class: r.Class.String(), Tenant: r.Tenant, Priority: r.Priority, KeySource: r.KeySource,
		Candidates: []candidate{}, Attempts: []attempt{}, Stream: r.Stream}
	if r.Keyed {
		page.Key = fmt.Sprintf("%016x", r.Key)
	}
	for _, a := range attempts {
		cause := a.Cause
		if cause == "none" {
			cause = ""
		}
		page.Attempts = append(page.Attempts, attempt{Engine: a.Engine, Why: a.Decision.Why.String(), Outcome: a.Outcome, Cause: cause, MS: ms(a.Took)})
	}
	if n := len(attempts); n > 0 {
		last := attempts[n-1]
		page.Engine, page.Why, page.Table = last.Engine, last.Decision.Why.String(), last.Decision.Table
		if last.Decision.Why != selector.WhyHolder {
			page.Rule = last.Decision.Rule.String()
		}
		for _, l := range last.Decision.Looks[:last.Decision.N] {
			share, component, most := l.Basis()
			page.Candidates = append(page.Candidates, candidate{Engine: l.Engine.Name, Weight: float64(l.Weight), InFlight: int64(l.InFlight), Bound: l.Bound(), Factor: l.Factor(), State: l.Fit.String(),
				Cost: float64(l.Cost), Share: share, Component: component, Cap: most})
		}
	}
	if end.Done {
		page.Outcome, page.Status, page.Code = end.Outcome, end.Status, end.Code
		page.Total = ptr(ms(end.Total))
		if end.TTFT > 0 {
			page.TTFT = ptr(ms(end.TTFT))
		}
		if end.PromptTokens+end.CompletionTokens > 0 {
			page.Usage = &tokens{end.PromptTokens, end.CompletionTokens, end.CachedTokens}
		}
	}
	return page
}

func ptr(v float64) *float64 { return &v }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
