package balancer

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"penstock/engine"
	"penstock/route"
)

// Whatever is planned, the shares of all gateways make one whole.
func TestSharesOfPlacesAddUp(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		gateways := map[string]int{"a": 1 + dice.IntN(3), "b": 1 + dice.IntN(20), "c": 1}
		p := &route.Plan{}
		for source := range gateways {
			row := route.PlanRow{Source: source}
			for j := range 6 {
				if dice.IntN(2) == 0 {
					row.Weights = append(row.Weights, route.PlanWeight{Engine: fmt.Sprint("e", j), InFlight: 20 * dice.Float64()})
				}
			}
			p.Rows = append(p.Rows, row, route.PlanRow{Source: source, Weights: []route.PlanWeight{{Engine: "e7"}}})
		}
		for j := range 9 { // e6 and e8 are in no row, and nothing is planned on e7
			sum := 0.0
			for source, n := range gateways {
				share := sharesOf(p, source, gateways).of(fmt.Sprint("e", j))
				if !(share > 0) {
					t.Fatalf("a gateway of %s has no share of e%d", source, j)
				}
				sum += float64(n) * share
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Fatalf("shares of e%d are %g in sum", j, sum)
			}
		}
	}
	if s := sharesOf(nil, "a", nil); s.gateways != 1 || s.of("e") != 1 {
		t.Errorf("a gateway alone: %+v", s)
	}
}

// filling is gateways that want so many attempts on one engine each; a third of
// what is in flight ends from one word about all of it to the next.
type filling struct {
	places int64
	share  []float64
	wants  []float64
	has    []float64
}

// round is one: everybody knows what the others had, and fills up.
func (f *filling) round(heard bool) (sum float64) {
	all := 0.0
	for _, n := range f.has {
		all += n
	}
	next := make([]float64, len(f.has))
	for i, n := range f.has {
		stays := math.Floor(n * 2 / 3)
		next[i] = max(stays, min(f.wants[i], float64(allowed(f.places, f.share[i], n, all, heard))))
		sum += next[i]
	}
	f.has = next
	return sum
}

// Gateways that want all they can have of an engine do not fill it several times
// over, those that want nothing leave their places to others, and get them back.
func TestPlacesGoToWhoNeedsThem(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		const places = 48
		f := &filling{places: places, has: make([]float64, n)}
		for range n {
			f.share, f.wants = append(f.share, 1/float64(n)), append(f.wants, 1000)
		}
		rounding := float64(n) / 2
		for range 20 {
			if sum := f.round(true); sum > places+rounding {
				t.Errorf("%d gateways that want all have %g of %d places", n, sum, places)
			}
		}
		if math.Abs(f.has[0]-f.has[n-1]) > places/10 {
			t.Errorf("%d gateways that want the same have %v", n, f.has)
		}
		for i := range n - 1 {
			f.wants[i] = 0
		}
		for range 30 {
			f.round(true)
		}
		if last := f.has[n-1]; last < 0.9*places || last > places {
			t.Errorf("the only one of %d that wants some has %g of %d places", n, last, places)
		}
		f.wants[0] = 1000
		worst, sum := 0.0, 0.0
		for range 30 {
			sum = f.round(true)
			worst = max(worst, sum)
		}
		if worst > 2*places || sum > places+rounding || f.has[0] < places/float64(n) {
			t.Errorf("%d gateways: one that comes back has %g, all %g, %g at worst", n, f.has[0], sum, worst)
		}
		for i := range n { // the store is gone: nobody knows of the others
			f.wants[i] = 1000
		}
		for range 30 {
			sum = f.round(false)
		}
		if sum > places+rounding {
			t.Errorf("%d gateways that do not hear of each other have %g of %d places", n, sum, places)
		}
	}
	var own lately
	for _, c := range []struct {
		at             time.Duration
		inFlight, want float64
	}{{0, 2, 2}, {time.Second, 9, 2}, {wordAge, 12, 2}, {2*wordAge - 1, 13, 2}, {2 * wordAge, 14, 12}, {2*wordAge + 1, 3, 3}} {
		if got := own.least(c.inFlight, time.Unix(100, 0).Add(c.at)); got != c.want {
			t.Errorf("%s: the least was %g, want %g", c.at, got, c.want)
		}
	}
	if got := allowed(4, 0.001, 0, 4, true); got != 1 {
		t.Errorf("of a full engine a gateway may have %d", got)
	}
}

// joined is a gateway that is told how many others there are.
type joined struct {
	alone
	gateways map[string]int
}

func (j *joined) Gateways() map[string]int { return j.gateways }

func TestGatewaysDivideAnEngine(t *testing.T) {
	fleet := fleetOf(t, map[string][]string{"a": {"m"}})
	peers := &joined{}
	l := NewLoop(Options{Fleet: fleet, Tables: route.NewPublished("here"), Policy: Optimal, Gateway: "gw", Peers: peers, Log: slog.New(slog.DiscardHandler)})
	e := fleet.Set().Engines[0]
	takes := func(gateways map[string]int) (n int64) {
		peers.gateways = gateways
		l.Cycle(time.Now())
		for e.Acquire(e.Cap()) {
			n++
		}
		for range n {
			e.Release()
		}
		return n
	}
	whole := e.Cap()
	for _, c := range []struct {
		gateways map[string]int
		want     int64
	}{{nil, whole}, {map[string]int{"here": 1}, whole}, {map[string]int{"here": 2}, (whole + 1) / 2}, {map[string]int{"here": 5}, (whole + 2) / 5}, {map[string]int{"here": 1}, whole}} {
		if got := takes(c.gateways); got != c.want {
			t.Errorf("with gateways %v it takes %d, want %d of %d", c.gateways, got, c.want, whole)
		}
	}
	if e.Status().State != engine.Ready {
		t.Errorf("state %s", e.Status().State)
	}
}
