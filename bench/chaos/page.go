package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page is all series of the gateway's /metrics.
func (s *site) page() (map[string]float64, error) {
	resp, err := http.Get("http://" + s.gateway.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	series := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			if series[line[:at]], err = strconv.ParseFloat(line[at+1:], 64); err != nil {
				return nil, fmt.Errorf("/metrics: %q: %w", line, err)
			}
		}
	}
	return series, lines.Err()
}

// sum adds up the series of a name that have the label.
func sum(page map[string]float64, name, label string) (total float64) {
	for series, v := range page {
		if n, labels, _ := strings.Cut(series, "{"); n == name && strings.Contains(labels, label) {
			total += v
		}
	}
	return total
}

// sample is what the gateway said of itself at one time.
type sample struct {
	at                                  time.Duration // since the load began
	dispatches, attempts, retries       float64
	utilisation                         float64
	rss, goroutines, files, connections float64
}

func sampleOf(page map[string]float64, at time.Duration) sample {
	return sample{at: at, dispatches: sum(page, "penstock_dispatches_total", ""), attempts: sum(page, "penstock_attempts_total", ""),
		retries: sum(page, "penstock_retries_total", ""), utilisation: page[`penstock_utilisation{model="`+modelName+`"}`],
		rss: page["process_resident_memory_bytes"], goroutines: page["go_goroutines"], files: page["process_open_fds"],
		connections: page["penstock_client_connections"]}
}

// firsts is how many requests had reached their first attempt: those let in.
func (s *sample) firsts() float64 { return s.attempts - s.retries }

// watch samples once a second until ctx ends.
func (s *site) watch(ctx context.Context, began time.Time) (all []sample) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if page, err := s.page(); err == nil {
			all = append(all, sampleOf(page, time.Since(began)))
		}
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
	}
}

// lagging measures until ctx ends how late this process wakes up: the 99th
// percentile. Beyond a little the machine is too busy for milliseconds to mean
// anything.
func lagging(ctx context.Context) time.Duration {
	const every = 10 * time.Millisecond
	var late []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		time.Sleep(every)
		late = append(late, time.Since(began)-every)
	}
	if slices.Sort(late); len(late) == 0 {
		return 0
	}
	return late[len(late)*99/100]
}

// amplification is deliveries over requests let in, over the whole and in the
// worst ten seconds with enough requests to tell: the ten repeats that are free
// in any ten seconds weigh less than the tenth part there.
func amplification(all []sample) (whole, worst float64) {
	const window, enough = 10, 200
	if len(all) == 0 {
		return 0, 0
	}
	first, last := all[0], all[len(all)-1]
	if n := last.firsts() - first.firsts(); n > 0 {
		whole = (last.dispatches - first.dispatches) / n
	}
	for i := 0; i+window < len(all); i++ {
		if n := all[i+window].firsts() - all[i].firsts(); n >= enough {
			worst = max(worst, (all[i+window].dispatches-all[i].dispatches)/n)
		}
	}
	return whole, max(worst, whole)
}

// slope is by how much a value grows in an hour, by least squares over the
// second half of the samples, after warm-up.
func slope(all []sample, of func(*sample) float64) float64 {
	half := all[len(all)/2:]
	n, sx, sy, sxx, sxy := 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range half {
		x, y := half[i].at.Hours(), of(&half[i])
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d > 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
