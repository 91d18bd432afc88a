package sim

import (
	"math"
	"time"
)

// retrying is a router without admission that tries again: the request goes to
// the engine with the fewest requests, and where that fails or answers 503 five
// times more, 50 ms and then half as long again later. So do routers
// that were made for quick services.
type retrying struct{ plainRouter }

const fiveRetries = "five-retries"

func newRetrying(_ *world, g *gateway) router { return &retrying{plainRouter{g}} }

func (p *retrying) pick(w *world, r *request) int {
	begin := w.dice.IntN(len(w.servers))
	best := begin
	held := func(i int) int { return w.servers[i].batch.Running() + w.servers[i].batch.Waiting() }
	for k := range w.servers {
		if i := (begin + k) % len(w.servers); held(i) < held(best) {
			best = i
		}
	}
	return best
}

// pause implements pauser.
func (p *retrying) pause(tries int) time.Duration {
	return time.Duration(50 * math.Pow(1.5, float64(tries)) * float64(time.Millisecond))
}

// pauser is a router that waits before it tries again.
type pauser interface{ pause(tries int) time.Duration }

// retryingPolicy is not among the policies that are compared: it is for
// overload alone.
func retryingPolicy() Policy { return Policy{Name: fiveRetries, foreign: newRetrying, retries: 5} }
