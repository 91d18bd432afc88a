package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/balancer"
)

// Three gateways that a network joins plan as one solver with the whole problem
// does: the leader's problem has everybody's demand, its solution is that of
// `penstock solve`, and all have the same plan.
func TestFleetPlansTheWholeProblem(t *testing.T) {
	t.Parallel()
	d, err := newJoinedDemo(demoWorld, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := d.run(ctx, 0, nil)
		ended <- err
	}()
	var proof *balancer.Proof
	var at int
	awaitCond(t, "a leader that knows everybody's demand", func() bool {
		if at = d.leader(nil); at < 0 {
			return false
		}
		decision := d.gateways[at].loop.Decision()
		if decision == nil || len(decision.Proofs) != 1 {
			return false
		}
		proof = decision.Proofs[0]
		asked := 0
		for _, row := range proof.Problem.Demand {
			if row.Rate > 0 {
				asked++
			}
		}
		return asked == len(demoWorld.clusters) && d.leader(nil) == at
	})
	text, err := json.Marshal(proof.Problem)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "problem.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := penstock(t, "solve", "--problem", path, "--json")
	if code != exitDone {
		t.Fatalf("solve: exit code %d: %s", code, stderr)
	}
	var solved struct {
		Gap     float64 `json:"gap"`
		Weights []struct {
			Source, Engine string
			Weight         float64
		} `json:"weights"`
	}
	if err := json.Unmarshal([]byte(out), &solved); err != nil {
		t.Fatal(err)
	}
	far, ours := 0.0, map[[2]string]float64{}
	for c, row := range proof.Problem.Demand {
		for _, w := range proof.Plan.Row(c) {
			ours[[2]string{proof.Problem.Sources[row.Source], proof.Problem.Engines[w.Engine].Name}] = w.Weight
		}
	}
	for _, w := range solved.Weights {
		k := [2]string{w.Source, w.Engine}
		far = max(far, math.Abs(ours[k]-w.Weight))
		delete(ours, k)
	}
	for _, w := range ours {
		far = max(far, w)
	}
	t.Logf("%d demand rows; no weight differs by more than %.1e; gap %.1e", len(proof.Problem.Demand), far, solved.Gap)
	if far > 1e-6 {
		t.Errorf("a weight differs by %g from that of one solver with the whole problem", far)
	}
	cancel()
	<-ended
}

// What planning together is worth: the same requests with gateways that plan
// together, and with each for itself. PENSTOCK_FLEET_GAIN=1m is for how long.
func TestGainOfPlanningTogether(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("PENSTOCK_FLEET_GAIN"))
	if err != nil {
		t.Skip("a measurement: PENSTOCK_FLEET_GAIN=1m")
	}
	c := &comparison{world: demoWorld}
	for _, each := range []contestant{{name: "together", policy: balancer.Optimal}, {name: "alone", policy: balancer.Optimal, alone: true}} {
		f, err := newDemoFleet(c.world, each, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		c.rivals = append(c.rivals, newRival(f, newTally(c.world.engines(), os.Stderr)))
	}
	defer c.close()
	err = c.serve(t.Context(), func(ctx context.Context) error {
		over, cancel := context.WithTimeout(ctx, length)
		defer cancel()
		c.run(ctx, over)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", c.table())
	if mean := c.last; mean[0].MeanMS >= mean[1].MeanMS {
		t.Errorf("together %.0f ms, alone %.0f ms", mean[0].MeanMS, mean[1].MeanMS)
	}
}
