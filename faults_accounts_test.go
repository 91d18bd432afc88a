package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// finished waits until the gateway has booked every request that reached it,
// and returns the outcomes in its log by request id.
func (run *faultRun) finished(t *testing.T) map[string]string {
	outcomes := map[string]string{}
	read := 0
	awaitCond(t, "every request to be in the log", func() bool {
		run.g.lines.Hurry()
		text := run.g.logs.String()
		lines := text[read : strings.LastIndexByte(text, '\n')+1]
		read += len(lines)
		for line := range strings.Lines(lines) {
			var l struct {
				Msg, Outcome string
				ID           string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			switch _, twice := outcomes[l.ID]; {
			case l.Msg != "request":
			case twice:
				t.Fatalf("two outcomes of %s", l.ID)
			default:
				outcomes[l.ID] = l.Outcome
			}
		}
		for _, q := range run.asked {
			if outcomes[q.id] == "" && (q.stays || q.record != nil) {
				return false
			}
		}
		return run.g.metric("penstock_requests_running") == 0
	})
	return outcomes
}

// checkAccounts: every request has one outcome, and the log, the metrics and
// the records agree on it.
func (run *faultRun) checkAccounts(t *testing.T) {
	outcomes := run.finished(t)
	count, attempts := map[string]int{}, map[string]int{}
	for _, q := range run.asked {
		if o := outcomes[q.id]; o != "" { // else its client left before the request was there
			count[o]++
		}
		if q.record == nil {
			if q.record = run.g.selector.Records.Find(q.id); q.record == nil {
				continue
			}
		}
		tries, end := q.record.Attempts()
		if !end.Done || end.Outcome != outcomes[q.id] {
			t.Errorf("%s: recorded as %+v, logged as %q", q.id, end, outcomes[q.id])
		}
		for _, a := range tries {
			attempts[a.Engine+" "+a.Outcome]++
		}
	}
	// The transport may hold a body for a moment after its request has ended.
	awaitCond(t, "request bodies to be let go", func() bool { return run.g.metric("penstock_body_bytes") == 0 })
	page := run.metrics()
	for _, o := range []string{"ok", "client", "not_processed", "ambiguous", "committed", "gone"} {
		// Requests whose client left before their model was read are of the model "other".
		n := page[`penstock_requests_total{model="m",outcome="`+o+`",tenant="default"}`] +
			page[`penstock_requests_total{model="other",outcome="`+o+`",tenant="default"}`]
		if int(n) != count[o] {
			t.Errorf("penstock_requests_total says %v of outcome %s, the log %d", n, o, count[o])
		}
		for name := range run.sims {
			if n := page[`penstock_attempts_total{engine="`+name+`",outcome="`+o+`"}`]; int(n) != attempts[name+" "+o] {
				t.Errorf("penstock_attempts_total says %v of engine %s and outcome %s, the records %d", n, name, o, attempts[name+" "+o])
			}
		}
	}
	for name := range run.sims {
		if n, ok := page[`penstock_inflight{engine="`+name+`"}`]; n != 0 || !ok {
			t.Errorf("%v in flight at %s, known %t", n, name, ok)
		}
	}
	if n := page["penstock_panics_total"]; n != 0 {
		t.Errorf("%v panics", n)
	}
}

// metrics are all series of /metrics.
func (run *faultRun) metrics() map[string]float64 {
	page := map[string]float64{}
	for line := range strings.Lines(run.g.ask(http.MethodGet, "/metrics").body) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			page[line[:i]], _ = strconv.ParseFloat(strings.TrimSpace(line[i:]), 64)
		}
	}
	return page
}

// checkDeliveries: what each engine received is what was attempted on it, but
// for attempts that did not get there; and no request was received twice,
// unless its first connection had been idle and died without a word (C09).
func (run *faultRun) checkDeliveries(t *testing.T) {
	delivered := map[string]map[string]int{} // by engine and request
	for name, sim := range run.sims {
		delivered[name] = sim.Stats().Deliveries
	}
	dials, repeats, twice := 0, 0, 0
	for _, q := range run.asked {
		total := 0
		for name := range run.sims {
			total += delivered[name][q.id]
		}
		if q.record == nil {
			if total > 0 {
				t.Errorf("%s: %d deliveries and no record", q.id, total)
			}
			continue
		}
		tries, _ := q.record.Attempts()
		stale := 0
		for name := range run.sims {
			sure, perhaps := 0, 0
			for _, a := range tries {
				switch {
				case a.Engine != name:
				case a.Cause == "dial_failed" || a.Cause == "unsent":
					dials++
				case a.Cause == "stale_connection":
					perhaps++
					stale++
				case a.Cause == "client_gone" && !q.stays, a.Cause == "header_timeout":
					perhaps++ // the client or the gateway may have gone before the engine had all
				case a.Cause == "reset" && name == "refuse":
					perhaps++ // the engine may have closed its door before it took the connection
				default:
					sure++
				}
			}
			if n := delivered[name][q.id]; n < sure || n > sure+perhaps {
				t.Errorf("%s: %s received it %d times; attempts %+v", q.id, name, n, tries)
			}
		}
		repeats += stale
		if total > 1 {
			twice++
		}
		// One more engine after what it may have worked on, two after engines that were full.
		if total > min(len(tries), 3)+stale {
			t.Errorf("%s: delivered %d times, %d stale connections: %+v", q.id, total, stale, tries)
		}
	}
	booked := 0.0
	for name, v := range run.metrics() {
		if strings.HasPrefix(name, "penstock_retries_total{") {
			booked += v
		}
	}
	t.Logf("%d dials failed, %d requests were repeated on a fresh connection, %d of them delivered twice", dials, repeats, twice)
	if most := max(20, len(run.asked)/8); twice > most+repeats { // ten in any ten seconds, or a tenth
		t.Errorf("%d requests delivered twice of %d", twice, len(run.asked))
	}
	if float64(twice) > booked {
		t.Errorf("%d requests delivered twice, %v repeats of the kind that may be", twice, booked)
	}
	if dials == 0 && !testing.Short() {
		t.Error("no dial failed")
	}
}
