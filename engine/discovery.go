package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Discovery gives a fleet its engines: those of the configuration, and those
// that names and files list. What they list goes the way of a configured
// engine: the same checks, the same identity over changes.
//
// A source that fails changes nothing: its last good answer stays. What a good
// answer no longer has is gone, at once or after holdFor (holds.settle).
type Discovery struct {
	Resolver *net.Resolver // nil: the system's
	OnChange func(*Set)    // called with every new set, in order; may be nil

	fleet   *Fleet
	log     *slog.Logger
	cluster string // of engines that name none
	dir     string // where relative paths start

	reading sync.Mutex // one reading of the files at a time; taken before mu
	mu      sync.Mutex // guards what is below
	use     inUse
	holds   holds
	due     time.Time // when the next hold ends, zero for never
	skips   []skipped
	told    map[string]bool // skips that the log has
	counts  map[source]*sourceCount
	wake    chan struct{} // capacity 1: use or due changed
	reread  chan struct{} // capacity 1: read the files now
}

// inUse is a configuration with what its sources said last.
type inUse struct {
	configured []Config
	config     DiscoveryConfig
	patterns   []*pattern
	names      []*watchedName
}

// watchedName is what one name said last.
type watchedName struct {
	source
	dns dnsEntry
	now chan struct{} // capacity 1: look up at once

	answer  dnsAnswer // the last good one
	failing string    // why there is no good one since; "" if there is
}

// source is one entry of the configuration.
type source struct{ kind, entry string }

const (
	kindDNS    = "dns"
	kindFileSD = "file_sd"
)

func (s source) foundBy() string { return s.kind + " " + s.entry }

// NewDiscovery returns the discovery of a fleet. It starts nothing.
func NewDiscovery(fleet *Fleet, log *slog.Logger, cluster, dir string) *Discovery {
	return &Discovery{fleet: fleet, log: log, cluster: cluster, dir: dir, holds: holds{}, told: map[string]bool{},
		counts: map[source]*sourceCount{}, wake: make(chan struct{}, 1), reread: make(chan struct{}, 1)}
}

// LossError refuses a configuration that takes too much away at once.
type LossError struct {
	Gone  []string // names
	Share float64  // of the fleet's capacity
}

func (e *LossError) Error() string {
	return fmt.Sprintf("drops %s, %.0f %% of the capacity", someOf(e.Gone), e.Share*100)
}

// Configure takes a configuration into use as a whole, or not at all: the
// fleet has its engines when it returns, and those of its files. It is refused
// with a LossError where more than half of the capacity would go by it, unless
// force says that this is meant; force also ends what is held.
func (d *Discovery) Configure(engines []Config, c DiscoveryConfig, force bool) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	d.mu.Lock()
	before := d.use.patterns
	d.mu.Unlock()
	next := inUse{configured: engines, config: c, patterns: d.readAll(before, c)}

	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range c.DNS {
		i := slices.IndexFunc(d.use.names, func(l *watchedName) bool { return l.entry == entry })
		if i >= 0 {
			next.names = append(next.names, d.use.names[i])
			ring(d.use.names[i].now)
			continue
		}
		e, _ := parseDNSEntry(entry)
		next.names = append(next.names, &watchedName{source: source{kindDNS, entry}, dns: e, now: make(chan struct{}, 1)})
	}
	p := d.planLocked(next, force)
	if gone, share := Lost(d.fleet.configs(), p.all); share > 0.5 && !force {
		return &LossError{gone, share}
	}
	if err := d.applyLocked(p); err != nil {
		return err
	}
	d.use = next
	d.countLocked()
	d.awaitLocked()
	ring(d.wake)
	ring(d.reread)
	return nil
}

// plan is what a state of the sources comes to.
type plan struct {
	all   []Config
	skips []skipped
	holds holds
	due   time.Time
}

// planLocked works out the engines of u. force holds nothing.
func (d *Discovery) planLocked(u inUse, force bool) plan {
	var p plan
	lists, unusable := u.lists(d.template(u.config))
	p.all, p.skips = merge(u.configured, lists)
	p.skips = append(p.skips, unusable...)
	if force {
		p.holds = holds{}
		return p
	}
	current := slices.DeleteFunc(d.fleet.configs(), func(c Config) bool { return c.foundBy != "" && !u.has(c.foundBy) })
	var stay []Config
	p.holds, stay, p.due = d.holds.settle(current, p.all, u.emptied, time.Now())
	p.all = append(p.all, stay...)
	return p
}

// template is what every engine found starts with.
func (d *Discovery) template(c DiscoveryConfig) Config {
	t := c.Engine
	if t.Cluster == "" {
		t.Cluster = d.cluster
	}
	return t
}

