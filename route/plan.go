package route

import "time"

// Priorities is how many there are (protect.Priority): critical, standard and
// sheddable, in this order.
const Priorities = 3

// Demand is what one gateway tells once a cycle: what its clients ask for, and
// what it sees of engines from where it stands.
type Demand struct {
	Gateway  string
	Source   string // the cluster in which its requests enter
	Replicas int    // gateways like it for which it speaks, itself included
	At       time.Time
	Rows     []DemandRow
	Engines  []Sighting
}

// DemandRow is the smoothed demand of one class and priority.
type DemandRow struct {
	Class    ClassKey
	Priority uint8
	// Rate is what was offered in requests/s, before any shed. Requests that a
	// client says it repeats are in Retries alone.
	Rate, Retries float64
	Lately        [LatelyWindows]Lately
	// Tokens of the mean request; Cached are those of Prompt that the engines had.
	Prompt, Cached, Output float64
}

// LatelyWindows is how many windows of the last seconds are told: of 1, 2 and 4 s.
const LatelyWindows = 3

// Lately is what was offered within a window, what the told rate let expect, and
// the variance that this has by chance. A step of the demand that is in none of
// many sources more than chance may be in all of them together.
type Lately struct{ Requests, Expected, Variance float64 }

// Sighting is an engine as one gateway sees it.
type Sighting struct {
	Engine   string
	RTT      float64 // ms, the network's floor; NaN where nothing was measured
	InFlight float64 // attempts of this gateway
	Factor   float64 // what penalties and repeated attempts leave of its capacity, 0..1
	Held     float64 // attempts of this gateway that it held when it refused more; 0 = it has not
	Speed    Speed
}

// Speed is what was learned of an engine that works in steps: a step of n
// sequences with p prompt tokens takes Step + n PerSeq + p PerToken
// (optimizer.md 1: alpha, beta and gamma).
type Speed struct {
	Step, PerSeq, PerToken float64 // ms
	Slots                  float64 // sequences at once, 0 = not known
	Held                   float64 // the most that it was seen to have at work at once: it has no fewer slots
	Answers                float64 // evidence: answers learned from, older ones counting less; 0 = nothing known
	// Doubt is the covariance of the errors of Step, PerSeq and PerToken, in
	// ms x ms: the upper triangle, row by row. Zero: as told.
	Doubt [6]float64
}

// Plan is what a policy decided for all sources; each gateway makes its table
// of it. Immutable once published.
type Plan struct {
	Epoch, Version uint64 // of the gateway that leads; a lower pair is refused
	Policy         string
	Rule           Rule
	Rows           []PlanRow
	Engines        []PlanEngine
	Certificate    *Certificate // nil under policies that solve nothing
	Uncalibrated   []string     // engines of which neither profile nor capacity is known yet
}

// PlanRow is what becomes of a class's demand at a source.
type PlanRow struct {
	Source  string
	Class   ClassKey
	Weights []PlanWeight        // their sum is 1, or 0 where nobody takes it
	Shed    [Priorities]float64 // fractions refused at the source
	Guessed bool                // by slots or capacity, for want of demand or of knowledge: the next weights need not be near
}

// PlanWeight is the share of a row's admitted demand on one engine.
type PlanWeight struct {
	Engine   string
	Weight   float64
	InFlight float64 // the row's requests there at once, by Little's law, network included
}

// PlanEngine is an engine at its planned load, in requests/s of the average
// request.
type PlanEngine struct {
	Name           string
	Load, Capacity float64
	InFlight       float64 // at that load, by Little's law
	Latency        float64 // ms at that load, 0 = not known
	Price          float64 // ms per request: lambda_j
	CapacityPrice  float64 // ms per request: w_j
	Cost           Cost    // of one more request; zero where it is not known how the engine works
}

// Certificate proves how good a plan is (optimizer.md 6).
type Certificate struct {
	Objective, Bound, Gap float64 // ms of latency per second of traffic; the gap is relative
	Damping               float64 // what the weights in use cost beyond the objective, relatively
	Method                string
	Iterations            int
	Took                  time.Duration
}

// Rule is how picks follow the weights.
type Rule uint8

const (
	RulePlanned      Rule = iota // affinity within bounds, new conversations to the lighter of two, the rest by weight
	RuleRandom                   // by weight alone
	RuleRoundRobin               // in turn
	RuleLeastRequest             // the engine with the fewest in flight: looks at all
	RuleP2C                      // the lighter of two drawn evenly
	RuleBoundedHash              // the slot's engine up to a load bound, then the next
	RulePrefix                   // the slot of the opening, whatever ids a request has
)

func (r Rule) String() string {
	return [...]string{"planned", "random", "round_robin", "least_request", "p2c", "bounded_hash", "prefix"}[r]
}

// Explain says where a request goes under the rule, in words; "" for the planned
// one, under which that is a matter of its weights.
func (r Rule) Explain() string {
	return [...]string{"", "an engine drawn by the weights, whatever is in flight", "the next engine in turn",
		"the one of all engines with the fewest in flight", "the one of two engines, drawn evenly, with fewer in flight",
		"the engine of its key's slot, up to 1.25 times that engine's share of what is in flight, then to a next one",
		"the engine of its opening's slot, whatever ids it has, up to 1.25 times that engine's share of what is in flight, then to a next one"}[r]
}
