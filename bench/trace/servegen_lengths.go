package trace

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
)

// serveLength is the token lengths of one client.
type serveLength struct {
	rate    float64 // of its requests, the weight with which others take its lengths
	in, out spread  // in has nothing for clients that send images
}

// spread is a distribution by its 10th, 50th, 90th and 99th percentile.
type spread struct {
	points [4]float64
	known  bool
}

var spreadNames = [4]string{"p10", "p50", "p90", "p99"}

// draw takes a length at random; 0 where nothing is known.
func (s *spread) draw(dice *rand.Rand) int {
	if !s.known {
		return 0
	}
	return int(math.Round(max(1, s.at(dice.Float64()))))
}

// at is the quantile of u: linear between percentiles, exponential above the
// 90th, where the last hundredth goes on as the nine before it.
func (s *spread) at(u float64) float64 {
	p := &s.points
	switch {
	case u < 0.10:
		return p[0] * u / 0.10
	case u < 0.50:
		return p[0] + (p[1]-p[0])*(u-0.10)/0.40
	case u < 0.90:
		return p[1] + (p[2]-p[1])*(u-0.50)/0.40
	}
	most := max(p[2], 1)
	return most * math.Pow(max(p[3], most)/most, (u-0.90)/0.09)
}

// addServeLengths gives every client its lengths, or those of a client of its
// workload that is drawn by rate.
func addServeLengths(clients []*serveClient, path string, seed uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return &Fault{File: path, Reason: "ServeGen has the clients' token lengths in a file of their own: " + err.Error()}
	}
	defer f.Close()
	l, err := newLines(f, path)
	if err != nil {
		return err
	}
	own, by, err := readServeLengths(l)
	if err != nil {
		return place(err, path, l.line)
	}
	for _, c := range clients {
		if c.lengths = own[c.key]; c.lengths == nil {
			others := by[c.key.workload]
			if len(others) == 0 {
				return &Fault{File: path, Field: "workload", Reason: "no lengths of any client of " + shown(c.key.workload)}
			}
			dice := rand.New(rand.NewPCG(seed, mix(mixText(c.key.workload), uint64(c.key.client), 1)))
			c.lengths = drawLength(others, dice)
		}
	}
	return nil
}

func drawLength(others []*serveLength, dice *rand.Rand) *serveLength {
	sum := 0.0
	for _, o := range others {
		sum += o.rate
	}
	left := dice.Float64() * sum
	for _, o := range others {
		if left -= o.rate; left < 0 {
			return o
		}
	}
	return others[len(others)-1]
}

func readServeLengths(l *lines) (own map[serveKey]*serveLength, by map[string][]*serveLength, err error) {
	own, by = map[serveKey]*serveLength{}, map[string][]*serveLength{}
	need := []string{"workload", "client", "mean_rate_rps"}
	for _, p := range spreadNames {
		need = append(need, "input_tokens_"+p, "output_tokens_"+p)
	}
	t, err := newTable(l, need...)
	if err != nil {
		return nil, nil, err
	}
	for {
		err := t.next()
		if errors.Is(err, io.EOF) {
			return own, by, nil
		}
		if err != nil {
			return nil, nil, err
		}
		client, err := parseCount("client", t.fields[t.index("client")])
		if err != nil {
			return nil, nil, err
		}
		key := serveKey{t.text(t.index("workload")), client}
		if own[key] != nil {
			return nil, nil, bad("client", strconv.Itoa(client), "a client of this number was there before")
		}
		row := &serveLength{}
		if row.rate, err = t.number(t.index("mean_rate_rps")); err != nil {
			return nil, nil, err
		}
		if row.in, err = t.spread("input_tokens_"); err != nil {
			return nil, nil, err
		}
		if row.out, err = t.spread("output_tokens_"); err != nil {
			return nil, nil, err
		}
		if row.out.known {
			own[key] = row
			by[key.workload] = append(by[key.workload], row)
		}
	}
}

// spread reads the columns of one distribution; all of them empty: not known.
func (t *table) spread(prefix string) (s spread, err error) {
	for i, p := range spreadNames {
		column := t.index(prefix + p)
		if t.text(column) == "" && (i == 0 || !s.known) {
			continue
		}
		v, err := t.number(column)
		if err != nil {
			return s, err
		}
		if v > mostTokens || i > 0 && (!s.known || v < s.points[i-1]) {
			return s, bad(prefix+p, t.text(column), "want percentiles that do not fall, or none of them")
		}
		s.points[i], s.known = v, true
	}
	return s, nil
}
