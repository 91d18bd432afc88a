package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"penstock/bench/experiments"
	"penstock/bench/sim"
	"penstock/bench/trace"
)

const simulateHelp = `What would a fleet make of a trace? Every policy is played on the same requests,
on virtual time: regions with a gateway each, engines that batch, cache prefixes
and run out of KV memory. Penstock's own policies are carried out by the
gateway's own code; those of other products are written from their descriptions.

--trace reads Mooncake, Azure, BurstGPT, Bailian, RAGPulse, weka and ServeGen files
as they are published, gzip too, and a gateway's access log. Without one, chats
come by chance.

` + fleetHelp + `

--utilisation sets how fast the requests come, so that demand is that part of what
the fleet carries, by the gateway's own reckoning of it; --speed sets it directly.

--what-if asks what would change, each time beside the fleet as it is, in words with
spaces or colons between:

`

const simulateExamples = `  penstock simulate --trace conversation_trace.jsonl.gz --policy optimal,nearest,least-request
  penstock simulate --trace AzureLLMInferenceTrace_conv.csv --utilisation 0.9 --policy all
  penstock simulate --trace trace.jsonl --fleet fleet.toml --what-if lose:us-east-1:at:10m:for:5m --what-if add:2:eu-west-1
  penstock simulate --json > result.json
  penstock simulate --experiment a3 --trace conversation_trace.jsonl.gz --seeds 3`

type simulateFlags struct {
	trace, fleet, policy string
	whatIf               []string
	speed, utilisation   float64
	until, warm          time.Duration
	requests             int
	seed                 uint64
	ttft, e2e, tbot      time.Duration
	asJSON, example      bool
	experiment           string
	seeds                int
	short                bool
}

