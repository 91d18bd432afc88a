package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// serveWindow is how long a row of the rates holds.
const serveWindow = 600 * time.Second

// mostRate bounds a client, so that a file's mistake does not run for ever.
const mostRate = 1e6

// serveLengths is where the lengths are if the options name no other file.
const serveLengths = "servegen_client_lengths.csv"

// serveGen draws requests from ServeGen's clients: each is a renewal process
// with times between its requests as a Gamma or Weibull distribution, whose
// rate and shape change every ten minutes, and token lengths by their
// percentiles. Clients without lengths take those of clients of their workload,
// by rate.
type serveGen struct {
	clients []*serveClient // a heap by the next arrival
}

// serveClient is one client's arrivals. It draws by itself, so that what it
// does depends on no other client.
type serveClient struct {
	key     serveKey
	windows []serveRate // by start
	at      int         // the window
	next    time.Duration
	dice    *rand.Rand
	lengths *serveLength
	order   int // in the file, for arrivals at the same instant
}

type serveKey struct {
	workload string
	client   int
}

// serveRate is one window of a client.
type serveRate struct {
	start   time.Duration
	rate    float64 // requests/s
	weibull bool
	shape   float64
	mean    float64 // of the distribution with scale 1
}

func newServeGen(r *Reader, o Options) (*serveGen, error) {
	clients, err := readServeRates(r, o)
	if err != nil {
		return nil, err
	}
	path := o.Lengths
	if path == "" {
		path = filepath.Join(filepath.Dir(r.file), serveLengths)
	}
	if err := addServeLengths(clients, path, o.Seed); err != nil {
		return nil, err
	}
	g := &serveGen{}
	for _, c := range clients {
		if c.advance(c.windows[0].start) {
			g.push(c)
		}
	}
	return g, nil
}

func (g *serveGen) next() (Request, error) {
	if len(g.clients) == 0 {
		return Request{}, io.EOF
	}
	c := g.clients[0]
	q := Request{At: c.next, Think: unknownThink, Class: c.key.workload, Prompt: c.lengths.in.draw(c.dice), Output: c.lengths.out.draw(c.dice)}
	if c.advance(c.next) {
		g.down(0)
	} else {
		last := len(g.clients) - 1
		g.clients[0] = g.clients[last]
		g.clients = g.clients[:last]
		g.down(0)
	}
	return q, nil
}

// advance draws the arrival after an instant; false: there is none any more. A
// gap is drawn in units of its mean and used up at the rate of each window that
// it goes through, so that every window has as many arrivals as its rate says,
// however long the gaps are.
func (c *serveClient) advance(after time.Duration) bool {
	if c.at == len(c.windows) {
		return false
	}
	for left := c.windows[c.at].gap(c.dice); c.at < len(c.windows); c.at++ {
		w := &c.windows[c.at]
		after = max(after, w.start)
		here := (w.start + serveWindow - after).Seconds() * w.rate
		if left < here {
			c.next = after + time.Duration(left/w.rate*float64(time.Second))
			return true
		}
		left -= max(here, 0)
	}
	return false
}

// gap draws a time between two requests, with mean 1.
func (w *serveRate) gap(dice *rand.Rand) float64 {
	if w.weibull {
		return math.Pow(dice.ExpFloat64(), 1/w.shape) / w.mean
	}
	return Gamma(dice, w.shape) / w.mean
}

// Gamma draws from a gamma distribution with scale 1 (Marsaglia and Tsang,
// "A simple method for generating gamma variables", 2000).
func Gamma(dice *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return Gamma(dice, shape+1) * math.Pow(dice.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := dice.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-dice.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

func (g *serveGen) less(i, j int) bool {
	a, b := g.clients[i], g.clients[j]
	return a.next < b.next || a.next == b.next && a.order < b.order
}

func (g *serveGen) push(c *serveClient) {
	g.clients = append(g.clients, c)
	for i := len(g.clients) - 1; i > 0; {
		up := (i - 1) / 2
		if !g.less(i, up) {
			return
		}
		g.clients[i], g.clients[up] = g.clients[up], g.clients[i]
		i = up
	}
}

func (g *serveGen) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(g.clients); child++ {
			if g.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		g.clients[i], g.clients[least] = g.clients[least], g.clients[i]
		i = least
	}
}

// readServeRates reads the file of rates: clients in the order of the file.
func readServeRates(r *Reader, o Options) ([]*serveClient, error) {
	t, err := newTable(r.lines, "workload", "client", "window_start_s", "rate_rps", "dist", "shape")
	if err != nil {
		return nil, err
	}
	scale := o.Scale
	if scale == 0 {
		scale = 1
	}
	byKey := map[serveKey]*serveClient{}
	var clients []*serveClient
	var workloads []string
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		key, w, err := readServeRate(t)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(workloads, key.workload) {
			workloads = append(workloads, key.workload)
		}
		if o.Workload != "" && key.workload != o.Workload {
			continue
		}
		w.rate *= scale
		c := byKey[key]
		if c == nil {
			c = &serveClient{key: key, order: len(clients), dice: rand.New(rand.NewPCG(o.Seed, mix(mixText(key.workload), uint64(key.client))))}
			byKey[key] = c
			clients = append(clients, c)
		}
		if n := len(c.windows); n > 0 && w.start < c.windows[n-1].start+serveWindow {
			return nil, bad("window_start_s", t.text(t.index("window_start_s")), "want at least 600 s more than the client's window before")
		}
		c.windows = append(c.windows, w)
	}
	if len(clients) == 0 && len(workloads) > 0 {
		return nil, fmt.Errorf("no workload %q; there are %s", o.Workload, shownNames(workloads))
	}
	return clients, nil
}

func readServeRate(t *table) (key serveKey, w serveRate, err error) {
	client, err := parseCount("client", t.fields[t.index("client")])
	if err != nil {
		return key, w, err
	}
	start, err := t.number(t.index("window_start_s"))
	if err != nil {
		return key, w, err
	}
	if w.start, err = instant("window_start_s", start, time.Second); err != nil {
		return key, w, err
	}
	switch dist := t.text(t.index("dist")); dist {
	case "Weibull":
		w.weibull = true
	case "Gamma":
	default:
		return key, w, bad("dist", dist, "want Gamma or Weibull")
	}
	if w.rate, err = t.number(t.index("rate_rps")); err != nil {
		return key, w, err
	}
	if w.rate > mostRate {
		return key, w, bad("rate_rps", t.text(t.index("rate_rps")), "want at most %g requests/s", mostRate)
	}
	if w.shape, err = t.number(t.index("shape")); err != nil {
		return key, w, err
	}
	if w.mean = w.shape; w.weibull {
		w.mean = math.Gamma(1 + 1/w.shape)
	}
	// With less, the mean is made of gaps that practically never come, and the
	// others are nothing: an endless burst.
	least := 0.001
	if w.weibull {
		least = 0.1
	}
	if w.shape < least || w.shape > 1e6 {
		return key, w, bad("shape", t.text(t.index("shape")), "want a number between %g and 1e6", least)
	}
	return serveKey{t.text(t.index("workload")), client}, w, nil
}
