package engine

import "time"

// State is what an engine's traffic depends on.
type State uint32

const (
	Starting State = iota // known, but not ready for the first time yet: takes no traffic
	Ready                 // takes traffic
	Down                  // health says no, or nobody listens
)

// States lists all states, for metrics.
var States = []State{Starting, Ready, Down}

func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Ready:
		return "ready"
	default:
		return "down"
	}
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
)

func (r Reason) String() string {
	return [...]string{"no health answer yet", "healthy", "connection refused", "health probe timed out",
		"health endpoint says no", "health probe broken", "loading its model", "address unknown or unreachable"}[r]
}

// Status is a state with its reason and the time it began.
type Status struct {
	State  State
	Reason Reason
	Since  time.Time
}
