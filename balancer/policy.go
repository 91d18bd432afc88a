package balancer

import (
	"errors"
	"strings"

	"penstock/route"
)

// Policy names the rule that decides where demand goes: routing.policy. The
// zero value is Capacity.
type Policy uint8

const (
	Capacity     Policy = iota // in proportion to capacity, whatever is asked for
	Optimal                    // least mean latency of all requests, certified
	Feedback                   // a controller on each engine's score against the fleet's
	Nearest                    // the engines with the least round trip
	Waterfall                  // the nearest engines up to their capacity, then the next
	RoundRobin                 // in turn
	Random                     // by chance, in proportion to capacity
	LeastRequest               // the engine with the fewest in flight
	P2C                        // the lighter of two
	BoundedHash                // the conversation's engine up to a load bound
	Prefix                     // the engine of the prompt's opening

	policies
)

// DefaultPolicy is that of a file which names none.
const DefaultPolicy = Optimal

var policyNames = [policies]string{"capacity", "optimal", "feedback", "nearest", "waterfall", "round-robin", "random", "least-request", "p2c", "bounded-hash", "prefix"}

func (p Policy) String() string { return policyNames[p] }

// planners are the policies that plan, each a function of the situation alone.
// Capacity needs none: it is what a table does without a plan. A policy
// without a planner is not in this build, and the configuration refuses it.
var planners = [policies]func(*Situation) *route.Plan{
	Optimal: PlanOptimal, Feedback: planFeedbackOnce, Nearest: PlanNearest, Waterfall: PlanWaterfall,
	RoundRobin: PlanRoundRobin, Random: PlanRandom, LeastRequest: PlanLeastRequest, P2C: PlanP2C, BoundedHash: PlanBoundedHash, Prefix: PlanPrefix,
}

// Built reports whether this build has the policy.
func (p Policy) Built() bool { return p == Capacity || p < policies && planners[p] != nil }

// Policies lists those of this build.
func Policies() (built []Policy) {
	for p := range policies {
		if p.Built() {
			built = append(built, p)
		}
	}
	return built
}

// UnmarshalText reads the configuration value; the error says what is right.
func (p *Policy) UnmarshalText(text []byte) error {
	var names []string
	for _, known := range Policies() {
		if known.String() == string(text) {
			*p = known
			return nil
		}
		names = append(names, known.String())
	}
	return errors.New("want one of " + strings.Join(names, ", "))
}

// MarshalText writes the configuration value.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
