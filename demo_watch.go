package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	redrawEvery = time.Second     // on a terminal
	lineEvery   = 5 * time.Second // elsewhere
)

// watch shows what the engines do until the time is over.
func (t *tour) watch(over context.Context) {
	s := t.screen
	s.printf("%s\n", s.bold("Meanwhile the demo's own clients go on; Ctrl-C ends it."))
	every := lineEvery
	if s.tty {
		every = redrawEvery
	}
	for {
		if s.tty {
			s.redraw(t.block())
		} else {
			s.printf("%s\n", t.line())
		}
		if !rest(over, every) {
			return
		}
	}
}

// engineNow is what is shown of one engine.
type engineNow struct {
	demoEngineReport
	state    string
	inFlight int64
	share    float64 // of all answers so far
}

func (t *tour) enginesNow() (rows []engineNow, all *demoReport) {
	all = t.client.seen.report()
	for _, r := range all.Engines {
		row := engineNow{demoEngineReport: r}
		if e := t.fleet.gateway.fleet.Set().ByName(r.Name); e != nil {
			row.state, row.inFlight = e.Status().State.String(), e.InFlight()
		}
		if answers := all.Requests - all.Errors; answers > 0 {
			row.share = float64(r.Requests) / float64(answers)
		}
		rows = append(rows, row)
	}
	return rows, all
}

// block is the table that a terminal keeps in place.
func (t *tour) block() string {
	rows, all := t.enginesNow()
	var text bytes.Buffer
	lines := newTable(&text, "ENGINE", "STATE", "ANSWERS", "SHARE", "WEIGHT", "IN FLIGHT", "TTFT P50", "P95")
	for _, r := range rows {
		weight := t.fleet.weight(r.Name)
		lines.row(r.Name, r.state, fmt.Sprint(r.Requests), share(&r.share), share(&weight), fmt.Sprint(r.inFlight), ms(&r.p50), ms(&r.p95))
	}
	lines.print()
	fmt.Fprintf(&text, "%d requests, %d errors\n", all.Requests, all.Errors)
	return text.String()
}

// line is the same for a file.
func (t *tour) line() string {
	rows, all := t.enginesNow()
	parts := []string{fmt.Sprintf("%d requests, %d errors", all.Requests, all.Errors)}
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%s %.0f%%, %d in flight, TTFT %.0f/%.0f ms (p50/p95)", r.Name, 100*r.share, r.inFlight, r.p50, r.p95))
	}
	return strings.Join(parts, "; ")
}

// farewell is the last line.
func (t *tour) farewell() {
	all := t.client.seen.report()
	t.screen.printf("\n%d requests, %d errors. The demo has ended.\n", all.Requests, all.Errors)
}

// listening reports whether somebody accepts connections at an address.
func listening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
