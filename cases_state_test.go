package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/engine"
)

// Slots outlive the process: after reweights, and with slots still moving, a
// restarted gateway sends conversations with earlier turns where the last one
// did. Without the directory it starts from the weights.
func TestStateDirKeepsSlots(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("state_dir=%t", kept), func(t *testing.T) {
			t.Parallel()
			engines := startScripts(t, 4, playAnswer)
			dir := t.TempDir()
			text := func(first float64) string {
				head := "[routing]\npolicy = \"capacity\"\n[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n"
				if kept {
					head = fmt.Sprintf("[gateway]\nstate_dir = %q\n", dir) + head
				}
				for i, e := range engines {
					capacity := 1.0
					if i == 0 {
						capacity = first
					}
					head += engineTOML(nth(i), e.URL(), fmt.Sprintf("capacity = %g", capacity))
				}
				return head
			}
			c := client(t)
			g := startGateway(t, text(1), nths(4)...)
			ask := func(id int) string {
				return g.chat(c, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"conversation %d"},{"role":"assistant","content":"yes"},{"role":"user","content":"and?"}]}`, id))
			}
			ask(-1) // somebody is there: from now on slots have a past
			for _, first := range []float64{4, 0.2, 1} {
				g.write(text(first))
				if a := g.ask("POST", "/-/reload"); a.status != 200 {
					t.Fatalf("reload: %d %s", a.status, a.body)
				}
				g.await("the weights", func() bool {
					w := g.weight(nth(0))
					return w > first/(3+first)-0.001 && w < first/(3+first)+0.001
				})
				ask(-1)
			}
			const n = 120
			var homes [n]string
			for i := range homes {
				homes[i] = ask(i)
			}
			g.stop()
			g = startGateway(t, text(1), nths(4)...)
			elsewhere := 0
			for i := range homes {
				if ask(i) != homes[i] {
					elsewhere++
				}
			}
			if kept && elsewhere > 0 {
				t.Errorf("%d of %d conversations are elsewhere after the restart", elsewhere, n)
			}
			if !kept && elsewhere == 0 {
				t.Error("the past made no difference: the test shows nothing")
			}
		})
	}
}

// A state file that cannot be used is told and replaced; the gateway serves.
func TestStateDirDamaged(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	dir := t.TempDir()
	path := filepath.Join(dir, tableFile)
	if err := os.WriteFile(path, []byte("penstock table 1\n{\"version\":9"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, fmt.Sprintf("[gateway]\nstate_dir = %q\n[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n", dir)+engineTOML("e1", e.URL()), "e1")
	if a := g.post(client(t), "/v1/chat/completions", chatBody("m", "hello", false)); a.status != 200 {
		t.Errorf("status %d", a.status)
	}
	g.stop()
	if n := strings.Count(g.logs.String(), "the saved table is not used"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if _, err := readTable(path); err != nil {
		t.Errorf("the file after the stop: %v", err)
	}
	files, _ := os.ReadDir(dir)
	if len(files) != 1 {
		t.Errorf("left in the directory: %v", files)
	}
}

// Ids outlive the process, with the name under which their answers were asked
// for; those of engines that are gone do not.
func TestStateDirKeepsIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keepers := []*keeper{startKeeper(t, "a"), startKeeper(t, "b")}
	text := func(n int) string {
		out := fmt.Sprintf("[gateway]\nstate_dir = %q\n", dir) + anyPorts + publicTOML
		for i, k := range keepers[:n] {
			out += engineTOML(nth(i), k.URL(), `dialect = "openai"`)
		}
		return out
	}
	c := over1(t)
	g := startGateway(t, text(2), nths(2)...)
	by := map[string]string{}
	for i := range 40 {
		a := g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"a/public \"name\"","input":"question %d"}`, i))
		by[idOf(t, a)] = a.header.Get("X-Penstock-Engine")
	}
	g.stop()
	asked := func() int { return len(keepers[0].Exchanges()) + len(keepers[1].Exchanges()) }
	g = startGateway(t, text(2), nths(2)...)
	before := asked()
	for id, engine := range by {
		a := g.call(c, "GET", "/v1/responses/"+id, "")
		if a.status != 200 || a.header.Get("X-Penstock-Engine") != engine || !strings.Contains(a.body, `"model":"a/public \"name\""`) {
			t.Fatalf("%d by %s, want %s: %s", a.status, a.header.Get("X-Penstock-Engine"), engine, a.body)
		}
	}
	if n := asked() - before; n != len(by) {
		t.Errorf("%d requests at the engines for %d ids that are known", n, len(by))
	}
	g.stop()
	g = startGateway(t, text(1), nths(1)...)
	for id, engine := range by {
		if a := g.call(c, "GET", "/v1/responses/"+id, ""); (a.status == 200) != (engine == nth(0)) || a.status != 200 && a.status != 404 {
			t.Errorf("%s of %s: %d %s", id, engine, a.status, a.body)
		}
	}
	g.stop()
	path := filepath.Join(dir, idsFile)
	if err := os.WriteFile(path, []byte("penstock ids 1\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	g = startGateway(t, text(2), nths(2)...)
	for id, engine := range by {
		if a := g.call(c, "GET", "/v1/responses/"+id, ""); a.status != 200 || a.header.Get("X-Penstock-Engine") != engine {
			t.Errorf("looked for: %d %s", a.status, a.body)
		}
	}
	if n := strings.Count(g.logs.String(), "the saved ids are not used"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// Ids of engines that are found only after the start wait for them.
func TestStateDirKeepsIDsOfEnginesFoundLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := startKeeper(t, "a")
	targets := filepath.Join(dir, "engines.json")
	write := func(list string) {
		if err := os.WriteFile(targets+".new", []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(targets+".new", targets); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[gateway]\nstate_dir = %q\n", state) + anyPorts + fmt.Sprintf("[discovery]\nfile_sd = [%q]\n", targets)
	found := fmt.Sprintf(`[{"targets": [%q], "labels": {"dialect": "openai", "name": "k1"}}]`, strings.TrimPrefix(k.URL(), "http://"))
	write(found)
	c := over1(t)
	g := startGateway(t, text, "k1")
	id := idOf(t, g.post(c, "/v1/responses", `{"model":"m","input":"x"}`))
	g.stop()
	write("[]")
	g = startGateway(t, text)
	write(found)
	g.await("the engine to be found", func() bool { return g.engineState("k1") == "ready" && g.weight("k1") > 0 })
	before := len(k.Exchanges())
	if a := g.call(c, "GET", "/v1/responses/"+id, ""); a.status != 200 || len(k.Exchanges()) != before+1 {
		t.Errorf("%d after %d requests: %s", a.status, len(k.Exchanges())-before, a.body)
	}
}

// Nothing is used of saved ids that were changed or cut anywhere.
func TestSavedIDsAreWholeOrNothing(t *testing.T) {
	t.Parallel()
	g, _ := startKeepers(t, 1, publicTOML)
	other, _ := startKeepers(t, 1)
	c := over1(t)
	for i := range 3 {
		idOf(t, g.post(c, "/v1/responses", fmt.Sprintf(`{"model":"a/public \"name\"","input":"%d"}`, i)))
	}
	var saved bytes.Buffer
	if _, err := g.handler.IDs().WriteTo(&saved); err != nil {
		t.Fatal(err)
	}
	find := func(name, url string) *engine.Engine { return g.fleet.Set().ByName(name) }
	whole := saved.Bytes()
	for n := range whole {
		cut, changed := whole[:n], bytes.Clone(whole)
		changed[n] ^= 1
		for _, data := range [][]byte{cut, changed} {
			if count, _, err := other.handler.IDs().Restore(data, find); err == nil || count != 0 || other.handler.IDs().Changes() != 0 {
				t.Fatalf("byte %d: %d ids, %v", n, count, err)
			}
		}
	}
	if count, missing, err := other.handler.IDs().Restore(whole, find); err != nil || count != 3 || missing != 0 {
		t.Errorf("%d ids, %d engines missing, %v", count, missing, err)
	}
}
