package engine

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

// Config is one [[engine]] table of the configuration file.
type Config struct {
	Name         string              `toml:"name"`
	URL          string              `toml:"url"`
	Cluster      string              `toml:"cluster"`
	Dialect      string              `toml:"dialect"`
	Models       []string            `toml:"models"`
	Labels       map[string][]string `toml:"labels"`
	Capabilities []string            `toml:"capabilities"`  // nil: all that the dialect can do
	Capacity     *float64            `toml:"capacity"`      // requests/s; nil: unknown, 0: takes no load
	MaxInFlight  int                 `toml:"max_in_flight"` // 0: not configured
	Replicas     int                 `toml:"replicas"`      // ready replicas behind the URL, where a balancer hides them; 0: one
	Profile      *Profile            `toml:"profile"`       // nil: learned

	Key             SecretFile `toml:"key,file"`         // sent to the engine as Authorization: Bearer
	PassCredentials bool       `toml:"pass_credentials"` // requests carry their client's credentials instead
	PassHeaders     []string   `toml:"pass_headers"`     // client headers handed on beyond the default list
	CAFile          string     `toml:"ca_file,path"`     // authorities for an https engine, beside the system's
	TLSServerName   string     `toml:"tls_server_name"`  // that its certificate is for; "" = the host of url

	foundBy string // the listing of discovery that has it; "" = the configuration file
}

// FoundBy says where the engine is listed: "config", "dns NAME" or "file_sd PATH".
func (c *Config) FoundBy() string { return cmp.Or(c.foundBy, "config") }

// DefaultSlots is S of protection.md 2 where nothing is known of an engine:
// the requests it is taken to run at once. The in-flight cap K leaves
// headroom h = 0.15 above it, so that a queue of its own keeps it busy.
const (
	DefaultSlots = 256
	headroom     = 0.15 // h
)

// Engine is one configured inference server. Immutable.
type Engine struct {
	Config
	Base *url.URL   // root of the engine's API, no trailing slash
	caps Capability // words of what the configuration lets it be used for; Can has the whole
	K    int64      // in-flight cap: attempts at once
	*Live

	creds *credentials // nil: no key
	pass  *passing     // nil: no header beyond the default list
}

// New builds the engine of a validated Config around live. The caller has
// checked the Config (Config.Validate); New panics on a URL that does not parse.
func New(c Config, live *Live) *Engine {
	u, err := url.Parse(c.URL)
	if err != nil {
		panic("engine: unvalidated url " + c.URL)
	}
	for len(u.Path) > 0 && u.Path[len(u.Path)-1] == '/' {
		u.Path = u.Path[:len(u.Path)-1]
	}
	k := int64(c.MaxInFlight)
	if k == 0 {
		k = capFor(DefaultSlots) * c.replicas()
	}
	return &Engine{Config: c, Base: u, caps: capabilities(c.Capabilities), K: k, Live: live,
		creds: newCredentials(c.Key), pass: newPassing(c.PassHeaders)}
}

// capFor is K = ceil(S (1 + h)).
func capFor(slots int) int64 { return int64(math.Ceil(float64(slots) * (1 + headroom))) }

// slotsBeyond is how many requests more than its slots an engine that tells
// its slots (llama.cpp) may hold: it has that many HTTP threads more, and with
// none left it answers no health probe either.
const slotsBeyond = 4

// Cap is the in-flight cap as it stands: K, or what follows from the slots
// that the engine told of itself where the configuration sets no max_in_flight.
func (e *Engine) Cap() int64 {
	if d := e.Detected(); d != nil && d.Cap > 0 && e.MaxInFlight == 0 {
		return d.Cap * e.replicas()
	}
	return e.K
}

// replicas is how many engines the URL stands for.
func (c *Config) replicas() int64 { return int64(max(1, c.Replicas)) }

// Satisfies reports whether the engine carries label name with that value.
// A missing label never satisfies anything.
func (e *Engine) Satisfies(name, value string) bool {
	return slices.Contains(e.Labels[name], value)
}

// Live is what changes about an engine while Penstock runs. It is created
// once per (name, url) and keeps its identity over reloads.
//
// Its first cache line is all that a pick touches: every pick and release
// writes inflight. What is read now and then is elsewhere, so that ten
// thousand engines take no more of a processor's cache than they must.
type Live struct {
	inflight  atomic.Int64
	most      atomic.Int64 // what Acquire allows whatever its caller's limit; see learnedCap
	state     atomic.Uint32
	allowance atomic.Uint32
	ID        uint16 // unique among the engines of the fleet; reused after removal
	_         [6]byte
	prompts   atomic.Int64
	others    atomic.Int64
	_         [16]byte

	*observed
	_ [56]byte
}

