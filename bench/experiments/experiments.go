package experiments

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"penstock/bench/sim"
)

// experiment is one of them.
type experiment struct {
	name, title string
	run         func(Options) (result, error)
}

// result is what an experiment found. It is told as JSON or by print.
type result interface {
	print(w io.Writer)
	missed() []string // aims that it does not meet
}

var experiments = []experiment{
	{"a1", "every solution is proven: gap and capacities over many problems", runA1},
	{"a2", "what optimal weights are worth: beside waterfall by region, tuned and not, and spray", runA2},
	{"a3", "what of that comes true: policies side by side on a fleet that batches and caches", runA3},
	{"a4", "what becomes of weights in a closed loop with late signals, optimal beside feedback", runA4},
	{"a5", "how near the split is to the weights", runA5},
	{"a6", "how many conversations a reweighting moves", runA6},
	{"a7", "bounds hold, and what spills comes back to the same alternate", runA7},
	{"a8", "goodput and priorities at overload", runA8},
	{"a9", "what reweighting costs the engines' prefix caches", runA9},
}

// Options are how an experiment is run.
type Options struct {
	Seeds int  // instances of each kind, at least 1
	JSON  bool // tell one JSON document
	Short bool // as in tests: smaller, the same aims

	// A3: the requests and what they are called; nil: chats by chance.
	Requests []sim.Request
	Trace    string
	Fleet    *sim.Fleet // nil: the example fleet
	Progress func(share float64, what string)
}

func (o *Options) progress(share float64, what string) {
	if o.Progress != nil {
		o.Progress(share, what)
	}
}

// Names are those that Run knows, with what they are about.
func Names() (names, titles []string) {
	for _, e := range experiments {
		names, titles = append(names, e.name), append(titles, e.title)
	}
	return names, titles
}

// Run runs an experiment and tells what it found. An aim that is missed is an
// error, after what was found.
func Run(name string, o Options, out io.Writer) error {
	for _, e := range experiments {
		if e.name == strings.ToLower(name) {
			return e.do(o, out)
		}
	}
	names, _ := Names()
	return fmt.Errorf("there is no experiment %q: want one of %s", name, strings.Join(names, ", "))
}

func (e *experiment) do(o Options, out io.Writer) error {
	r, err := e.run(o)
	if err != nil {
		return err
	}
	o.progress(1, "")
	if o.JSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "%s: %s\n\n", strings.ToUpper(e.name), e.title)
		r.print(out)
	}
	if missed := r.missed(); len(missed) > 0 {
		return fmt.Errorf("%s misses: %s", e.name, strings.Join(missed, "; "))
	}
	if !o.JSON {
		fmt.Fprintf(out, "\n%s meets its aims.\n", strings.ToUpper(e.name))
	}
	return nil
}
