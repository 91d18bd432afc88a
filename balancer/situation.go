package balancer

import (
	"time"

	"penstock/balancer/problem"
	"penstock/balancer/profile"
	"penstock/route"
)

// Situation is all that a policy looks at: what is asked for, what the engines
// can carry and how far they are. A policy is a function from a Situation to a
// route.Plan, so that equal situations have equal plans, here and on the
// virtual time of a simulation.
type Situation struct {
	At      time.Time
	Sources []string // sorted
	Engines []EngineView
	Rows    []Row
	RTT     [][]float64 // ms by source and engine; never NaN: what is unknown has been given a value by rule
	Guessed int         // entries of RTT that are a guess
	Last    *route.Plan // in use until now; nil at the start
}

// EngineView is an engine with all rules about missing, stale and lying data
// applied. Engines are sorted by name.
type EngineView struct {
	Name, Cluster string
	Dialect       string  // as found or configured; "" = not known
	Replicas      int     // engines behind its URL; 0 counts as 1
	Ready         bool    // takes traffic
	Slots         float64 // in-flight cap
	// Capacity is what it may be given, in requests/s of the average request:
	// the least of token time, KV and slots, without the margin, times what
	// penalties leave; 0 where it takes nothing.
	Capacity   float64
	Curve      problem.Latency // against the same load
	Calibrated bool            // from a profile, a configured capacity or enough answers
	Left       float64         // what penalties and others leave of the capacity, 0..1
	Told       profile.Known   // what calibrating begins with
	Shown      float64         // what it shows to carry of what its profile tells; 0: nothing yet, or no profile
	Cost       route.Cost      // of one more request of the mean length; zero where it is not known
	Signals    Signals
}

// Signals are what was measured of an engine lately, for the policies that
// steer by them. NaN where there was nothing to measure.
type Signals struct {
	TTFT, TBOT  float64 // ms, mean of the last period
	Utilisation float64 // running over slots, or KV in use, whichever is higher
	Errors      float64 // share of attempts that failed by the engine's fault
	Waiting     float64 // requests queued in the engine
}

// Row is the demand of one class at one source.
type Row struct {
	Source         int // index of Sources
	Class          route.ClassKey
	DistanceWeight float64                   // nu
	Cache          float64                   // ms that a request saves where its conversation was before; 0: not known
	Work           float64                   // units of load per request; 1 = the average request
	Rate           [route.Priorities]float64 // requests/s
	Candidates     []int                     // indices of Engines, ascending: those that may serve it, ready or not
}
