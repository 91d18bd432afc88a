package experiments

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
)

// Every experiment reaches its aims in its short form, and tells JSON.
func TestExperiments(t *testing.T) {
	for _, e := range experiments {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := Run(e.name, Options{Seeds: 10, Short: true, JSON: true}, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			if !json.Valid(out.Bytes()) {
				t.Errorf("no JSON: %.200s", out.String())
			}
		})
	}
}

func TestUnknownExperiment(t *testing.T) {
	if err := Run("a99", Options{Seeds: 1}, io.Discard); err == nil || !strings.Contains(err.Error(), "no experiment") {
		t.Errorf("%v", err)
	}
}

// The tail against what tables give (Abramowitz and Stegun 26.8).
func TestChiSquareTail(t *testing.T) {
	for _, c := range []struct {
		x       float64
		degrees int
		want    float64
	}{{3.841459, 1, 0.05}, {18.307038, 10, 0.05}, {29.588298, 10, 0.001}, {124.342113, 100, 0.05}, {77.929465, 100, 0.95}, {0, 5, 1}} {
		if got := chiSquareTail(c.x, c.degrees); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("chi-square %g of %d: %g, want %g", c.x, c.degrees, got, c.want)
		}
	}
}

// A split that is wrong by a little is seen, so that a pass says something.
func TestSplitSeesWrongWeights(t *testing.T) {
	f := newTabled(20)
	weights := make([]float64, 20)
	for i := range weights {
		weights[i] = 0.05
	}
	f.publish(weights, 0)
	if row := f.split("right", 1, weights, 200_000, 0); len((&a5Result{Rows: []a5Row{row}}).missed()) > 0 {
		t.Errorf("a right split is refused: %+v", row)
	}
	wrong := append([]float64(nil), weights...)
	wrong[0], wrong[1] = 0.054, 0.046
	row := f.split("wrong", 1, wrong, 200_000, 0)
	if missed := (&a5Result{Rows: []a5Row{row}}).missed(); len(missed) != 3 {
		t.Errorf("a wrong split misses only %q", missed)
	}
}

// The waterfall serves everything and keeps to its threshold while it can.
func TestWaterfall(t *testing.T) {
	m := drawMap(5, true)
	for _, u := range []float64{0.3, 0.95} {
		volume := u * m.total
		p := m.waterfall(volume, 0.5)
		if !m.feasible(p, volume) {
			t.Fatalf("at %.2f not feasible", u)
		}
		above := 0
		for j := range m.engine {
			load := 0.0
			for i := range p {
				load += p[i][j]
			}
			if load > 0.5*m.cap[j]*(1+1e-9) {
				above++
			}
		}
		if (above > 0) != (u > 0.5) {
			t.Errorf("at %.2f %d engines are above the threshold of 0.5", u, above)
		}
	}
	if far := m.mean(m.spray(0.3 * m.total)); far <= m.mean(m.tuned(0.3*m.total)) {
		t.Errorf("spray is better than the best waterfall: %.0f ms", far)
	}
}

// What is not served or is over a capacity is not feasible.
func TestFeasible(t *testing.T) {
	m := drawMap(1, false)
	volume := 0.9 * m.total
	p := m.spray(volume)
	p[0][0] += 0.1
	if m.feasible(p, volume) {
		t.Error("more is served than is asked for")
	}
	p = m.spray(volume)
	for i := range p {
		p[i][0], p[i][1] = p[i][0]+p[i][1], 0
	}
	if m.feasible(p, volume) {
		t.Error("an engine carries another one's load")
	}
}
