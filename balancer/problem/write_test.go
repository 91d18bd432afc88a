package problem

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// What is written reads back as the same problem: the same numbers, and the
// same round trip from every source to every engine.
func TestWrittenProblemsReadBack(t *testing.T) {
	files, err := filepath.Glob("../testdata/problems/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d problems, %v", len(files), err)
	}
	texts := []string{
		`{"sources":["A"],"engines":[{"name":"x","cluster":"A","capacity":1,"latency":{"base_ms":0,"slope_ms":5,"limit":1}},
			{"name":"A","cluster":"x","capacity":2,"latency":{"points":[[0,4],[2,6]]}},{"name":"y","cluster":"x","capacity":0,"latency":{"base_ms":0,"slope_ms":0,"limit":0}}],
			"classes":[{"name":"m","engines":["x"]},{"name":"n","engines":[]},{"name":"o","priority":"critical","work":2,"distance_weight":0}],
			"demand":[{"source":"A","class":"m","rate":1},{"source":"A","class":"o","rate":0}],"rtt_ms":{"A":{"A":7,"x":3,"y":9}},
			"previous":[{"source":"A","class":"o","weights":{"A":0.25,"y":0.5,"gone":0.1}}],"move_price_ms":3,"shed_curvature":0.25}`,
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	read := 0
	for i, text := range texts {
		p, err := Parse([]byte(text))
		if err != nil {
			continue // a file beside the problems
		}
		read++
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Errorf("problem %d: %v", i, err)
			continue
		}
		for s := range p.Sources {
			for j := range p.Engines {
				if was, now := p.RTT[s][p.Engines[j].Place], again.RTT[s][again.Engines[j].Place]; was != now && (was == was || now == now) {
					t.Errorf("problem %d: from %s to %s %v, was %v", i, p.Sources[s], p.Engines[j].Name, now, was)
				}
			}
		}
		for j := range p.Engines {
			p.Engines[j].Place, again.Engines[j].Place = 0, 0
		}
		p.RTT, again.RTT = nil, nil
		if !reflect.DeepEqual(p, again) {
			t.Errorf("problem %d reads back as\n%+v, was\n%+v", i, again, p)
		}
	}
	if read < 2 {
		t.Errorf("only %d problems", read)
	}
}
