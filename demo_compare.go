package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/balancer"
	"penstock/route"
)

// comparison is all policies side by side, each in a fleet of its own, with
// the same requests at the same times.
type comparison struct {
	world  world
	rivals []*rival

	mu    sync.Mutex // guards what is below
	begin time.Time
	end   time.Time  // of the last request; zero: there is no end yet
	cut   []standing // how it stood when what was under way was broken off

	last []demoPolicyReport // what serve left
}

// newComparison opens the listeners of all fleets; nothing runs yet.
func newComparison(w world, logs, errs io.Writer) (*comparison, error) {
	c := &comparison{world: w}
	for _, each := range contestants {
		f, err := newDemoFleet(w, each, logs)
		if err != nil {
			c.close()
			return nil, err
		}
		c.rivals = append(c.rivals, newRival(f, newTally(w.engines(), errs)))
	}
	return c, nil
}

// close is for after serve, and for a comparison that is not served at all.
func (c *comparison) close() {
	for _, r := range c.rivals {
		r.close()
		r.abandon()
	}
}

func (c *comparison) tallies() (all []*tally) {
	for _, r := range c.rivals {
		all = append(all, r.seen)
	}
	return all
}

// serve runs all fleets for as long as use takes, which begins when all are in
// service, and keeps how the policies stood at its end.
func (c *comparison) serve(ctx context.Context, use func(context.Context) error) error {
	fleets := make([]*demoFleet, len(c.rivals))
	for i, r := range c.rivals {
		fleets[i] = r.demoFleet
	}
	return serveAll(ctx, fleets, func(ctx context.Context) error {
		for _, f := range fleets {
			if err := f.awaitReady(ctx); err != nil || ctx.Err() != nil {
				return err
			}
		}
		err := use(ctx)
		c.last = c.policies()
		return err
	})
}

// shown is the rival that the reader is a client of: the first under the
// policy that Penstock is made for.
func (c *comparison) shown() *rival {
	for _, r := range c.rivals {
		if r.policy == balancer.Optimal {
			return r
		}
	}
	return c.rivals[0]
}

// run sends the load until over ends and returns when all of it was answered.
func (c *comparison) run(ctx, over context.Context) {
	var running sync.WaitGroup
	begin := time.Now()
	c.mu.Lock()
	c.begin = begin
	c.mu.Unlock()
	for _, r := range c.rivals {
		running.Go(func() { r.load(ctx, over, begin) })
	}
	<-over.Done()
	c.mu.Lock()
	c.end = time.Now()
	c.mu.Unlock()
	if ctx.Err() != nil {
		cut := c.standings()
		c.mu.Lock()
		c.cut = cut
		c.mu.Unlock()
	}
	running.Wait()
}

// standing is how a policy stands.
type standing struct {
	name string
	figures
	use     []float64 // by cluster: mean load over capacity
	weights map[string]map[string]float64
}

// standings looks at all rivals. Load is what was answered and what is under
// way, over the time since the beginning.
func (c *comparison) standings() (all []standing) {
	c.mu.Lock()
	begin, end, cut := c.begin, c.end, c.cut
	c.mu.Unlock()
	if cut != nil {
		return cut
	}
	if end.IsZero() {
		end = time.Now()
	}
	length := end.Sub(begin).Seconds()
	for _, r := range c.rivals {
		s := standing{name: r.name, figures: r.seen.figures(), weights: r.allWeights()}
		for i := range c.world.clusters {
			name := r.engines[i].Name
			load := float64(s.served[name]) + float64(r.inFlight(name))
			s.use = append(s.use, load/max(length, 0.001)/c.world.clusters[i].capacity)
		}
		all = append(all, s)
	}
	return all
}

// allWeights are the weights of every cluster's gateway, by cluster; those of
// requests that need more than the model under "CLUSTER, NEED".
func (r *rival) allWeights() map[string]map[string]float64 {
	all := make(map[string]map[string]float64)
	for i, g := range r.gateways {
		for key, weights := range r.weights(g) {
			name := r.world.clusters[i].name
			if need := needText(key); need != "" {
				name += ", " + need
			}
			all[name] = weights
		}
	}
	return all
}

// needText is what a class needs beyond its model.
func needText(key route.ClassKey) string {
	return strings.TrimSpace(strings.TrimPrefix(key.String(), key.Model))
}

// policies is the comparison for the report.
func (c *comparison) policies() (all []demoPolicyReport) {
	for _, s := range c.standings() {
		all = append(all, demoPolicyReport{Name: s.name, Requests: s.requests, Errors: s.errors, MeanMS: rounded(s.mean), P99MS: rounded(s.p99),
			MaxUtilisation: rounded(slices.Max(s.use)), Shed: s.shed, Moved: s.moved, Weights: s.weights})
	}
	return all
}

// rounded is a figure to a thousandth: more of it is noise.
func rounded(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }

// table is the comparison for people.
func (c *comparison) table() string {
	var text bytes.Buffer
	columns := []string{"POLICY", "SENT", "MEAN", "P99"}
	for i, cl := range c.world.clusters {
		if i == 0 {
			columns = append(columns, "LOAD "+cl.engine.Name)
		} else {
			columns = append(columns, cl.engine.Name)
		}
	}
	rows := newTable(&text, append(columns, "MOVED", "SHED")...)
	all := c.standings()
	for _, s := range all {
		cells := []string{s.name, fmt.Sprint(s.requests), ms(&s.mean), ms(&s.p99)}
		for _, u := range s.use {
			cells = append(cells, fmt.Sprintf("%.0f%%", 100*u))
		}
		rows.row(append(cells, fmt.Sprint(s.moved), fmt.Sprint(s.shed))...)
	}
	rows.print()
	fmt.Fprintf(&text, "\nWhere %s's requests go:\n", c.world.clusters[excess].name)
	for _, s := range all {
		fmt.Fprintf(&text, "  %-18s %s\n", s.name, s.excessText(c.world.clusters[excess].name))
	}
	if why := c.whyText(); why != "" {
		text.WriteString("\n" + why)
	}
	return text.String()
}

// excessText is where the requests of the cluster with too much go.
func (s *standing) excessText(cluster string) string {
	parts := []string{sharesText(s.weights[cluster])}
	for _, name := range slices.Sorted(maps.Keys(s.weights)) {
		if need, ok := strings.CutPrefix(name, cluster+", "); ok {
			parts = append(parts, need+": "+sharesText(s.weights[name]))
		}
	}
	return strings.Join(parts, "; ")
}

// line is the comparison in one line, for a file.
func (c *comparison) line() string {
	var parts []string
	for _, s := range c.standings() {
		use := make([]string, len(s.use))
		for i, u := range s.use {
			use[i] = fmt.Sprintf("%.0f", 100*u)
		}
		parts = append(parts, fmt.Sprintf("%s mean %.0f ms, p99 %.0f ms, load %s %%", s.name, s.mean, s.p99, strings.Join(use, "/")))
	}
	return strings.Join(parts, "; ")
}

// begun reports whether there is anything to show.
func (c *comparison) begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.begin.IsZero()
}
