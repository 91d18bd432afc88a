package main

import (
	"strings"
	"testing"
	"time"
)

const aRecord = `{
  "id": "a/b", "time": "2026-11-30T12:00:01.5Z", "model": "m", "source": "us-east", "class": "m+tools",
  "key_source": "opening", "key": "8f3a01", "engine": "b1", "why": "alternate: a1 was at its bound",
  "candidates": [
    {"engine": "a1", "weight": 0.666, "in_flight": 12, "bound": 12, "state": "ready", "later": []},
    {"engine": "b1", "weight": 0.334, "in_flight": 3, "bound": 6.5, "state": "ready"},
    {"engine": "c1", "weight": 0, "in_flight": 0, "bound": null, "state": "down"}
  ],
  "slot": {"index": 37, "of": 16384, "engine": "a1", "alternate": "b1", "table": 9},
  "excluded": [{"engine": "d1", "why": "does not carry the label residency=eu"}],
  "attempts": [{"engine": "b1", "outcome": "ok", "ms": 412.4, "cause": ""}],
  "outcome": "ok", "status": 200, "ttft_ms": 8.25, "total_ms": 12500,
  "usage": {"prompt_tokens": 1200, "completion_tokens": 30, "details": {"x": 1}}, "stream": true, "of_a_later_build": [1]
}`

func TestExplainRequest(t *testing.T) {
	addr := adminAnswering(t, map[string]string{"/requests/a%2Fb": aRecord})
	code, stdout, stderr := penstock(t, "explain", "a/b", "--admin", addr)
	at := time.Date(2026, 11, 30, 12, 0, 1, 5e8, time.UTC).Local().Format("2006-01-02 15:04:05.000 MST")
	want := `request    a/b
at         ` + at + `
model      m, streamed
class      m+tools
source     us-east
key        8f3a01, from opening
slot       37 of 16384, now of a1, alternate b1 (table 9)
served by  b1: alternate: a1 was at its bound
outcome    ok, status 200, first content after 8.2 ms, 12.5 s in all
usage      completion tokens 30, prompt tokens 1200

CANDIDATE  WEIGHT  IN FLIGHT  BOUND  STATE  ROLE
a1         66.6%   12         12     ready  -
b1         33.4%   3          6.5    ready  served, alternate
c1         0.0%    0          -      down   -

LEFT OUT  WHY
d1        does not carry the label residency=eu

ATTEMPT  ENGINE  OUTCOME  TOOK
1        b1      ok       412 ms
`
	if code != exitDone || stderr != "" || stdout != want {
		t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
	}
	if _, stdout, _ = penstock(t, "explain", "a/b", "--admin", addr, "--json"); strings.TrimSpace(stdout) != aRecord {
		t.Errorf("--json changed the document:\n%s", stdout)
	}
}

