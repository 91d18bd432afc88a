package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/witness"
)

// booked is what the gateway's access log says of one request.
type booked struct {
	outcome  string
	attempts int
	code     string
}

// readLog reads the access log of the part's own requests: each has one line.
func (s *site) readLog() (map[string]booked, error) {
	file, err := os.Open(s.gateway.Log())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	all := map[string]booked{}
	for lines.Scan() {
		var l struct {
			Msg, Outcome, Code string
			ID                 string `json:"request_id"`
			Attempts           int
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%w in %s", err, lines.Text())
		}
		if l.Msg != "request" {
			continue
		}
		if _, twice := all[l.ID]; twice {
			return nil, fmt.Errorf("two lines in the log of %s", l.ID)
		}
		all[l.ID] = booked{l.Outcome, l.Attempts, l.Code}
	}
	return all, lines.Err()
}

// outcomes that a client which stayed may have met, by what it saw.
func outcomesOf(saw string) []string {
	status, _ := strconv.Atoi(strings.SplitN(saw, " ", 2)[0])
	switch {
	case saw == witness.Complete:
		return []string{"ok"}
	case strings.HasPrefix(saw, witness.CutPrefix):
		return []string{"committed"}
	case saw == "422 request_crashes_engine":
		return []string{"ambiguous", "client"}
	case status == 429, status == 503:
		return []string{"not_processed", "ambiguous"} // an engine's 503 among its 5xx, as an event
	case status >= 500:
		return []string{"ambiguous", "not_processed"}
	case status >= 400:
		return []string{"client"}
	}
	return nil
}

// accounts are the identities of protection.md 2.7 and what goes with them:
// clients, log, metrics and engines say the same.
type accounts struct {
	Checked  int      `json:"checked"`
	Broken   []string `json:"broken"` // the first of them
	Failures int      `json:"failures"`
}

const brokenShown = 12

func (a *accounts) check(ok bool, format string, args ...any) {
	if a.Checked++; !ok {
		if a.Failures++; len(a.Broken) < brokenShown {
			a.Broken = append(a.Broken, fmt.Sprintf(format, args...))
		}
	}
}

// settle compares them, once the gateway is quiet. A connection that died
// under a request (stale) may have brought it to the engine or not: by so much
// an engine's own count may be less than what was sent to it.
func (s *site) settle(all []asking) (a accounts, err error) {
	page, err := s.page()
	if err != nil {
		return a, err
	}
	log, err := s.readLog()
	for end := time.Now().Add(5 * time.Second); err == nil && float64(len(log)) < sum(page, "penstock_requests_total", "") && time.Now().Before(end); {
		time.Sleep(200 * time.Millisecond) // lines are written by and by
		log, err = s.readLog()
	}
	if err != nil {
		return a, err
	}
	counts, sent, attempts := map[string]float64{}, 0.0, 0.0
	for id, b := range log {
		counts[b.outcome]++
		attempts += float64(b.attempts)
		if b.attempts > 0 {
			sent++
		}
		a.check(strings.HasPrefix(id, s.part.name+"-"), "a request that nobody sent: %s", id)
	}
	unheard := 0
	reasons := map[string]float64{}
	for i := range all {
		q, id := &all[i], s.part.idOf(i)
		b, ok := log[id]
		if !ok {
			unheard++
			a.check(!q.stays, "%s: %s, and not in the log", id, q.saw)
			continue
		}
		if q.stays {
			a.check(slices.Contains(outcomesOf(q.saw), b.outcome), "%s: the client saw %q, the log says %s", id, q.saw, b.outcome)
			a.check(q.attempt == "" || q.attempt == strconv.Itoa(b.attempts), "%s: %s attempts by its header, %d in the log", id, q.attempt, b.attempts)
		}
		if q.stays && strings.HasSuffix(q.saw, " overloaded") {
			reasons[q.reason]++
		}
	}
	// admitted = ok + client_error + shed_after_queue + engine_error + cancelled
	a.check(len(log)+unheard == len(all), "%d requests sent, %d in the log, %d whose client left before", len(all), len(log), unheard)
	for _, o := range []string{"ok", "client", "not_processed", "ambiguous", "committed", "gone"} {
		n := sum(page, "penstock_requests_total", `outcome="`+o+`"`)
		a.check(n == counts[o], "penstock_requests_total: %g of outcome %s, the log has %g", n, o, counts[o])
	}
	// dispatches = admitted_dispatched + retries
	total, retries := sum(page, "penstock_attempts_total", ""), sum(page, "penstock_retries_total", "")
	a.check(total == attempts, "penstock_attempts_total: %g, the log has %g", total, attempts)
	a.check(total == sent+retries, "penstock_attempts_total: %g of %g requests and %g repeats", total, sent, retries)
	// and what engines say themselves
	stale := page[`penstock_retries_total{reason="stale_connection"}`]
	lost := 0.0
	for i, name := range s.names {
		label := `engine="` + name + `"`
		d, r := sum(page, "penstock_dispatches_total", label), float64(s.received(i))
		a.check(d <= sum(page, "penstock_attempts_total", label), "%s: %g dispatches, fewer attempts", name, d)
		a.check(r <= d, "%s received %g requests, of which %g were sent to it", name, r, d)
		lost += d - r
	}
	for reason, seen := range reasons {
		n := sum(page, "penstock_shed_total", `reason="`+reason+`"`)
		a.check(seen <= n || reason == "engine_full", "penstock_shed_total: %g of reason %s, clients saw %g", n, reason, seen)
	}
	a.check(lost <= stale+s.part.mayLose(page), "%g requests sent to engines that none received, %g connections died under one", lost, stale)
	a.check(page["penstock_panics_total"] == 0, "%g panics", page["penstock_panics_total"])
	return a, nil
}