// lists is what the sources list, those that say more of an engine first.
func (u inUse) lists(template Config) (lists [][]Config, unusable []skipped) {
	for _, p := range u.patterns {
		for _, f := range p.files {
			lists = append(lists, f.found)
		}
	}
	for _, l := range u.names {
		found := make([]Config, 0, len(l.answer.places))
		for _, at := range l.answer.places {
			c := template
			c.Name, c.URL, c.foundBy = at.name, at.url, l.foundBy()
			c = c.fromTemplate()
			if faults := c.Validate(); faults != nil {
				unusable = append(unusable, skipped{SkipUnusable, fmt.Sprintf("%s of %s: %s", c.URL, c.foundBy, faults[0])})
				continue
			}
			found = append(found, c)
		}
		for _, record := range l.answer.leftOut {
			unusable = append(unusable, skipped{SkipUnusable, record + " (" + l.foundBy() + ")"})
		}
		lists = append(lists, found)
	}
	return lists, unusable
}

// has reports whether a source is still configured.
func (u inUse) has(foundBy string) bool {
	path, isFile := strings.CutPrefix(foundBy, kindFileSD+" ")
	if isFile {
		return slices.ContainsFunc(u.patterns, func(p *pattern) bool { return p.covers(path) })
	}
	return slices.ContainsFunc(u.names, func(l *watchedName) bool { return l.foundBy() == foundBy })
}

// emptied reports whether a source lists nothing, or is a file that is gone.
func (u inUse) emptied(foundBy string) bool {
	for _, p := range u.patterns {
		for _, f := range p.files {
			if f.foundBy() == foundBy {
				return len(f.found) == 0
			}
		}
	}
	for _, l := range u.names {
		if l.foundBy() == foundBy {
			return len(l.answer.places) == 0
		}
	}
	return true
}

// configs are the configurations of the current set.
func (f *Fleet) configs() []Config {
	set := f.Set()
	all := make([]Config, len(set.Engines))
	for i, e := range set.Engines {
		all[i] = e.Config
	}
	return all
}

// applyLocked makes a plan the fleet. A fleet that has it already stays as it is.
func (d *Discovery) applyLocked(p plan) error {
	before := d.fleet.configs()
	slices.SortFunc(p.all, func(x, y Config) int { return strings.Compare(x.Name, y.Name) })
	if !reflect.DeepEqual(before, p.all) {
		if err := d.fleet.Apply(p.all); err != nil {
			return err
		}
		if d.OnChange != nil {
			d.OnChange(d.fleet.Set())
		}
		d.logChange(before, p.all)
	}
	if !p.holds.same(d.holds) {
		d.logHolds(d.holds, p)
	}
	d.logSkips(p.skips)
	d.holds, d.due, d.skips = p.holds, p.due, p.skips
	return nil
}

// refreshLocked follows what the sources say now.
func (d *Discovery) refreshLocked() {
	if err := d.applyLocked(d.planLocked(d.use, false)); err != nil {
		d.log.Error("discovery: the fleet stays as it is", "error", err)
	}
	ring(d.wake)
}

// answered takes the outcome of a look-up.
func (d *Discovery) answered(l *watchedName, a dnsAnswer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.use.names, l) {
		return
	}
	count := d.counts[l.source]
	if err != nil {
		count.failures++
		if l.failing == "" {
			l.failing = reasonOf(err)
			d.log.Warn("discovery fails, the last good answer stays", kindDNS, l.entry, "reason", l.failing, "engines", len(l.answer.places))
		}
		return
	}
	if l.failing != "" {
		l.failing = ""
		d.log.Info("discovery works again", kindDNS, l.entry)
	}
	if len(a.places) == 0 && (len(l.answer.places) > 0 || count.at.IsZero()) {
		d.log.Warn("discovery finds no engine", kindDNS, l.entry)
	}
	same := slices.Equal(a.places, l.answer.places) && slices.Equal(a.leftOut, l.answer.leftOut)
	l.answer, count.at = a, time.Now()
	if !same {
		d.refreshLocked()
	}
	d.awaitLocked()
}

// awaitLocked lets the fleet know whether some name has never been answered.
func (d *Discovery) awaitLocked() {
	d.fleet.Await(slices.ContainsFunc(d.use.names, func(l *watchedName) bool { return d.counts[l.source].at.IsZero() }))
}

// Run looks up and watches until ctx ends. It returns nil after all of its
// goroutines have ended.
func (d *Discovery) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { d.watchFiles(ctx) })
	running := map[*watchedName]context.CancelFunc{}
	for {
		d.mu.Lock()
		names, due := d.use.names, d.due
		d.mu.Unlock()
		for l, stop := range running {
			if !slices.Contains(names, l) {
				stop()
				delete(running, l)
			}
		}
		for _, l := range names {
			if running[l] == nil {
				nameCtx, stop := context.WithCancel(ctx)
				defer stop() // at the end of Run: there are as many as names were ever configured
				running[l] = stop
				wg.Go(func() { d.watchName(nameCtx, l) })
			}
		}
		var holdEnds <-chan time.Time
		if !due.IsZero() {
			holdEnds = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-holdEnds:
			d.mu.Lock()
			d.refreshLocked()
			d.mu.Unlock()
		}
	}
}
