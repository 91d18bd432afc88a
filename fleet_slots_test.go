package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
	"penstock/fleet/nats"
	"penstock/route"
)

// enginesBySlot is the engine and the alternate of every slot of the plain class.
func enginesBySlot(r *running) []string {
	c := r.tables.Load().Classes[route.ClassKey{Model: "m"}]
	if c == nil || !c.HasSlots() {
		return nil
	}
	all := make([]string, c.Slots())
	name := func(i uint16) string {
		if i == route.None {
			return ""
		}
		return c.Candidates[i].Engine.Name
	}
	width := uint64(1<<63) / uint64(len(all)) * 2
	for i := range all {
		s := c.Slot(uint64(i) * width)
		all[i] = name(s.Engine) + " " + name(s.Alternate)
	}
	return all
}

// equalShare is the share of keys that both gateways map to the same engines.
func equalShare(a, b *running) float64 {
	x, y := enginesBySlot(a), enginesBySlot(b)
	if len(x) == 0 || len(x) != len(y) {
		return 0
	}
	same := 0
	for i := range x {
		if x[i] == y[i] {
			same++
		}
	}
	return float64(same) / float64(len(x))
}

// followsSame reports whether both follow one plan, with slots that are made for
// several gateways.
func followsSame(a, b *running) bool {
	x, y := a.tables.Load(), b.tables.Load()
	return x.Plan != nil && y.Plan != nil && x.Plan.Epoch > 0 && x.Plan.Epoch == y.Plan.Epoch && x.Plan.Version == y.Plan.Version && x.Shared && y.Shared
}

// Gateways of one source map every key to the same engine, whenever they joined
// and whatever each has seen before: nothing about slots travels, they follow
// from names and weights.
func TestGatewaysOfOneSourceMapKeysAlike(t *testing.T) {
	t.Parallel()
	stop, address, err := nats.StartServer("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	urls := make(map[string]string)
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		_, urls[name] = startSim(t, enginetest.Config{Name: name, Models: []string{"m"}, Slots: 8, TTFT: time.Duration(5+5*i) * time.Millisecond, TBOT: time.Millisecond})
	}
	text := func(gateway, engines string, capacity float64) string {
		text := fmt.Sprintf("[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[gateway]\nname = %q\nsource = \"here\"\n[fleet]\nurl = \"nats://%s\"\n", gateway, address)
		for i, name := range strings.Split(engines, "") {
			text += engineTOML(name, urls[name], fmt.Sprintf("capacity = %g", capacity+10*float64(i)))
		}
		return text
	}
	reload := func(r *running, text string) {
		t.Helper()
		swapFile(t, r.file, []byte(text))
		if a := r.ask("POST", "/-/reload?force=1"); a.status != http.StatusOK {
			t.Fatalf("reload: %d %s", a.status, a.body)
		}
	}
	c := client(t)
	ask := func(all ...*running) {
		for i := range 20 {
			for _, r := range all {
				if a := r.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint("question ", i), false)); a.status != http.StatusOK {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			}
		}
	}
	alike := func(what string, a, b *running) {
		t.Helper()
		awaitCond(t, what+": one plan and the same slots", func() bool { return followsSame(a, b) && equalShare(a, b) == 1 })
		x, y := a.tables.Load(), b.tables.Load()
		t.Logf("%s: equal share 1 of %d slots, tables %d and %d, plan version %d", what, len(enginesBySlot(a)), x.Version, y.Version, x.Plan.Version)
	}
	one := startGateway(t, text("gw-1", "abc", 20), "a", "b", "c")
	ask(one)
	reload(one, text("gw-1", "acd", 30)) // b goes, d comes, all weights move
	one.await("d", func() bool { return one.engineState("d") == "ready" })
	ask(one)
	two := startGateway(t, text("gw-2", "acd", 30), "a", "c", "d")
	alike("the second one joins", one, two)
	ask(one, two)
	for _, r := range []*running{two, one} {
		reload(r, text(map[*running]string{one: "gw-1", two: "gw-2"}[r], "acde", 10))
		r.await("e", func() bool { return r.engineState("e") == "ready" })
	}
	ask(one, two)
	alike("an engine comes", one, two)
	for _, r := range []*running{one, two} {
		reload(r, text(map[*running]string{one: "gw-1", two: "gw-2"}[r], "ade", 50))
		ask(one, two)
	}
	alike("an engine goes", one, two)
	one.stop()
	three := startGateway(t, text("gw-3", "ade", 50), "a", "d", "e")
	alike("another one in place of the first", two, three)
}