// A record whose bounds do not allow what it says is found out.
func TestReplayFindsAnotherAnswer(t *testing.T) {
	record := func(first string) string {
		return `{"id": "r", "engine": "b1", "why": "alternate", "candidates": [
			{"engine": "a1", "state": "at_bound", "in_flight": ` + first + `, "bound": 4, "share": 0.5, "component_in_flight": 1, "cap": 9},
			{"engine": "b1", "state": "picked", "in_flight": 3, "bound": 4, "share": 0.5, "component_in_flight": 4, "cap": 9, "factor": 0.5}]}`
	}
	addr := adminAnswering(t, map[string]string{"/requests/good": record("6"), "/requests/bad": record("5"), "/requests/old": `{"id": "old", "candidates": [{"engine": "a1", "in_flight": 1, "bound": 2, "state": "picked"}]}`})
	code, stdout, stderr := penstock(t, "explain", "good", "--replay", "--admin", addr)
	want := `request  r
replay   b1 (alternate)
record   b1

STEP  ENGINE  IN FLIGHT  BOUND  SO
1     a1      6          6      has no room
2     b1      3          4      takes it
`
	if code != exitDone || stderr != "" || stdout != want {
		t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
	}
	if code, _, stderr := penstock(t, "explain", "bad", "--replay", "--admin", addr); code != exitFailed || !strings.Contains(stderr, `comes to "a1"`) {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := penstock(t, "explain", "old", "--replay", "--admin", addr); code != exitFailed || !strings.Contains(stderr, "older gateway") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, _ := penstock(t, "explain", "--table", "--replay", "--admin", addr); code != exitUsage {
		t.Errorf("--table --replay: exit %d", code)
	}
}

func TestExplainRequestThatFailedOrStillRuns(t *testing.T) {
	addr := adminAnswering(t, map[string]string{
		"/requests/refused": `{"id": "refused", "model": "m", "key_source": "none", "key": 0, "candidates": null, "attempts": null,
			"outcome": "no_healthy_engine", "status": 503, "ttft_ms": null, "usage": null}`,
		"/requests/running": `{"id": "running", "model": "m", "key_source": "user", "key": 17, "engine": "a1",
			"attempts": [{"engine": "b1", "outcome": "not_processed", "cause": "connection refused", "ms": 0.3}, {"engine": "a1"}]}`,
	})
	for id, want := range map[string]string{
		"refused": `request    refused
model      m
key        none: any engine would do as well
served by  no engine
outcome    no_healthy_engine, status 503
`,
		"running": `request    running
model      m
key        17, from user
served by  a1
outcome    still running

ATTEMPT  ENGINE  OUTCOME                            TOOK
1        b1      not_processed: connection refused  0.3 ms
2        a1      running                            -
`,
	} {
		if code, stdout, stderr := penstock(t, "explain", id, "--admin", addr); code != exitDone || stderr != "" || stdout != want {
			t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, want)
		}
	}
}