func newSimulateCommand() *cobra.Command {
	var o simulateFlags
	cmd := &cobra.Command{
		Use:     "simulate [--trace FILE] [--fleet FILE] [--policy LIST]",
		Short:   "Play a trace on a simulated fleet, policies side by side",
		Long:    simulateHelp + indent(sim.WhatIfHelp) + "\n\nPolicies\n\n" + policyHelp() + experimentHelp(),
		Example: simulateExamples,
		Args:    exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.example {
				_, err := io.WriteString(cmd.OutOrStdout(), sim.ExampleFleet)
				return err
			}
			if cmd.Flags().Changed("experiment") {
				if !cmd.Flags().Changed("seeds") {
					o.seeds = 10
				}
				return runExperiment(cmd, &o)
			}
			if o.short {
				return usagef("--short is for --experiment")
			}
			if o.seeds < 1 {
				return usagef("--seeds %d: want 1 or more", o.seeds)
			}
			return runSimulate(cmd, &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.trace, "trace", "", "the requests, a trace `FILE`; without, chats by chance")
	f.StringVar(&o.fleet, "fleet", "", "the fleet: a fleet file, or a gateway's configuration `FILE`")
	f.StringVar(&o.policy, "policy", "optimal,capacity,nearest,waterfall,least-request,prefix", "policies to compare, a `LIST` with commas, or all")
	f.Float64Var(&o.speed, "speed", 0, "requests come `X` times as fast as in the trace")
	f.Float64Var(&o.utilisation, "utilisation", 0, "demand as a part of what the fleet carries, instead of --speed (0.7 where chats come by chance)")
	f.DurationVar(&o.until, "until", 0, "leave out what comes later in the trace, a `TIME` such as 10m")
	f.IntVar(&o.requests, "requests", 20_000, "how many chats come by chance")
	f.DurationVar(&o.warm, "warm-up", 0, "requests that come earlier in the run do not count, a `TIME`")
	f.StringArrayVar(&o.whatIf, "what-if", nil, "a change to ask about, may be repeated, such as 'demand x 1.5'")
	f.Uint64Var(&o.seed, "seed", 1, "of all that goes by chance")
	f.DurationVar(&o.ttft, "slo-ttft", 2*time.Second, "a request is good if its first token came within that `TIME`; 0 = whenever")
	f.DurationVar(&o.e2e, "slo-e2e", 0, "and its last one within that `TIME`; 0 = whenever")
	f.DurationVar(&o.tbot, "slo-tbot", 100*time.Millisecond, "and the mean `TIME` between tokens was no longer; 0 = whatever")
	f.StringVar(&o.experiment, "experiment", "", "run an experiment of that `NAME` instead; a3 takes --trace and --fleet")
	f.IntVar(&o.seeds, "seeds", 1, "so many runs of each policy, each with another seed; instances of each kind in an experiment, 10")
	f.BoolVar(&o.short, "short", false, "an experiment's short form, as in the tests")
	f.BoolVar(&o.asJSON, "json", false, "print a results file, for penstock report")
	f.BoolVar(&o.example, "example-fleet", false, "print a fleet file to start from")
	_ = cmd.MarkFlagFilename("fleet", "toml")
	names, _ := experiments.Names()
	_ = cmd.RegisterFlagCompletionFunc("experiment", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(append(sim.PolicyNames(), "all"), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// mostTimes bounds factors of time and load: what is meant is smaller, and what
// is larger overflows times or never ends.
const mostTimes = 1e6

func (o *simulateFlags) check(policies []sim.Policy) error {
	within := func(v, most float64) bool { return v >= 0 && v <= most }
	for i, p := range policies {
		if slices.ContainsFunc(policies[:i], func(q sim.Policy) bool { return q.Name == p.Name }) {
			return usagef("--policy: %s is named twice", p.Name)
		}
	}
	for name, d := range map[string]time.Duration{"until": o.until, "warm-up": o.warm, "slo-ttft": o.ttft, "slo-e2e": o.e2e, "slo-tbot": o.tbot} {
		if d < 0 {
			return usagef("--%s %s: want a time of 0 or more", name, d)
		}
	}
	switch {
	case o.speed < 0 || o.utilisation < 0 || o.speed > 0 && o.utilisation > 0:
		return usagef("want either --speed or --utilisation, above 0")
	case !within(o.speed, mostTimes):
		return usagef("--speed %g: want up to %g", o.speed, float64(mostTimes))
	case !within(o.utilisation, mostTimes):
		return usagef("--utilisation %g: want up to %g", o.utilisation, float64(mostTimes))
	case o.requests < 1:
		return usagef("--requests %d: want 1 or more", o.requests)
	}
	return nil
}

func runSimulate(cmd *cobra.Command, o *simulateFlags) error {
	policies, err := sim.ParsePolicies(o.policy)
	if err != nil {
		return usagef("--policy: %v", err)
	}
	if err := o.check(policies); err != nil {
		return err
	}
	var asked []*sim.WhatIf
	for _, text := range o.whatIf {
		w, err := sim.ParseWhatIf(text)
		if err != nil {
			return usageError{err.Error()}
		}
		if w.Demand > mostTimes {
			return usagef("--what-if %q: want a factor up to %g", text, float64(mostTimes))
		}
		asked = append(asked, w)
	}
	s, err := newSimulation(cmd, o)
	if err != nil {
		return err
	}
	report := &simulateReport{trace: s.name, requests: s.count, flags: o, load: s.load, slo: sim.SLO{TTFT: o.ttft, E2E: o.e2e, TBOT: o.tbot}}
	if err := s.scenario(report, "as it is", s.fleet, 1, policies, o); err != nil {
		return err
	}
	for _, w := range asked {
		f, err := w.Of(s.fleet)
		if err != nil {
			return err
		}
		demand := w.Demand
		if demand == 0 {
			demand = 1
		}
		if err := s.scenario(report, w.Text, f, demand, policies, o); err != nil {
			return err
		}
	}
	s.screen.progress(1, "")
	if o.asJSON {
		return printJSON(cmd, report.results())
	}
	return report.print(cmd.OutOrStdout())
}

// simulation is what all runs of the command share.
type simulation struct {
	name     string
	fleet    *sim.Fleet
	requests []sim.Request // nil: by chance
	load     sim.Load      // as the trace has it
	count    int
	speed    float64
	chance   *sim.Traffic
	screen   *screen
	done     int
}

func newSimulation(cmd *cobra.Command, o *simulateFlags) (s *simulation, err error) {
	s = &simulation{name: "chats by chance", screen: newScreen(cmd.ErrOrStderr())}
	fleet := &simFleet{}
	if o.fleet == "" {
		fleet.Fleet, err = sim.ParseFleet(sim.ExampleFleet, "example fleet")
	} else {
		fleet, err = readFleet(o.fleet)
	}
	if err != nil {
		return nil, err
	}
	s.fleet = fleet.Fleet
	if o.trace != "" {
		s.name = o.trace
		if s.requests, err = readTrace(o.trace, o.seed, o.until); err != nil {
			return nil, err
		}
	} else {
		s.chance = &sim.Traffic{Rate: 1, Requests: o.requests, Seed: o.seed, Prompt: 500, PromptSigma: 1, Output: 250, OutputSigma: 0.8,
			Turns: 5, Pause: 20 * time.Second, System: 512, BlockTokens: 16}
	}
	if s.load, s.count, err = s.fleet.Mean(s.feedOf(1, o.seed)); err != nil {
		return nil, err
	}
	fleet.complete(s.load, cmd.ErrOrStderr())
	s.speed = o.speed
	if s.speed == 0 {
		s.speed = 1
	}
	if o.utilisation == 0 && o.speed == 0 && s.chance != nil {
		o.utilisation = 0.7
	}
	if o.utilisation > 0 && s.load.Rate == 0 {
		return nil, fmt.Errorf("%s: its requests come all at once: there is no rate that --utilisation could change", s.name)
	}
	if o.utilisation > 0 {
		_, sum := s.fleet.Capacities(s.load)
		s.speed = o.utilisation * sum / s.load.Rate
	}
	return s, nil
}

// feedOf is the requests at a speed, anew for each run.
func (s *simulation) feedOf(speed float64, seed uint64) sim.Feed {
	if s.chance != nil {
		t := *s.chance
		t.Rate *= speed
		t.Seed = seed
		return &t
	}
	return &sim.List{Requests: s.requests, Speed: speed}
}

// scenario compares the policies on one fleet.
func (s *simulation) scenario(report *simulateReport, name string, f *sim.Fleet, demand float64, policies []sim.Policy, o *simulateFlags) error {
	s.done = 0
	load := s.load
	load.Rate *= s.speed * demand
	_, carries := f.Capacities(load)
	found := simulateScenario{name: name, rate: load.Rate, capacity: carries, engines: len(f.Engines), runs: make([][]*sim.Summary, len(policies))}
	for seed := o.seed; seed < o.seed+uint64(o.seeds); seed++ {
		p := &sim.Plan{Fleet: f, Policies: policies, Seed: seed, SLO: report.slo, Warm: o.warm, Load: load,
			Feed: func() (sim.Feed, error) { s.done++; return s.feedOf(s.speed*demand, seed), nil },
			Progress: func(policy string, n int) {
				share := (float64(s.done-1) + float64(n)/float64(s.count)) / float64(len(policies)*o.seeds)
				s.screen.progress(min(share, 0.999), fmt.Sprintf("%s: %s, %d requests", name, policy, n))
			}}
		results, err := sim.Compare(p)
		if err != nil {
			return err
		}
		if len(results) > 0 && results[0].Requests == 0 {
			return fmt.Errorf("no request comes after --warm-up %s: nothing would be measured", o.warm)
		}
		for i := range results {
			found.runs[i] = append(found.runs[i], results[i])
		}
	}
	report.scenarios = append(report.scenarios, found)
	return nil
}

// readTrace reads a whole trace: with a fault in it there is no result.
func readTrace(path string, seed uint64, until time.Duration) ([]sim.Request, error) {
	r, err := trace.Open(path, trace.Options{Seed: seed})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []sim.Request
	for {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if until > 0 && q.At >= until {
			continue
		}
		one := sim.Request{At: q.At, Conversation: q.Conversation, Turn: q.Turn, Prompt: q.Prompt, Output: q.Output, Blocks: q.Blocks, BlockTokens: q.BlockTokens, Source: q.Source}
		if one.Priority, err = priorityOf(q.Priority); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no request before %s", path, until)
	}
	return all, nil
}
