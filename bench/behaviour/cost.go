package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/bench/child"
)

// The cost of a proxy is the CPU time of its processes while it carries a
// given work. Engine and clients are in this process; every proxy is one of
// its own, limited to one processor. A round gives the same work to each
// proxy in a shuffled order, so that a machine that slows down slows all of
// them; a ratio compares two proxies of the same round, and the medians over
// the rounds are what to read.

type costOptions struct{ rounds, requests int }

// costClients is how many connections carry the work at the same time.
const costClients = 8

// load is one kind of work.
type load struct {
	name   string
	unit   string
	prompt int // bytes
	stream bool
	per    int // units in a request
}

// costLoads are what the goals speak of.
var costLoads = []load{
	{"1 KB request", "request", 1 << 10, false, 1},
	{"32 KB prompt", "request", 32 << 10, false, 1},
	{"64 KB prompt", "request", 64 << 10, false, 1},
	{"streamed chunk", "chunk", 1 << 10, true, costChunks + 2},
}

// costRow is one load in the report: microseconds by target, and ratios.
type costRow struct {
	Load  string     `json:"load"`
	Unit  string     `json:"unit"`
	Costs []costCell `json:"costs"`
}

type costCell struct {
	Target   string  `json:"target"`
	CPU      figures `json:"cpu_us"`
	ToBare   figures `json:"ratio_to_bare"`
	RSSBytes int64   `json:"rss_bytes"`
}

// figures are the lowest, the median and the highest over the rounds.
type figures struct {
	Low    float64 `json:"low"`
	Median float64 `json:"median"`
	High   float64 `json:"high"`
}

func figuresOf(values []float64) figures {
	values = slices.Clone(values)
	slices.Sort(values)
	return figures{values[0], values[len(values)/2], values[len(values)-1]}
}

// costTarget is a proxy at work.
type costTarget struct {
	*target
	proxy *child.Process
	base  string
}