func TestExplainTable(t *testing.T) {
	explainedAt := time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC).Local().Format("15:04:05")
	for _, c := range []struct{ document, want string }{
		{`{"version": 12, "reason": "engine c1 joined", "policy": "capacity", "later": 1, "weights": [
			{"source": "us", "class": "n", "engine": "a1", "weight": 1},
			{"source": "us", "class": "m", "engine": "c1", "weight": 0},
			{"source": "us", "class": "m", "engine": "b1", "weight": 0.25},
			{"source": "us", "class": "m", "engine": "a1", "weight": 0.75}]}`,
			`table        12
policy       capacity
reason       engine c1 joined
certificate  none: this policy does not solve for the optimum, or has not yet

SOURCE  CLASS  ENGINE  WEIGHT
us      m      a1      75.0%   ###############
"       "      b1      25.0%   #####
"       "      c1      0.0%    .
us      n      a1      100.0%  ####################
`},
		{`{"version": 3, "reason": "plan", "policy": "optimal", "certificate": {"objective": 10, "bound": 10, "gap": 0},
			"weights": [{"source": "us", "class": "m", "engine": "a1", "weight": 0.75}, {"source": "us", "class": "m", "engine": "b1", "weight": 0.25},
				{"source": "us", "class": "m needs tools", "engine": "b1", "weight": 0.25}, {"source": "us", "class": "m needs tools", "engine": "a1", "weight": 0.75},
				{"source": "eu", "class": "m", "engine": "a1", "weight": 0.75}, {"source": "eu", "class": "m", "engine": "b1", "weight": 0.25}],
			"plan": {"leads": true, "rows": [{"source": "us", "class": "m", "why": {"text": ["near."]}}, {"source": "eu", "class": "m", "why": {"text": ["near."]}}, {"source": "us", "class": "m needs tools", "why": {"text": ["near."]}}]},
			"changes": [{"version": 3, "at": "2026-11-30T12:00:01Z", "reason": "plan", "causes": ["1", "2", "3", "4", "5", "6", "7", "8"],
				"moves": [{"class": "m", "share": 0.05, "engines": [{"engine": "a1", "from": 1, "to": 0.75}]}, {"class": "m needs tools", "share": 0.05, "engines": [{"engine": "a1", "from": 1, "to": 0.75}]}]}]}`,
			`table        3
policy       optimal
reason       plan
certificate  gap 0 (objective 10, bound 10)

SOURCE  CLASS          ENGINE  WEIGHT
eu      m              a1      75.0%  ###############
"       "              b1      25.0%  #####
us      m              a1      75.0%  ###############
"       "              b1      25.0%  #####
us      m needs tools  as m

m, m needs tools from us
  near.

m from eu
  near.

table 3, ` + explainedAt + `, plan
  because of: 1
  because of: 2
  because of: 3
  because of: 4
  because of: 5
  because of: 6
  and of 2 more; --json lists all
  5.0% of m, m needs tools moves: a1 100.0% to 75.0%
`},
		{`{"version": 9, "reason": "plan", "policy": "optimal", "certificate": {"objective": 10, "bound": 10, "gap": 0, "damping": 0.004},
			"weights": [{"source": "us", "class": "m", "engine": "a1", "weight": 0.75}, {"source": "us", "class": "m", "engine": "b1", "weight": 0.25}],
			"shed": [{"source": "us", "class": "m", "priority": "sheddable", "fraction": 0.125}],
			"plan": {"epoch": 1, "version": 3, "leads": true, "uncalibrated": ["c1"],
				"engines": [{"engine": "a1", "load": 12, "capacity": 16, "latency_ms": 412, "price_ms": 90, "capacity_price_ms": 30}, {"engine": "b1", "load": 4, "capacity": 0, "latency_ms": 0}],
				"rows": [{"source": "us", "class": "m", "why": {"text": ["75.0% to a1: near.", "25.0% to b1: far."],
					"options": [{"engine": "a1", "weight": 0.75, "network_ms": 1, "latency_ms": 412, "price_ms": 90, "marginal_ms": 503}]}}, {"source": "eu", "class": "m"}]},
			"changes": [{"version": 9, "at": "2026-11-30T12:00:01Z", "reason": "plan", "causes": ["demand for m at us from 3 to 16 requests/s"],
				"moves": [{"class": "m", "share": 0.05, "slots": 0.05, "engines": [{"engine": "a1", "from": 0.8, "to": 0.75}, {"engine": "b1", "from": 0.2, "to": 0.25}]}]},
				{"version": 8, "at": "2026-11-30T12:00:01Z", "reason": "drained", "causes": [], "moves": []}]}`,
			`table        9
policy       optimal
reason       plan
certificate  gap 0 (objective 10, bound 10); what moves slowly costs 0.4% on top
unknown yet  c1

SOURCE  CLASS  ENGINE  WEIGHT
us      m      a1      75.0%  ###############
"       "      b1      25.0%  #####

REFUSED AT  CLASS  PRIORITY   SHARE
us          m      sheddable  12.5%

m from us
  75.0% to a1: near.
  25.0% to b1: far.

  ENGINE  WEIGHT  WAY     TIME THERE  PRICE  ONE MORE COSTS
  a1      75.0%   1.0 ms  412 ms      90 ms  503 ms

ENGINE  PLANNED LOAD  CAPACITY  USED   TIME THERE  MORE CAPACITY SAVES
a1      12/s          16/s      75.0%  412 ms      30 ms a request
b1      4/s           0/s       0.0%   -           -

table 9, ` + explainedAt + `, plan
  because of: demand for m at us from 3 to 16 requests/s
  5.0% of m moves: a1 80.0% to 75.0%, b1 20.0% to 25.0%

table 8, ` + explainedAt + `, drained
  no weight moves
`},
		{`{"version": 1, "policy": "optimal", "reason": "start", "weights": [], "certificate": {"objective": 1234.5, "bound": 1234.4, "gap": 8.1e-7}}`,
			`table        1
policy       optimal
reason       start
certificate  gap 8.1e-07 (objective 1234.5, bound 1234.4)

no weights yet: no class has been asked for
`},
	} {
		addr := adminAnswering(t, map[string]string{"/table": c.document})
		code, stdout, stderr := penstock(t, "explain", "--table", "--admin", addr)
		if code != exitDone || stderr != "" || stdout != c.want {
			t.Errorf("exit %d, stderr %q, stdout\n%swant\n%s", code, stderr, stdout, c.want)
		}
		if _, stdout, _ := penstock(t, "explain", "--table", "--admin", addr, "--json"); strings.TrimSpace(stdout) != c.document {
			t.Errorf("--json changed the document:\n%s", stdout)
		}
	}
}
