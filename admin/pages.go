package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// engineRow is one element of GET /engines.
type engineRow struct {
	Name         string              `json:"name"`
	URL          string              `json:"url"`
	Cluster      string              `json:"cluster"`
	Models       []string            `json:"models"`
	State        string              `json:"state"`
	Reason       string              `json:"reason"`
	Since        time.Time           `json:"since"`
	InFlight     int64               `json:"in_flight"`
	MaxInFlight  int64               `json:"max_in_flight"`
	Capacity     *float64            `json:"capacity"` // requests/s; null = not configured
	Dialect      string              `json:"dialect"`
	DialectBy    string              `json:"dialect_by"` // how it is known
	Labels       map[string][]string `json:"labels"`
	Capabilities []string            `json:"capabilities"`
	Signals      *signals            `json:"signals"` // null = none
}

// signals is the engine's last sample; a field it did not give is null.
type signals struct {
	AgeMS   float64  `json:"age_ms"`
	Running *float64 `json:"running"`
	Waiting *float64 `json:"waiting"`
	KVUsed  *float64 `json:"kv_used"`
}

func enginesPage(set *engine.Set, now time.Time) []engineRow {
	rows := make([]engineRow, 0, len(set.Engines))
	for _, e := range set.Engines {
		status := e.Status()
		row := engineRow{
			Name: e.Name, URL: e.URL, Cluster: e.Cluster, Models: []string{}, Labels: e.Labels, Capacity: e.Capacity,
			State: status.State.String(), Reason: status.Reason.String(), Since: status.Since,
			InFlight: e.InFlight(), MaxInFlight: e.Cap(), Dialect: e.Dialect, DialectBy: "configured",
			Capabilities: strings.Split(e.Caps.String(), ","), Signals: signalsOf(e.Sample(), now),
		}
		if e.Caps == 0 {
			row.Capabilities = []string{}
		}
		if d := e.Detected(); d != nil {
			row.Dialect, row.DialectBy = d.Dialect, d.How
		}
		models, _ := e.Serves()
		for _, m := range models {
			row.Models = append(row.Models, m.ID)
		}
		rows = append(rows, row)
	}
	return rows
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
	return &signals{AgeMS: ms(s.Age(now)), Running: field(engine.FieldRunning, s.Running),
		Waiting: field(engine.FieldWaiting, s.Waiting), KVUsed: field(engine.FieldKVUsed, s.KVUsed)}
}

type table struct {
	Version uint64   `json:"version"`
	Built   string   `json:"built"`
	Reason  string   `json:"reason"`
	Policy  string   `json:"policy"`
	Weights []weight `json:"weights"`
}

type weight struct {
	Source string  `json:"source"`
	Class  string  `json:"class"`
	Engine string  `json:"engine"`
	Weight float64 `json:"weight"`
	Slots  int     `json:"slots"`
	Of     int     `json:"of_slots"`
}

func tablePage(t *route.Table) table {
	page := table{Version: t.Version, Built: t.Built.UTC().Format(time.RFC3339Nano), Reason: t.Reason.String(), Policy: t.Policy, Weights: []weight{}}
	for key, p := range t.Classes {
		counts := p.SlotCounts()
		for i := range p.Candidates {
			page.Weights = append(page.Weights, weight{Source: t.Source, Class: key.String(), Engine: p.Candidates[i].Engine.Name,
				Weight: p.Candidates[i].Weight, Slots: counts[i], Of: p.Slots()})
		}
	}
	slices.SortFunc(page.Weights, func(a, b weight) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Engine, b.Engine))
	})
	return page
}

// record is GET /requests/{id}.
type record struct {
	ID         string      `json:"id"`
	Time       time.Time   `json:"time"`
	Model      string      `json:"model"`
	Source     string      `json:"source"`
	Class      string      `json:"class"`
	KeySource  string      `json:"key_source"`
	Key        string      `json:"key,omitempty"`
	Engine     string      `json:"engine"`
	Why        string      `json:"why"`
	Table      uint64      `json:"table"`
	Candidates []candidate `json:"candidates"` // those the deciding pick looked at, in order
	Attempts   []attempt   `json:"attempts"`
	Outcome    string      `json:"outcome"` // empty while it runs
	Status     int         `json:"status,omitempty"`
	Code       string      `json:"code,omitempty"`
	TTFT       *float64    `json:"ttft_ms"`
	Total      *float64    `json:"total_ms"`
	Usage      *tokens     `json:"usage"`
	Stream     bool        `json:"stream"`
}

type candidate struct {
	Engine   string  `json:"engine"`
	Weight   float64 `json:"weight"`
	InFlight int64   `json:"in_flight"`
	Bound    int64   `json:"bound"`
	State    string  `json:"state"`
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
	page := record{ID: r.ID, Time: r.Time, Model: r.Model, Source: source, Class: r.Class, KeySource: r.KeySource,
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
		for _, l := range last.Decision.Looks[:last.Decision.N] {
			page.Candidates = append(page.Candidates, candidate{Engine: l.Engine.Name, Weight: float64(l.Weight), InFlight: int64(l.InFlight), Bound: int64(l.Bound), State: l.Fit.String()})
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
