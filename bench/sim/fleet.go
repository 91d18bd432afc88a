package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"penstock/balancer/profile"
	"penstock/engine/enginetest"
)

// Fleet is what there is, as a fleet file has it. Validate makes it whole.
type Fleet struct {
	Name    string       `toml:"name"`
	Network Network      `toml:"network"`
	Regions []Region     `toml:"region"`
	Engines []EngineSpec `toml:"engine"`
	Faults  []Fault      `toml:"fault"`

	// Period is that of the control cycle and of polls; SignalDelay how old
	// what a poll says is.
	Period      Duration `toml:"period"`
	SignalDelay Duration `toml:"signal_delay"`
}

// Region is a cluster with one gateway, where demand enters.
type Region struct {
	Name  string  `toml:"name"`
	Share float64 `toml:"share"` // of the demand that names no source
	// Swing makes the share go up and down by that part of itself over a Day,
	// Phase of a day later than at the others.
	Swing float64 `toml:"swing"`
	Phase float64 `toml:"phase"`
	// Bound: what enters here is to be served here, whatever happens (residency).
	Bound bool `toml:"bound"`
}

// EngineSpec is a number of equal engines.
type EngineSpec struct {
	Name        string  `toml:"name"`
	Region      string  `toml:"region"`
	Count       int     `toml:"count"` // 0: one
	Profile     string  `toml:"profile"`
	Step        float64 `toml:"step_ms"`
	PerSeq      float64 `toml:"per_seq_ms"`
	PerToken    float64 `toml:"per_token_ms"`
	PrefillStep float64 `toml:"prefill_step_ms"` // of a step that computes prompts only; 0: step_ms
	Slots       int     `toml:"slots"`
	KVTokens    int     `toml:"kv_tokens"`
	Chunk       int     `toml:"chunk_tokens"`
	QueueLimit  int     `toml:"queue_limit"` // waiting requests beyond which it answers 503; 0: none
	Zombies     bool    `toml:"zombies"`     // requests whose clients left are computed to their end
	Untold      bool    `toml:"untold"`      // gateways are not told its profile: they learn it
}

// Fault is something that happens to engines.
type Fault struct {
	At     Duration `toml:"at"`
	For    Duration `toml:"for"` // 0: for good
	Engine string   `toml:"engine"`
	Region string   `toml:"region"`
	Kind   string   `toml:"kind"` // down, slow (Factor times slower), flush (its prefix cache is lost)
	Factor float64  `toml:"factor"`
}

// Duration is a time.Duration that TOML writes as "1s".
type Duration time.Duration

// UnmarshalText reads the configuration value.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q: want a time such as 250ms, 1s or 10m", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

const (
	defaultPeriod = time.Second
	defaultSlots  = 256
	defaultChunk  = 2048
	defaultKV     = 400_000
	mostEngines   = 4096
	// Day is the period of a region's swing, in the time of the run.
	Day = 24 * time.Hour
)

// Complete gives what is not there its default and every engine a line of its own.
func (f *Fleet) Complete() error {
	f.Period = Duration(cmp.Or(time.Duration(f.Period), defaultPeriod))
	var engines []EngineSpec
	names := make(map[string]bool)
	regions := make(map[string]bool)
	for _, r := range f.Regions {
		regions[r.Name] = true
	}
	for at, e := range f.Engines {
		if err := e.complete(regions, names); err != nil {
			return faultOf("engine", at, "%v", err)
		}
		n := max(1, e.Count)
		for k := range n {
			one := e
			one.Count = 1
			if n > 1 {
				one.Name = fmt.Sprintf("%s-%d", e.Name, k+1)
			}
			engines = append(engines, one)
		}
	}
	f.Engines = engines
	return f.check()
}

func (e *EngineSpec) complete(regions, names map[string]bool) error {
	if e.Name == "" || names[e.Name] {
		return fmt.Errorf("name %q: want one that no other has", e.Name)
	}
	names[e.Name] = true
	if !regions[e.Region] {
		return fmt.Errorf("region %q has no [[region]]", e.Region)
	}
	if e.Profile != "" {
		p, ok := profile.Shipped(e.Profile)
		if !ok {
			return fmt.Errorf("profile %q is not one that is shipped; `penstock fit --shipped` lists them", e.Profile)
		}
		e.Step, e.PerSeq, e.PerToken = cmp.Or(e.Step, p.Step), cmp.Or(e.PerSeq, p.PerSeq), cmp.Or(e.PerToken, p.PerToken)
	}
	e.PrefillStep = cmp.Or(e.PrefillStep, e.Step)
	e.Slots, e.Chunk, e.KVTokens = cmp.Or(e.Slots, defaultSlots), cmp.Or(e.Chunk, defaultChunk), cmp.Or(e.KVTokens, defaultKV)
	if !(e.Step > 0) || e.PerSeq < 0 || e.PerToken < 0 || e.Slots < 1 || e.Chunk < 1 || e.KVTokens < 64 {
		return fmt.Errorf("want profile, or step_ms above 0 with per_seq_ms and per_token_ms; slots, chunk_tokens and kv_tokens above 0")
	}
	return nil
}

// check finds what a run could not be made of.
func (f *Fleet) check() error {
	if len(f.Regions) == 0 || len(f.Engines) == 0 {
		return fmt.Errorf("want at least one [[region]] and one [[engine]]")
	}
	if len(f.Engines) > mostEngines {
		return fmt.Errorf("%d engines: want at most %d", len(f.Engines), mostEngines)
	}
	seen := make(map[string]bool)
	for i, r := range f.Regions {
		if r.Name == "" || seen[r.Name] {
			return faultOf("region", i, "name %q: want one that no other has", r.Name)
		}
		if r.Share < 0 || r.Swing < 0 || r.Swing > 1 {
			return faultOf("region", i, "want a share of 0 or more and a swing from 0 to 1")
		}
		seen[r.Name] = true
	}
	names := make(map[string]bool)
	for _, e := range f.Engines {
		names[e.Name] = true
	}
	for i := range f.Faults {
		if err := f.Faults[i].check(seen, names); err != nil {
			return faultOf("fault", i, "%v", err)
		}
	}
	return f.Network.complete(f.Regions)
}

func (x *Fault) check(regions, engines map[string]bool) error {
	switch {
	case !slices.Contains([]string{"down", "slow", "flush"}, x.Kind):
		return fmt.Errorf("kind %q: want down, slow or flush", x.Kind)
	case (x.Engine == "") == (x.Region == ""):
		return fmt.Errorf("want either engine or region")
	case x.Engine != "" && !engines[x.Engine]:
		return fmt.Errorf("no engine is called %q", x.Engine)
	case x.Region != "" && !regions[x.Region]:
		return fmt.Errorf("no region is called %q", x.Region)
	case x.Kind == "slow" && !(x.Factor > 0):
		return fmt.Errorf("slow wants a factor above 0, such as 3 for a third of the speed")
	}
	return nil
}

func ms(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// model is the engine as its batch wants it.
func (e *EngineSpec) model(blockTokens int) enginetest.Model {
	return enginetest.Model{Slots: e.Slots, Blocks: max(1, e.KVTokens/blockTokens), BlockTokens: blockTokens, ChunkTokens: e.Chunk,
		Base: ms(e.Step), PrefillBase: ms(e.PrefillStep), PerSeq: ms(e.PerSeq), PerPrefill: ms(e.PerToken)}
}