// measureCosts starts the columns, the first of which is the bare proxy, and
// gives each of them every load.
func measureCosts(ctx context.Context, columns []*target, o options, work string, prefix []string, progress io.Writer) ([]costRow, error) {
	if _, err := cpuTime(os.Getpid()); err != nil {
		return nil, fmt.Errorf("CPU time of a process cannot be read here: %w", err)
	}
	engine, err := startCostEngine()
	if err != nil {
		return nil, err
	}
	defer engine.close()
	var at []*costTarget
	defer func() {
		for _, x := range at {
			x.proxy.Stop(stopGrace)
		}
	}()
	h := &harness{work: work, limits: o.limits}
	for _, column := range columns {
		if column.skip != "" {
			continue
		}
		x := &costTarget{target: column}
		x.prefix, x.env = prefix, []string{"GOMAXPROCS=1"}
		s := setup{engines: engine.addresses(), limits: o.limits}
		if s.dir, err = h.newDir(); err != nil {
			return nil, err
		}
		if x.proxy, err = x.start(ctx, &s); x.proxy != nil {
			at = append(at, x)
		}
		if err != nil {
			return nil, err
		}
		x.base = "http://" + s.listen
		if err := warmUp(ctx, x); err != nil {
			return nil, fmt.Errorf("%s: %w", x.name(), err)
		}
	}
	var rows []costRow
	for _, l := range costLoads {
		fmt.Fprintf(progress, "%s\n", l.name)
		row, err := measure(ctx, at, l, o.costs)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// pinning gives the proxies a processor of their own where there are two, and
// this process the others.
func pinning(progress io.Writer) (prefix []string) {
	taskset, err := exec.LookPath("taskset")
	if err != nil || runtime.NumCPU() < 2 {
		fmt.Fprintln(progress, "proxies and load share the processors: no taskset, or one processor only")
		return nil
	}
	rest := fmt.Sprintf("1-%d", runtime.NumCPU()-1)
	if err := exec.Command(taskset, "-a", "-c", "-p", rest, fmt.Sprint(os.Getpid())).Run(); err != nil {
		fmt.Fprintln(progress, "the load cannot be moved to processors of its own:", err)
	}
	return []string{taskset, "-c", "0"}
}

// warmUp waits until the proxy serves and has its connections.
func warmUp(ctx context.Context, x *costTarget) error {
	var err error
	for end := time.Now().Add(settleLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = drive(ctx, x.base, costLoads[0], 2*costClients); err == nil {
			return drive(ctx, x.base, costLoads[0], 500)
		}
	}
	return err
}

// measure is one load over all rounds.
func measure(ctx context.Context, at []*costTarget, l load, o costOptions) (costRow, error) {
	n := o.requests
	if l.stream {
		n = max(costClients, n/10)
	}
	spent := make([][]float64, len(at)) // microseconds per unit, by round
	for range o.rounds {
		for _, i := range rand.Perm(len(at)) {
			before, err := cpuTime(at[i].proxy.ID())
			if err != nil {
				return costRow{}, err
			}
			if err := drive(ctx, at[i].base, l, n); err != nil {
				return costRow{}, fmt.Errorf("%s: %w", at[i].name(), err)
			}
			after, err := cpuTime(at[i].proxy.ID())
			if err != nil {
				return costRow{}, err
			}
			spent[i] = append(spent[i], float64((after-before).Nanoseconds())/1000/float64(n*l.per))
		}
	}
	row := costRow{Load: l.name, Unit: l.unit}
	for i, x := range at {
		ratios := make([]float64, 0, o.rounds)
		for r := range spent[i] {
			ratios = append(ratios, spent[i][r]/spent[0][r]) // the first one is bare
		}
		row.Costs = append(row.Costs, costCell{Target: x.name(), CPU: figuresOf(spent[i]), ToBare: figuresOf(ratios),
			RSSBytes: residentBytes(x.proxy.ID())})
	}
	return row, nil
}

// drive sends n requests over a fixed number of connections, each with a
// conversation of its own, and reads every answer to its end.
func drive(ctx context.Context, base string, l load, n int) error {
	tr := &http.Transport{MaxIdleConnsPerHost: costClients, DisableCompression: true}
	defer tr.CloseIdleConnections()
	text := strings.Repeat("some words of a prompt ", l.prompt/23)
	var next atomic.Int64
	var clients sync.WaitGroup
	var once sync.Once
	var failed error
	for c := range costClients {
		clients.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if err := one(ctx, tr, base, l, fmt.Sprintf("conversation %d-%d %s", c, i, text)); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	clients.Wait()
	return failed
}

func one(ctx context.Context, tr *http.Transport, base string, l load, prompt string) error {
	body := chatBody(prompt, l.stream)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+generations, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK || l.stream && !bytes.HasSuffix(answer, []byte("[DONE]\n\n")):
		return fmt.Errorf("an answer with status %d: %.200s", resp.StatusCode, answer)
	}
	return nil
}

// printCost writes one table for all loads.
func (o options) printCost(doc *report, out io.Writer) error {
	if o.json {
		return doc.write(out)
	}
	fmt.Fprintf(out, "%s, %s, %d rounds of %d requests, %d connections\n\n", doc.Date, doc.Machine, o.costs.rounds, o.costs.requests, costClients)
	grid := [][]string{{"CPU time, us (x bare)"}}
	for _, c := range doc.Costs {
		grid[0] = append(grid[0], "per "+c.Load)
	}
	grid[0] = append(grid[0], "RSS after, MB")
	for i := range doc.Costs[0].Costs {
		cell := doc.Costs[0].Costs[i]
		line := []string{cell.Target}
		for _, c := range doc.Costs {
			x := c.Costs[i]
			line = append(line, fmt.Sprintf("%.1f (x %.2f, %.2f-%.2f)", x.CPU.Median, x.ToBare.Median, x.ToBare.Low, x.ToBare.High))
		}
		last := doc.Costs[len(doc.Costs)-1].Costs[i]
		grid = append(grid, append(line, fmt.Sprintf("%.0f", float64(last.RSSBytes)/1e6)))
	}
	write := writeText
	if o.format == "markdown" {
		write = writeMarkdown
	}
	if err := write(out, "Cost: medians of the rounds, lowest and highest ratio to a bare httputil.ReverseProxy in the same round", grid); err != nil {
		return err
	}
	printTargets(out, doc)
	return nil
}
