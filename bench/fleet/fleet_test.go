package main

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"penstock/bench/child"
)

// The short form of what the command measures, with real gateways and a server of
// its own: they plan what one solver does, and some faults change nothing.
func TestShortForms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	penstock, err := child.Penstock(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"converge", "--for", "8s", "--penstock", penstock},
		{"faults", "--events", "8", "--penstock", penstock},
		{"rolling", "--rounds", "1", "--penstock", penstock},
	} {
		t.Run(args[0], func(t *testing.T) {
			var out, errs bytes.Buffer
			if err := run(t.Context(), args, &out, &errs); err != nil {
				t.Errorf("%v\n%s\n%s", err, out.String(), errs.String())
			}
			t.Log(out.String())
		})
	}
}

// The gap by the definition is zero at an optimum that is known by hand, and what
// the plan costs more elsewhere.
func TestGapByTheDefinition(t *testing.T) {
	p, err := readProblem([]byte(`{"engines": [
		{"name": "a", "cluster": "A", "capacity": 10, "latency": {"base_ms": 0, "slope_ms": 50, "limit": 20}},
		{"name": "b", "cluster": "B", "capacity": 10, "latency": {"base_ms": 0, "slope_ms": 50, "limit": 20}}],
		"classes": [{"name": "m"}], "demand": [{"source": "A", "class": "m", "rate": 8}],
		"rtt_ms": {"A": {"A": 0, "B": 0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	// Two equal engines at no distance: half each, at the price of the derivative.
	price := 50/(0.8*0.8) - 50
	even := proofOf(t, map[string]float64{"a": 0.5, "b": 0.5}, price)
	if gap, err := p.gap(even); err != nil || math.Abs(gap) > 1e-12 {
		t.Errorf("gap %g of the optimum: %v", gap, err)
	}
	if gap, err := p.gap(proofOf(t, map[string]float64{"a": 0.6, "b": 0.4}, price)); err != nil || gap < 1e-3 {
		t.Errorf("gap %g of another plan: %v", gap, err)
	}
	if _, err := p.gap(proofOf(t, map[string]float64{"a": 0.5, "b": 0.4}, price)); err == nil {
		t.Error("a tenth of the demand went nowhere")
	}
	p.Demand[0].Rate = 15
	if _, err := p.gap(proofOf(t, map[string]float64{"a": 1}, price)); err == nil {
		t.Error("an engine has more than it carries")
	}
}

func proofOf(t *testing.T, weights map[string]float64, price float64) *proof {
	t.Helper()
	text, err := json.Marshal(map[string]any{"prices_ms": map[string]float64{"a": price, "b": price},
		"solution": []any{map[string]any{"source": "A", "class": "m", "weights": weights}}})
	if err != nil {
		t.Fatal(err)
	}
	var s proof
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}