// observed is what is known of an engine besides.
type observed struct {
	standing
	sample  atomic.Pointer[Sample]
	models  atomic.Pointer[ModelList]
	dialect atomic.Pointer[Detected]
	detail  atomic.Pointer[string] // see Detail

	// progress is when a byte of an answer last arrived (UnixNano, coarse):
	// it keeps a slow health probe from condemning an engine that works.
	progress atomic.Int64
	suspect  chan struct{} // capacity 1: the proxy asks for a probe at once

	abandoned abandoned
	answers   answers
	roundTrip roundTrip
	learned   learnedCap

	protection atomic.Pointer[Protection]
	trials     atomic.Pointer[func() *Trial]

	signalAt atomic.Int64 // when signals last came (UnixNano); creation before the first
	polls    pollCounts
}

func newLive(id uint16) *Live {
	l := &Live{ID: id, observed: &observed{suspect: make(chan struct{}, 1)}}
	l.most.Store(noCap)
	now := time.Now()
	l.standing.health = Status{State: Starting, Reason: ReasonNoAnswerYet, Since: now}
	l.publishLocked()
	l.signalAt.Store(now.UnixNano())
	return l
}

// NewLive returns the live part of an engine outside a Fleet, for tests and
// simulations.
func NewLive(id uint16) *Live { return newLive(id) }

// InFlight is the number of attempts that hold a lease on the engine.
func (l *Live) InFlight() int64 { return l.inflight.Load() }

// Acquire takes one place if fewer than limit are taken, and fewer than the
// engine has shown to take. It never overshoots: a failed call has changed
// nothing, so two callers cannot refuse each other the last place.
func (l *Live) Acquire(limit int64) bool {
	for {
		n := l.inflight.Load()
		if n >= limit || n >= l.most.Load() {
			return false
		}
		if l.inflight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives back one place taken by Acquire.
func (l *Live) Release() { l.inflight.Add(-1) }

// Prompts is how many tokens of prompts were sent to the engine that has not
// begun to answer them, about.
func (l *Live) Prompts() int64 { return l.prompts.Load() }

// AddPrompts counts prompts that are sent, or with a negative number those
// whose answer has begun or that are given up.
func (l *Live) AddPrompts(tokens int64) { l.prompts.Add(tokens) }

// Others is how many requests the engine has that are none of ours, as far as
// its metrics tell; 0 where they do not.
func (l *Live) Others() int64 { return l.others.Load() }

// SetOthers publishes it. The control cycle calls it, which knows what of the
// metrics is believed.
func (l *Live) SetOthers(n int64) {
	if l.others.Load() != n { // picks read this cache line
		l.others.Store(n)
	}
}

// Sample is the last scrape of the engine's metrics; nil before the first.
func (l *Live) Sample() *Sample { return l.sample.Load() }

// SetSample publishes a scrape, which is the Live's from then on.
func (l *Live) SetSample(s *Sample) {
	if s != nil {
		s.Ours = float64(l.InFlight())
	}
	l.sample.Store(s)
}

// Models is the last list the engine gave of what it serves; nil before the first.
func (l *Live) Models() *ModelList { return l.models.Load() }

// SetModels publishes a model list.
func (l *Live) SetModels(m *ModelList) { l.models.Store(m) }

// Detected is what kind of engine it turned out to be, and how that was found.
func (l *Live) Detected() *Detected { return l.dialect.Load() }

// SetDetected publishes what kind of engine it is.
func (l *Live) SetDetected(d *Detected) { l.dialect.Store(d) }

// Detail is what TLS had against the engine at its last probe, for people to
// read; "" if nothing.
func (l *Live) Detail() string {
	if d := l.detail.Load(); d != nil {
		return *d
	}
	return ""
}

// Progress notes that a part of an answer has just arrived.
func (l *Live) Progress(now time.Time) { l.progress.Store(now.UnixNano()) }

// ProgressAge is the time since the last Progress; very long if there was none.
func (l *Live) ProgressAge(now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - l.progress.Load())
}

// Suspect asks the poller to look at the engine now: the proxy calls it when
// a connection was refused or a listed model was not there. Never blocks.
func (l *Live) Suspect() {
	select {
	case l.suspect <- struct{}{}:
	default:
	}
}
