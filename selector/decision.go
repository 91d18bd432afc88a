package selector

import (
	"penstock/engine"
	"penstock/route"
)

// Why says by which rule an engine was picked.
type Why uint8

const (
	WhySlot       Why = iota // the slot of its key
	WhyRemembered            // where the conversation was before
	WhyPrevious              // its slot moved, the cache is still on the engine before
	WhyPlaced                // a new conversation, placed on the alternate, which is lighter
	WhyAlternate             // spilled to a fixed alternate of its slot
	WhySpillDraw             // spilled to the lighter of two draws
	WhyDraw                  // no key: the lighter of two draws by weight
	WhyAnyRoom               // the one candidate with room that was found
	WhyHolder                // it holds what the request names by an id
	// By the rules beside the planned one (rules.go):
	WhyRandom  // drawn by weight
	WhyTurn    // its turn
	WhyFewest  // fewest in flight of all
	WhyLighter // the lighter of two drawn evenly
	WhyHashed  // the slot's engine, within the bound
	WhyNext    // the slot's engine was at the bound: a next one
	whyCount
)

func (w Why) String() string {
	return [...]string{"slot", "remembered", "previous", "placed", "alternate", "spill_draw", "draw", "any_room", "holder",
		"random", "turn", "fewest", "lighter", "hashed", "next"}[w]
}

// Ask is what a pick depends on beside the class.
type Ask struct {
	Key          uint64 // slot key, of Keyer
	Keyed        bool
	EarlierTurns bool // the request shows turns before this one
	Prompt       int  // tokens of its prompt, as guessed
	Now          int64
	Chance       uint64          // what a draw takes for chance; 0: drawn at the pick
	Tried        [3]*engine.Live // engines of earlier attempts of the request
	Tries        int
}

func (a *Ask) tried(l *engine.Live) bool {
	for _, t := range a.Tried[:a.Tries] {
		if t == l {
			return true
		}
	}
	return false
}

// AddTried excludes an engine from the request's later picks.
func (a *Ask) AddTried(e *engine.Engine) {
	if a.Tries < len(a.Tried) {
		a.Tried[a.Tries] = e.Live
		a.Tries++
	}
}

// Fit is what became of a candidate that a pick looked at.
type Fit uint8

const (
	Picked    Fit = iota
	AtBound       // in flight at its bound
	AtCap         // in flight at its cap
	Out           // takes no traffic, or weight 0
	TriedYet      // an earlier attempt of this request was on it
	Heavier       // another one was lighter
	Penalised     // its penalty keeps this conversation away for now
)

func (f Fit) String() string {
	return [...]string{"picked", "at_bound", "at_cap", "out", "tried", "heavier", "penalised"}[f]
}

// Look is one candidate that a pick considered.
type Look struct {
	Engine   *engine.Engine
	Weight   float32
	InFlight int32 // before the pick
	Fit      Fit
	Cost     float32          // ms that the request was taken to cost there; 0: not compared by cost
	allowed  engine.Allowance // what protection had left of it
	limit    limit
}

// Bound is what the candidate's in-flight was held to, this pick included.
func (l *Look) Bound() int64 { return l.limit.allowed(l.allowed.Factor()) }

// Factor is what protection had left of the candidate's weight.
func (l *Look) Factor() float64 { return l.allowed.Factor() }

// Decision is the record of a pick: what was looked at, in order, and the rule
// that decided. It is filled in place and holds no memory of its own.
type Decision struct {
	Why   Why
	Rule  route.Rule
	Looks [6]Look
	N     int
	Table uint64 // version
}

// look notes a candidate. Of more than there is room for, those in between are
// left out: the one that was picked is always the last.
func (d *Decision) look(c *route.Candidate, n int64, l limit, f Fit) {
	at := d.N
	if at >= len(d.Looks) {
		if f != Picked {
			return
		}
		at = len(d.Looks) - 1
	}
	d.Looks[at] = Look{Engine: c.Engine, Weight: float32(c.Weight), InFlight: int32(n), Fit: f, limit: l}
	d.N = at + 1
}
