package route

import (
	"strings"
	"sync/atomic"
	"time"

	"penstock/engine"
)

// Reason says why a table was published.
type Reason uint8

const (
	ReasonStart   Reason = iota // the first table of this process
	ReasonEngines               // the set of engines, or what is configured of them, changed
	ReasonState                 // an engine became ready or went down
	ReasonModels                // an engine serves other models than before
	ReasonClass                 // a new class of requests was seen
	ReasonDrained               // conversations of moved slots have had their KV lifetime
	ReasonPlan                  // the plan moved weights
	ReasonPolicy                // another policy decides
)

func (r Reason) String() string {
	return [...]string{"start", "engines", "state", "models", "class", "drained", "plan", "policy"}[r]
}

// Model is one name that requests can ask for, and who serves it.
type Model struct {
	Name    string
	Engines []*engine.Engine // all that serve it, ready or not, sorted by name
	// Limits are the distinct context lengths of its engines in tokens,
	// ascending; an engine that has not told its length is in none.
	Limits []int
	// unlimited is set where some engine has not told a context length.
	Unlimited bool
	// Adapter is set where all its engines list it as an adapter of another.
	Adapter bool
}

// Need is what a request demands of an engine beyond the model.
type Need struct {
	Caps    engine.Capability
	Context int    // lower bound of the prompt in tokens; 0 = no claim
	Require string // canonical "name=value,name=value", sorted; "" = none
}

// ClassKey names a class: which engines may serve a request.
type ClassKey struct {
	Model   string
	Caps    engine.Capability
	Tier    uint8 // engines with Limits[:Tier] are too short for the prompt
	Require string
}

// String names the class in words: the model, then what else is demanded.
func (k ClassKey) String() string {
	if k.Caps == 0 && k.Tier == 0 && k.Require == "" {
		return k.Model
	}
	var b strings.Builder
	b.WriteString(k.Model)
	if k.Caps != 0 {
		b.WriteString(" needs " + k.Caps.String())
	}
	if k.Tier != 0 {
		b.WriteString(" long")
	}
	if k.Require != "" {
		b.WriteString(" require " + k.Require)
	}
	return b.String()
}

// Table is one published routing decision. Immutable.
type Table struct {
	Version uint64
	Built   time.Time
	Reason  Reason
	Policy  string
	Rule    Rule
	Plan    *Plan  // what the weights follow; nil: capacity alone
	Source  string // the cluster in which requests enter
	Models  map[string]*Model
	Classes map[ClassKey]*Class
	Engines []*engine.Engine // all, by Live.ID; nil where an id is not in use
	// Untold is set while some engine has never said what it serves: then an
	// unknown model may still turn out to be known.
	Untold bool
	// Shared is set where other gateways of the source serve the same
	// conversations: slots are then made without regard to what was.
	Shared bool
	Wants  *Wants
	Ledger *Ledger
}

// Class is what a table says of one class: who serves it, and where its
// requests are counted. Classes with the same candidates share a pool.
// Immutable.
type Class struct {
	*Pool
	Traffic *Traffic
	Shed    [Priorities]float64 // planned fractions to refuse at admission
}

// Tier is the number of context limits that a prompt of at least tokens
// exceeds. A prompt that exceeds all of them excludes nobody: the engine's
// own answer says it best.
func (m *Model) Tier(tokens int) uint8 {
	n := 0
	for n < len(m.Limits) && m.Limits[n] < tokens && n < 255 {
		n++
	}
	if n == len(m.Limits) && !m.Unlimited {
		return 0
	}
	return uint8(n)
}

// Class finds a class. A nil model means that nobody serves that name. A nil
// class means that it has no slot table yet: the caller
// picks from NewAdHoc and the class has a table from the next cycle on.
func (t *Table) Class(model string, need Need) (*Model, ClassKey, *Class) {
	m := t.Models[model]
	if m == nil {
		return nil, ClassKey{}, nil
	}
	key := ClassKey{Model: m.Name, Caps: need.Caps, Tier: m.Tier(need.Context), Require: need.Require}
	return m, key, t.Classes[key]
}

// Engine finds an engine by its id, nil if there is none.
func (t *Table) Engine(id uint16) *engine.Engine {
	if int(id) >= len(t.Engines) {
		return nil
	}
	return t.Engines[id]
}

// Published is the pointer that the request path reads: one load, never nil.
type Published struct{ table atomic.Pointer[Table] }

// NewPublished holds an empty table, version 0.
func NewPublished(source string) *Published {
	p := &Published{}
	p.table.Store(&Table{Source: source, Untold: true, Wants: NewWants(), Ledger: NewLedger()})
	return p
}

// Continue makes the versions of tables go on from one that an earlier process
// published.
func (p *Published) Continue(version uint64) {
	t := *p.table.Load()
	t.Version = version
	p.table.Store(&t)
}

// Share says whether other gateways of the source serve the same conversations;
// the next table follows it.
func (p *Published) Share(shared bool) {
	t := *p.table.Load()
	t.Shared = shared
	p.table.Store(&t)
}

// Load returns the current table.
func (p *Published) Load() *Table { return p.table.Load() }

// Publish installs t. Versions only grow: an older one is refused.
func (p *Published) Publish(t *Table) bool {
	for {
		old := p.table.Load()
		if t.Version <= old.Version {
			return false
		}
		if p.table.CompareAndSwap(old, t) {
			return true
		}
	}
}
