package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// recordOf waits until a request's record is whole.
func recordOf(g *running, id string) (record struct{ Rule, Why, Engine, Outcome string }) {
	g.t.Helper()
	g.await("the record of "+id, func() bool {
		a := g.ask("GET", "/requests/"+id)
		return a.status == 200 && json.Unmarshal([]byte(a.body), &record) == nil && record.Outcome != ""
	})
	return record
}

func withPolicy(policy, engines string) string {
	return "[routing]\npolicy = \"" + policy + "\"\n" + engines
}

// Under a policy that is a pick rule the table names it, the record of a
// request says it, and so does explain.
func TestPolicyPicksByItsRule(t *testing.T) {
	t.Parallel()
	for policy, whys := range map[string]string{"random": "random", "round-robin": "turn", "least-request": "fewest", "p2c": "lighter", "bounded-hash": "hashed", "prefix": "hashed"} {
		engines := startScripts(t, 3, playAnswer)
		g := startGateway(t, withPolicy(policy, fleetTOML(engines)), nths(3)...)
		g.await("a table of the policy", func() bool { return g.tables.Load().Policy == policy })
		c := client(t)
		last, moves := "", 0
		for i := range 30 {
			e := g.chat(c, chatBody("m", "the same", true), "x-session-id", fmt.Sprint("s", i), "x-request-id", fmt.Sprint("r", i))
			if e != last {
				last, moves = e, moves+1
			}
			g.awaitIdle() // a request under way counts: the next one would spread
		}
		r := recordOf(g, "r7")
		if r.Rule != strings.ReplaceAll(policy, "-", "_") || r.Why != whys || r.Outcome != "ok" {
			t.Errorf("%s: %+v", policy, r)
		}
		code, out, errs := penstock(t, "explain", "r7", "--admin", strings.TrimPrefix(g.admin, "http://"))
		if code != exitDone || !strings.Contains(out, policy+": ") {
			t.Errorf("%s: explain says %d, %s\n%s", policy, code, errs, out)
		}
		if code, out, errs = penstock(t, "explain", "r7", "--replay", "--admin", strings.TrimPrefix(g.admin, "http://")); code != exitDone {
			t.Errorf("%s: the replay differs: %s\n%s", policy, errs, out)
		}
		switch n := played(engines); policy {
		case "round-robin":
			// A new table may give a turn twice or leave one out.
			if slices.Min(n) < 8 || slices.Max(n) > 12 {
				t.Errorf("round-robin: %v", n)
			}
		case "prefix": // thirty ids, one opening; on a busy machine its engine may look slow for once
			if moves > 3 {
				t.Errorf("prefix: one opening was moved %d times, %v", moves-1, n)
			}
			if a := g.post(c, "/v1/chat/completions", chatBody("m", "x", true), "x-session-id", "one"); a.header.Get("X-Penstock-Affinity") != "opening" {
				t.Errorf("prefix: key from %q", a.header.Get("X-Penstock-Affinity"))
			}
		default:
			if n[0] == 0 || n[1] == 0 || n[2] == 0 { // (2/3)^30: once in 60,000
				t.Errorf("%s: %v", policy, n)
			}
		}
		g.stop()
	}
}

// nearest goes to the cluster of the source while it has an engine ready.
func TestPolicyNearest(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 3, playAnswer)
	clusters := []string{"cluster = \"here\"", "cluster = \"far\"", "cluster = \"here\""}
	g := startGateway(t, "[gateway]\nsource = \"here\"\n[network]\nrtt_ms = { here = { here = 1, far = 40 } }\n"+withPolicy("nearest", fleetTOML(engines, clusters...)), nths(3)...)
	g.await("a table of the policy", func() bool { return g.tables.Load().Policy == "nearest" })
	c := client(t)
	for i := range 40 {
		g.chat(c, chatBody("m", fmt.Sprint("conversation ", i), true))
	}
	if n := played(engines); n[1] != 0 || n[0] == 0 || n[2] == 0 {
		t.Errorf("engines here, far and here had %v", n)
	}
}

// explain --table has the policy's own reasons.
func TestPolicyExplainsItsTable(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{
		"feedback":    {"factor 1.00, score 1.00 against 1.00", "the gain", "HELD BY"},
		"round-robin": {"rule", "the next engine in turn"},
		"nearest":     {"the nearest cluster with engines that take traffic"},
	} {
		engines := startScripts(t, 2, playAnswer)
		g := startGateway(t, withPolicy(policy, fleetTOML(engines, "capacity = 10", "capacity = 20")), nths(2)...)
		g.await("a table of the policy", func() bool { return g.tables.Load().Policy == policy && g.weight("e01") > 0 })
		code, out, errs := penstock(t, "explain", "--table", "--admin", strings.TrimPrefix(g.admin, "http://"))
		for _, w := range want {
			if code != exitDone || !strings.Contains(out, w) {
				t.Errorf("%s: explain --table says %d %s without %q:\n%s", policy, code, errs, w, out)
			}
		}
		g.stop()
	}
}
