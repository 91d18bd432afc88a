package engine

import "time"

// State is what an engine's traffic depends on.
type State uint32

const (
	Starting State = iota // known, but not ready for the first time yet: takes no traffic
	Ready                 // takes traffic
	Down                  // health says no, or nobody listens
	Cordoned              // an operator's order: takes nothing new; its conversations return with it
	Draining              // an operator's order: takes nothing new, its conversations settle elsewhere; attempts still run on it
	Drained               // as Draining, and none runs
	Open                  // its breaker is open: its requests failed, it takes none for a while
	HalfOpen              // its breaker lets a few through, to see
)

// States lists all states, for metrics.
var States = []State{Starting, Ready, Down, Cordoned, Draining, Drained, Open, HalfOpen}

func (s State) String() string {
	return [...]string{"starting", "ready", "down", "cordoned", "draining", "drained", "open", "half_open"}[s]
}

// Reason says why an engine is in its state.
type Reason uint8

const (
	ReasonNoAnswerYet Reason = iota // no health answer since we know it
	ReasonHealthy                   // its health endpoint says so
	ReasonRefused                   // connection refused: nobody listens
	ReasonTimeout                   // health probes time out
	ReasonUnhealthy                 // health endpoint answers with a failure status
	ReasonBroken                    // health endpoint answers something that is not HTTP, or resets
	ReasonLoading                   // it listens and says that it is still loading its model
	ReasonUnreachable               // its name or address leads nowhere
	ReasonOrdered                   // an operator said so
	ReasonUntrusted                 // its certificate is not accepted
	ReasonInsecure                  // it listens, but the TLS handshake fails
	ReasonFailures                  // its requests fail
	ReasonStreams                   // its streams break off
	ReasonFrozen                    // it holds requests and does nothing for them
	ReasonSilent                    // it takes requests that its peers answer, and sends nothing
	ReasonTrial                     // it was out, and a few requests show whether it has recovered
)

func (r Reason) String() string {
	return [...]string{"no health answer yet", "healthy", "connection refused", "health probe timed out",
		"health endpoint says no", "health probe broken", "loading its model", "address unknown or unreachable", "ordered by an operator",
		"certificate not accepted", "TLS handshake failed", "its requests fail", "its streams break off",
		"frozen: it holds requests and does nothing for them", "silent: its peers answer, it does not", "on trial after its breaker was open"}[r]
}

// Status is a state with its reason and the time it began.
type Status struct {
	State  State
	Reason Reason
	Since  time.Time
}
