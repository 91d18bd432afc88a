package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/BurntSushi/toml"

	"penstock/balancer/profile"
	"penstock/bench/sim"
	"penstock/config"
	"penstock/engine"
)

// A simulation's fleet is a fleet file, or the configuration file of a gateway:
// its engines, and the round trips of its [network].

// simFleet is a fleet of which some speeds may still depend on the requests.
type simFleet struct {
	*sim.Fleet
	told []*engine.Config // by engine; nil for a fleet file, which tells all
}

// readFleet reads the file of --fleet, of either form.
func readFleet(path string) (*simFleet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !isConfiguration(string(text)) {
		f, err := sim.ParseFleet(string(text), path)
		return &simFleet{Fleet: f}, err
	}
	file, err := config.LoadFleet(path)
	if err != nil {
		return nil, faultsError(path, err)
	}
	f, err := configuredFleet(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// isConfiguration tells the two forms apart: engines of a fleet file stand in
// regions, those of a configuration have a URL.
func isConfiguration(text string) bool {
	var doc struct {
		Engines []map[string]any `toml:"engine"`
	}
	if _, err := toml.Decode(text, &doc); err != nil {
		return false // the reader of fleet files says what is wrong
	}
	return slices.ContainsFunc(doc.Engines, func(e map[string]any) bool { return e["url"] != nil })
}

// ordinary is an engine of which the file tells nothing: a model of some ten
// billion parameters on one GPU.
var ordinary = sim.EngineSpec{Step: 10, PerSeq: 0.1, PerToken: 0.06, Slots: engine.DefaultSlots}

// configuredFleet makes regions of clusters and sources. Demand enters, in equal
// parts, at the sources that [network] has a row of, else at the gateway's own.
func configuredFleet(file *config.File) (*simFleet, error) {
	f := &simFleet{Fleet: &sim.Fleet{Name: "the engines of " + file.Gateway.Name, Period: sim.Duration(file.Routing.Period)}}
	sources := slices.Collect(maps.Keys(file.Network.RTT))
	at := func(name string) bool { return slices.Contains(sources, name) }
	for i := range file.Engines {
		e := &file.Engines[i]
		if e.Capacity != nil && *e.Capacity == 0 {
			continue // takes no load
		}
		spec := ordinary
		spec.Name, spec.Region, spec.Untold = e.Name, e.Cluster, e.Profile == nil
		f.Engines = append(f.Engines, spec)
		f.told = append(f.told, e)
		if e.Cluster == file.Gateway.Source && !at(e.Cluster) {
			sources = append(sources, e.Cluster)
		}
	}
	if len(f.Engines) == 0 {
		return nil, fmt.Errorf("no engine in it has a capacity above 0 (those of [discovery] are not asked for)")
	}
	if len(sources) == 0 {
		sources = append(sources, file.Gateway.Source)
	}
	slices.Sort(sources)
	for _, name := range sources {
		f.Regions = append(f.Regions, sim.Region{Name: name, Share: 1})
	}
	for _, e := range f.Engines {
		if !slices.ContainsFunc(f.Regions, func(r sim.Region) bool { return r.Name == e.Region }) {
			f.Regions = append(f.Regions, sim.Region{Name: e.Region})
		}
	}
	f.Network.RTT = roundTrips(f.Regions, file.Network.RTT)
	return f, f.Complete()
}

// roundTrips adds the ways between clusters where no demand enters: no request
// takes them, and the file has no reason to tell them.
func roundTrips(regions []sim.Region, told map[string]map[string]float64) map[string]map[string]float64 {
	farthest := 0.0
	all := make(map[string]map[string]float64, len(regions))
	for source, row := range told {
		all[source] = row
		for _, ms := range row {
			farthest = max(farthest, ms)
		}
	}
	for _, from := range regions {
		if from.Share > 0 {
			continue
		}
		all[from.Name] = map[string]float64{}
		for _, to := range regions {
			if to.Share == 0 && to.Name != from.Name {
				all[from.Name][to.Name] = farthest
			}
		}
	}
	return all
}

// complete gives the engines of a configuration their speeds: a file has the
// latency of a request as a whole, a simulated engine computes steps, so that
// it takes the tokens of the mean request to make one of the other. What nothing
// was told of is said on notes.
func (f *simFleet) complete(mean sim.Load, notes io.Writer) {
	var unknown []string
	for i, told := range f.told {
		e := &f.Engines[i]
		if told.MaxInFlight > 0 {
			e.Slots = max(1, int(float64(told.MaxInFlight)/inFlightHeadroom))
		}
		switch p := told.Profile; {
		case p != nil && p.Steps():
			n := float64(max(1, told.Replicas))
			e.Step, e.PerSeq, e.PerToken = p.Step, p.PerSeq/n, p.PerToken/n
			if p.Slots > 0 {
				e.Slots = int(p.Slots * n)
			}
		case p != nil:
			stepsOf(e, p, told, mean)
		case told.Capacity != nil:
			if told.MaxInFlight == 0 {
				e.Slots = slotsFor(e, *told.Capacity, mean)
			}
			each, _ := f.Capacities(mean)
			slower := each[i] / *told.Capacity
			e.Step, e.PerSeq, e.PerToken = e.Step*slower, e.PerSeq*slower, e.PerToken*slower
		default:
			unknown = append(unknown, e.Name)
		}
		e.PrefillStep = e.Step
		// Slots bind before KV memory does, of which the file says nothing.
		e.KVTokens = max(e.KVTokens, int(2*float64(e.Slots)*(mean.Prompt+mean.Output)))
	}
	if len(unknown) > 0 {
		fmt.Fprintf(notes, "note: %s: neither profile nor capacity, taken for engines whose steps are %g ms, %g ms for each sequence and %g ms for each prompt token\n",
			plainText(someOf(unknown)), ordinary.Step, ordinary.PerSeq, ordinary.PerToken)
	}
}

// slotsFor is how many requests at once an engine of e's speed needs to carry
// capacity; the default where no number is enough, and it has to be faster.
func slotsFor(e *sim.EngineSpec, capacity float64, mean sim.Load) int {
	a := mean.Output * e.Step / 1000
	b := (mean.Output*e.PerSeq + (mean.Prompt-mean.Cached)*e.PerToken) / 1000
	n := math.Ceil(capacity * a / (1 - capacity*b))
	if !(n >= 1 && n <= engine.DefaultSlots) {
		return engine.DefaultSlots
	}
	return int(n)
}

// inFlightHeadroom is how far an in-flight cap is above the slots.
const inFlightHeadroom = 1.15

// nearlyFull is the part of a curve's limit up to which it is followed: at the
// limit itself it has no value.
const nearlyFull = 0.99

// mostShared is the part of a request's time that others may share with it.
const mostShared = 0.9

// promptPart of what a request adds to the time of others is its prompt's.
const promptPart = 0.25

// stepsOf makes an engine that takes as long as the profile says with nothing
// else to do, and as long at the highest load that it carries, which no more
// slots than are in use then let it exceed. With n requests in it one takes
// a + n b; n follows from Little's law.
func stepsOf(e *sim.EngineSpec, p *engine.Profile, told *engine.Config, mean sim.Load) {
	known := profile.Known{}
	known.Tell(p, 1)
	most := p.Most()
	if len(p.Points) == 0 {
		most *= nearlyFull
	}
	if told.Capacity != nil {
		most = min(most, *told.Capacity)
	}
	idle := known.Profile.Zero()
	full := idle + known.Profile.Congestion(most)
	n := math.Max(1, most*full/1000)
	b := 0.0
	if n > 1 {
		b = (full - idle) / (n - 1)
	}
	switch {
	case b > mostShared*idle: // one at a time, and what carries the load counts
		n, idle, b = 1, 1000/most, 0
	default: // both parts of a step take time, however flat the curve
		b = max(b, idle/1e4)
	}
	output, prompt := max(1, mean.Output), max(1, mean.Prompt-mean.Cached)
	e.Step = (idle - b) / output
	e.PerSeq, e.PerToken = max((1-promptPart)*b/output, 1e-6), promptPart*b/prompt
	if slots := int(math.Round(n)); told.MaxInFlight == 0 || slots < e.Slots {
		e.Slots = slots
	}
}

// fleetHelp says what --fleet takes.
const fleetHelp = `--fleet is a fleet file (--example-fleet prints one, which is also the fleet where none
is named), or the configuration file of a gateway: its engines by cluster, and the round
trips of its [network]; demand enters, in equal parts, at the sources that these have a
row of. engine.profile tells how fast an engine is, else engine.capacity; an engine with
neither is an ordinary one. Labels, tenants and [discovery] play no part.`
