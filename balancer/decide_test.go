package balancer

import (
	"log/slog"
	"testing"
	"time"

	"penstock/route"
)

// echo is a gateway that hears of its own plans, as members of a fleet do.
type echo struct {
	alone
	news chan struct{}
}

func (e *echo) News() <-chan struct{} { return e.news }

func (e *echo) Publish(p *route.Plan) error {
	select {
	case e.news <- struct{}{}:
	default:
	}
	return e.alone.Publish(p)
}

// A leader's own plan is no news to it: else each plan would start the next
// cycle at once, and what may move in one cycle would move in every one of them.
func TestOwnPlanIsNoNews(t *testing.T) {
	peers := &echo{news: make(chan struct{}, 1)}
	l := NewLoop(Options{Fleet: fleetOf(t, map[string][]string{"a": {"m"}, "b": {"m"}}), Tables: route.NewPublished("here"), Policy: Random,
		Gateway: "gw", Peers: peers, Log: slog.New(slog.DiscardHandler)})
	l.Cycle(time.Unix(10_000, 0))
	if peers.plan == nil {
		t.Fatal("no plan")
	}
	select {
	case <-peers.news:
		t.Error("the plan is news to who made it")
	default:
	}
}
