package main

import (
	"strings"
	"testing"
)

// A request that the gateway refused is explained as well as one that it
// served: which class it was, which engines a filter left out and why.
func TestExplainTellsWhoCouldNotServe(t *testing.T) {
	t.Parallel()
	here, there, other := startScript(t, playAnswer), startScript(t, playAnswer), startScript(t, playAnswer)
	g := startGateway(t, engineTOML("e00", here.URL(), `models = ["m"]`, eu)+
		engineTOML("e01", there.URL(), `models = ["m"]`, us, `capabilities = []`)+
		engineTOML("e02", other.URL(), `models = ["n"]`, eu), nths(3)...)
	c := client(t)
	for _, request := range []struct {
		id, require, body string
		status            int
		want              []string
	}{
		{"abroad", "residency=jp", chatBody("m", "hello", false), 503, []string{"served by no engine", "status 503, residency_not_available", "class m require residency=jp",
			"e00 does not carry the label residency=jp", "e01 does not carry the label residency=jp", "e02 does not serve m"}},
		{"format", "", schemaBody, 200, []string{"served by e00", "slot ", "e01 cannot do structured_output", "e02 does not serve m"}},
		{"neither", "residency=us", schemaBody, 400, []string{"capability_not_available", "e00 does not carry the label residency=us", "e01 cannot do structured_output"}},
	} {
		a := g.post(c, "/v1/chat/completions", request.body, append([]string{"x-request-id", request.id}, required(request.require)...)...)
		code, text, stderr := penstock(t, "explain", request.id, "--admin", g.adminAddress())
		if a.status != request.status || code != exitDone {
			t.Fatalf("%s: %d %s; explain: exit %d, %s", request.id, a.status, a.body, code, stderr)
		}
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range request.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %s", request.id, want, text)
			}
		}
	}
	if a := g.ask("POST", "/engines/e00/cordon"); a.status != 200 {
		t.Fatal(a.body)
	}
	g.await("e00 to be out", func() bool { return g.weight("e00") == 0 })
	a := g.post(c, "/v1/chat/completions", schemaBody, "x-request-id", "out")
	if _, text, _ := penstock(t, "explain", "out", "--admin", g.adminAddress()); a.status != 503 || !strings.Contains(strings.Join(strings.Fields(text), " "), "e00 is cordoned: ordered by an operator") {
		t.Errorf("%d, %s", a.status, text)
	}
	if n := g.metric(`penstock_requests_total{model="m",outcome="not_processed",tenant="default"}`); n != 2 {
		t.Errorf("%v refused requests of the model, want 2", n)
	}
}

func required(labels string) []string {
	if labels == "" {
		return nil
	}
	return []string{"x-penstock-require", labels}
}