// mayLose is how many requests an engine that stops listening may have dropped
// unread, beside those on connections that had been idle: attempts that ended
// without a word, where an engine refused at times.
func (p *part) mayLose(page map[string]float64) float64 {
	if !p.refuses {
		return 0
	}
	return sum(page, "penstock_retries_total", `reason="reset"`) + sum(page, "penstock_attempts_total", `outcome="gone"`)
}

// received is how many of the part's requests an engine had whole: the probes
// that the gateway sends to an engine that is out are not among them.
func (s *site) received(i int) (n int) {
	for id, times := range s.sims[i].Stats().Deliveries {
		if strings.HasPrefix(id, s.part.name+"-") {
			n += times
		}
	}
	return n
}

// duplicates says how many requests arrived at engines more often than they
// may: what may not be done twice, at most once; under a gateway that repeats
// by itself, once beside what a dead connection explains; all others at most
// three times, and three times only where no engine worked on it.
func (s *site) duplicates(all []asking, page map[string]float64) (forbidden []string, twice int) {
	times := map[string]int{}
	for _, sim := range s.sims {
		for id, n := range sim.Stats().Deliveries {
			times[id] += n
		}
	}
	stale := int(page[`penstock_retries_total{reason="stale_connection"}`])
	for i := range all {
		n := times[s.part.idOf(i)]
		once := all[i].kind == witness.Response
		if all[i].inner && !once && n > 1 && stale > 0 {
			stale--
			n--
		}
		if n > 3 || n > 1 && (once || all[i].inner) {
			forbidden = append(forbidden, fmt.Sprintf("%s: delivered %d times, %s attempts, the client saw %q; may not arrive twice: %t, repeated elsewhere: %t",
				s.part.idOf(i), n, all[i].attempt, all[i].saw, once, all[i].inner))
		}
		if n > 1 {
			twice++
		}
	}
	return forbidden, twice
}

// cancels are the times from a client's leaving to the engine's knowing it.
func (s *site) cancels(all []asking) (took []time.Duration) {
	left := map[string]time.Time{}
	for i := range all {
		if !all[i].left.IsZero() {
			left[s.part.idOf(i)] = all[i].left
		}
	}
	for _, sim := range s.sims {
		for _, d := range sim.Stats().Disconnects {
			if at, ok := left[d.ID]; ok && d.At.After(at) {
				took = append(took, d.At.Sub(at))
			}
		}
	}
	slices.Sort(took)
	return took
}
