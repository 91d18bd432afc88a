package sim

import (
	"math/rand/v2"
	"testing"
)

// routerOf is a world at its beginning with a foreign policy, and the router of
// its first region.
func routerOf(t *testing.T, name string) (*world, *gateway) {
	t.Helper()
	p, err := ParsePolicies(name)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Options: Options{Fleet: threeRegions(t), Policy: p[0], BlockTok: 16}, dice: rand.New(rand.NewPCG(1, 1)), lasts: map[uint64]last{}}
	w.build()
	g := w.gateways[0]
	g.signals(w)
	return w, g
}

func askOf(conversation uint64, blocks ...uint64) *request {
	return &request{Request: Request{Conversation: conversation, Prompt: 16 * max(1, len(blocks)), Output: 10, Blocks: blocks, BlockTokens: 16}}
}

func TestConsistentHashKeepsKeysAndMovesFew(t *testing.T) {
	w, g := routerOf(t, "consistent-hash")
	const keys = 20_000
	count := make([]int, len(w.servers))
	at := make([]int, keys)
	for k := range at {
		at[k] = g.router.pick(w, askOf(uint64(k)+1))
		count[at[k]]++
	}
	for i, n := range count {
		if share := float64(n) * float64(len(count)) / keys; share < 0.75 || share > 1.25 {
			t.Errorf("engine %d has %.2f of its part", i, share)
		}
	}
	g.seen[2].down = true
	for k := range at {
		if now := g.router.pick(w, askOf(uint64(k)+1)); (now != at[k]) != (at[k] == 2) {
			t.Fatalf("key %d went from %d to %d when engine 2 went down", k, at[k], now)
		}
	}
}

func TestBoundedHashHoldsItsBound(t *testing.T) {
	w, g := routerOf(t, "chwbl")
	for n := range 600 {
		i := g.router.pick(w, askOf(1)) // all of one key
		g.out[i]++
		if most := 1.25*float64(n+1)/float64(len(g.out)) + 1; float64(g.out[i]) > most {
			t.Fatalf("engine %d has %d of %d", i, g.out[i], n+1)
		}
	}
}

func TestCacheAwareFollowsThePrefixUntilLoadsPart(t *testing.T) {
	w, g := routerOf(t, "cache-aware")
	home := g.router.pick(w, askOf(1, 1, 2, 3, 4))
	for range 20 {
		if i := g.router.pick(w, askOf(2, 1, 2, 3, 9)); i != home {
			t.Fatalf("three of four blocks are on engine %d, the request went to %d", home, i)
		}
	}
	if i := g.router.pick(w, askOf(3, 1, 7, 8, 9, 10)); i == home { // a fifth is less than 0.3
		t.Errorf("a match of a fifth went to the engine with the largest tree")
	}
	for i := range g.out {
		g.out[i] = 10
	}
	g.out[home] = 74 // 64 more than the least: not above the first threshold
	if i := g.router.pick(w, askOf(5, 1, 2, 3, 4)); i != home {
		t.Error("at the first threshold the load counts already")
	}
	g.out[home] = 75 // 65 more, and 7.5 times
	if i := g.router.pick(w, askOf(4, 1, 2, 3, 4)); i == home {
		t.Error("beyond both thresholds the prefix still counts")
	}
}

func TestScorerWeighs(t *testing.T) {
	w, g := routerOf(t, "queue-kv-prefix")
	for i := range g.seen {
		g.seen[i] = signal{kv: 0.5}
	}
	p := g.router.(*scorer)
	p.known.sent(3, []uint64{1, 2})
	if i := p.pick(w, askOf(1, 1, 2)); i != 3 {
		t.Errorf("the whole prompt is on engine 3 (3 points), the request went to %d", i)
	}
	g.seen[3] = signal{kv: 1, waiting: 10} // 1 point of KV and 2 of the queue less: level with the others, and then the prefix has only half
	if i := p.pick(w, askOf(2, 1, 9)); i == 3 {
		t.Error("a full engine with the longest queue has it for half of a prompt")
	}
}

func TestPrequalIsHotOrCold(t *testing.T) {
	w, g := routerOf(t, "prequal")
	p := g.router.(*prequal)
	p.rif = []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	p.pool = []probe{{who: 0, rif: 9.5, latency: 0.1}, {who: 1, rif: 3, latency: 2}, {who: 2, rif: 8, latency: 1}}
	if i := p.choose(w); i != 2 {
		t.Errorf("of the cold engines 2 has the least latency, %d was taken", i)
	}
	p.pool = []probe{{who: 0, rif: 30, latency: 0.1}, {who: 1, rif: 20, latency: 9}}
	if i := p.choose(w); i != 1 {
		t.Errorf("all are hot, 1 has the fewest in flight, %d was taken", i)
	}
}

func TestSelectivePushWaitsForAnEngineWithNothingPending(t *testing.T) {
	w, g := routerOf(t, "selective-push")
	if i := g.router.pick(w, askOf(1, 1)); w.servers[i].region != g.region {
		t.Errorf("engines here are available, %s was taken", w.servers[i].Name)
	}
	for i := range g.seen {
		if w.servers[i].region == g.region {
			g.seen[i].waiting = 1
		}
	}
	if i := g.router.pick(w, askOf(2, 2)); w.servers[i].region == g.region {
		t.Errorf("%s has requests pending and was given another one", w.servers[i].Name)
	}
	for i := range g.seen {
		g.seen[i].waiting = 1
	}
	if i := g.router.pick(w, askOf(3, 3)); i != hold {
		t.Errorf("all have requests pending, and %s was given another one", w.servers[i].Name)
	}
	if i := g.router.pick(w, askOf(4, 4)); i != hold || len(g.router.(*selectivePush).queue) != 2 {
		t.Error("one overtook those that wait")
	}
}

// Old blocks go first, and what is left is no more than there may be.
func TestPrefixesForget(t *testing.T) {
	p := newPrefixes(1, 1000)
	for k := range uint64(400) {
		p.sent(0, []uint64{10*k + 1, 10*k + 2, 10*k + 3, 10*k + 4, 10*k + 5})
	}
	if n := len(p.nodes[0]); n > 1250 || n < 500 {
		t.Errorf("%d blocks are known, want about 1,000", n)
	}
	if m := p.matched([]uint64{3991, 3992}); m[0] != 2 {
		t.Error("the newest blocks are forgotten")
	}
	if m := p.matched([]uint64{1, 2}); m[0] != 0 {
		t.Error("the oldest blocks are still known")
	}
}
