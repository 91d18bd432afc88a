package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// served sends n requests, with keys and without, and counts by engine.
func (r *running) served(c *http.Client, n int) map[string]int {
	r.t.Helper()
	by := map[string]int{}
	for i := range n {
		headers := []string{"x-penstock-affinity", "off"}
		if i%2 == 0 {
			headers = []string{"x-session-id", fmt.Sprint("s", i%20)}
		}
		by[r.chat(c, chatBody("m", fmt.Sprint(i), i%3 == 0), headers...)]++
	}
	return by
}

// hostPort is HOST:PORT of the admin listener, for --admin.
func (r *running) hostPort() string { return strings.TrimPrefix(r.admin, "http://") }

func TestEnginesAreCordonedDrainedAndBack(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 3, playHeld(release))
	text := fleetTOML(engines, pin(0), pin(1), pin(2))
	g := startGateway(t, text, nths(3)...)
	c := client(t)
	order := func(path string) answered {
		t.Helper()
		a := g.ask("POST", "/engines/e01/"+path)
		if a.status != 200 || !strings.Contains(a.body, `"name": "e01"`) {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return a
	}
	none := func(when string) {
		t.Helper()
		before := len(engines[1].Exchanges())
		if by := g.served(c, 60); by["e01"] != 0 || len(engines[1].Exchanges()) != before {
			t.Errorf("%s: e01 served %d", when, by["e01"])
		}
		wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", false), "x-penstock-require", "pin=e01"), 503, "no_healthy_engine")
	}
	state := func(want string) {
		t.Helper()
		if row := g.engineRowOf("e01"); row.State != want {
			t.Errorf("/engines: %+v, want state %s", row, want)
		}
		if n := g.metric(`penstock_engine_state{engine="e01",state="` + want + `"}`); n != 1 {
			t.Errorf("the metric does not say %s", want)
		}
		if code, out, _ := penstock(t, "engines", "--admin", g.hostPort()); code != 0 || !strings.Contains(out, want) {
			t.Errorf("penstock engines: exit %d\n%s", code, out)
		}
	}
	if by := g.served(c, 60); by["e01"] == 0 {
		t.Fatalf("%v", by)
	}
	wait := g.streams(c, engines, 4, "x-penstock-require", "pin=e01")

	if a := order("cordon"); !strings.Contains(a.body, `"state": "cordoned"`) || !strings.Contains(a.body, `"in_flight": 4`) || !strings.Contains(a.body, `"health": "ready"`) {
		t.Errorf("%s", a.body)
	}
	none("cordoned")
	state("cordoned")
	if row := g.engineRowOf("e01"); row.Order != "cordon" || row.Reason != "ordered by an operator" {
		t.Errorf("%+v", row)
	}
	for i := range 3 {
		if err := g.rewrite(fmt.Sprintf("%s[limits]\nstall = \"%ds\"\n", text, 31+i)); err != nil {
			t.Fatal(err)
		}
	}
	none("cordoned, after reloads")
	// Taken out of the file and put back, it is still cordoned, and its streams still count.
	if err := g.rewrite(fleetTOML(engines[:1]) + engineTOML("e02", engines[2].URL(), pin(2))); err != nil {
		t.Fatal(err)
	}
	if err := g.rewrite(text); err != nil {
		t.Fatal(err)
	}
	state("cordoned")
	if row := g.engineRowOf("e01"); *row.InFlight != 4 {
		t.Errorf("%d in flight", *row.InFlight)
	}

	if a := order("drain"); !strings.Contains(a.body, `"state": "draining"`) {
		t.Errorf("%s", a.body)
	}
	none("draining")
	state("draining")
	close(release)
	wait()
	g.await("e01 to be drained", func() bool { return g.engineState("e01") == "drained" })
	state("drained")
	g.await("the log to say so", func() bool { return strings.Contains(g.logs.String(), `"msg":"engine drained","engine":"e01"`) })

	order("uncordon")
	g.await("e01 to be back", func() bool { return g.engineState("e01") == "ready" && g.weight("e01") > 0 })
	if by := g.served(c, 90); by["e01"] == 0 {
		t.Errorf("uncordoned, and no request comes: %v", by)
	}
	for _, path := range []string{"/engines/nobody/cordon", "/engines/e01/stop", "/engines/e01"} {
		if a := g.ask("POST", path); a.status != 404 && a.status != 405 {
			t.Errorf("POST %s: %d %s", path, a.status, a.body)
		}
	}
	if a := g.ask("GET", "/engines/e01/cordon"); a.status == 200 || g.engineState("e01") != "ready" {
		t.Errorf("GET cordons: %d", a.status)
	}
	if a := g.ask("POST", "/engines/e01/cordon", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"); a.status != 403 || g.engineState("e01") != "ready" {
		t.Errorf("a page of another site cordons: %d", a.status)
	}
	if a := g.get(c, "/engines/e01/cordon"); a.status != 404 {
		t.Errorf("the data port has admin paths: %d", a.status)
	}
}

// The order stands before health, in both directions.
func TestOrdersAndHealth(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 2, playAnswer)
	g := startGateway(t, fleetTOML(engines), nths(2)...)
	c := client(t)
	if a := g.ask("POST", "/engines/e00/cordon"); a.status != 200 {
		t.Fatal(a.body)
	}
	scrapes := engines[0].PageHits("/metrics")
	g.await("the cordoned engine to be watched all the same", func() bool { return engines[0].PageHits("/metrics") > scrapes })
	kill(engines[0])
	e := g.fleet.Set().ByName("e00")
	g.await("its health to be down", func() bool { e.Suspect(); return g.engineRowOf("e00").Health == "down" })
	if s := g.engineState("e00"); s != "cordoned" {
		t.Errorf("state %s", s)
	}
	if a := g.ask("POST", "/engines/e00/uncordon"); !strings.Contains(a.body, `"state": "down"`) {
		t.Errorf("%s", a.body)
	}
	// All engines of a model cordoned: said so, and not ready.
	if a := g.ask("POST", "/engines/e01/cordon"); a.status != 200 {
		t.Fatal(a.body)
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", false)), 503, "no_healthy_engine")
	if a := g.get(c, "/readyz"); a.status != 503 {
		t.Errorf("/readyz is %d with every engine cordoned", a.status)
	}
}

// A cordoned engine's conversations come back to it; a drained one's do not.
func TestConversationsUnderOrders(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	g := startGateway(t, fleetTOML(engines), nths(4)...)
	c := client(t)
	// A second turn shows the first.
	turn := func(i int) string {
		return g.chat(c, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`, "x-session-id", fmt.Sprint("conversation ", i))
	}
	const n = 200
	home := make([]string, n)
	for i := range home {
		home[i] = turn(i)
	}
	for _, order := range []string{"cordon", "drain"} {
		if a := g.ask("POST", "/engines/e02/"+order); a.status != 200 {
			t.Fatal(a.body)
		}
		g.await("the table to follow", func() bool { return g.weight("e02") == 0 })
		host := make([]string, n)
		for i := range home {
			if host[i] = turn(i); host[i] == "e02" || home[i] != "e02" && host[i] != home[i] {
				t.Fatalf("%s: conversation %d of %s is on %s", order, i, home[i], host[i])
			}
		}
		if a := g.ask("POST", "/engines/e02/uncordon"); a.status != 200 {
			t.Fatal(a.body)
		}
		g.await("the table to follow", func() bool { return g.weight("e02") > 0 })
		for i := range home {
			want := home[i]
			if order == "drain" {
				want = host[i]
			}
			if at := turn(i); at != want {
				t.Errorf("after %s and uncordon conversation %d is on %s, want %s", order, i, at, want)
			}
		}
	}
}

func TestOrdersByCommand(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 2, playHeld(release))
	g := startGateway(t, fleetTOML(engines, pin(0), pin(1)), nths(2)...)
	c := client(t)
	run := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := penstock(t, append(append([]string{"engines"}, args...), "--admin", g.hostPort())...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%q: exit %d, want %d with %q\n%s%s", args, got, code, want, out, errs)
		}
	}
	run(0, "e00 is cordoned, 0 in flight", "cordon", "e00")
	run(0, `"order": "cordon"`, "cordon", "e00", "--json")
	run(0, "e00 is ready", "uncordon", "e00")
	run(1, `has no engine "nobody"`, "drain", "nobody")
	run(2, "want one ENGINE, got 0", "drain")
	wait := g.streams(c, []*enginetest.Script{engines[1]}, 2, "x-penstock-require", "pin=e01")
	run(0, "e01 is draining, 2 in flight", "drain", "e01")
	run(1, "e01 is still draining after 20ms, 2 in flight", "drain", "e01", "--wait", "20ms")
	done := make(chan string, 1)
	go func() {
		_, out, errs := penstock(t, "engines", "drain", "e01", "--wait", "30s", "--admin", g.hostPort())
		done <- out + errs
	}()
	time.Sleep(50 * time.Millisecond)
	close(release)
	wait()
	if out := <-done; out != "e01 is drained, 0 in flight\n" {
		t.Errorf("%q", out)
	}
	if _, out, _ := penstock(t, "__complete", "engines", "drain", "--admin", g.hostPort(), ""); !strings.HasPrefix(out, "e00\ne01\n") {
		t.Errorf("completing gives %q", out)
	}
}

// With a state_dir an order outlives the process, for engines that are found
// as well; without, and once it is taken back, it does not.
func TestOrdersOutliveARestart(t *testing.T) {
	t.Parallel()
	engines, port := startScriptsAt(t, []string{"127.0.0.71", "127.0.0.72"}, playAnswer)
	testNames.SetHost("orders.test", "127.0.0.71", "127.0.0.72")
	dir := t.TempDir()
	found, configured := "127.0.0.71-"+port, "e1"
	extra := startScript(t, playAnswer)
	text := fmt.Sprintf("[gateway]\nstate_dir = %q\n%s%s[discovery]\ndns = [\"orders.test:%s\"]\n", dir, anyPorts, engineTOML(configured, extra.URL()), port)
	c := client(t)
	g := startGateway(t, text, found, configured)
	for path, state := range map[string]string{found + "/drain": "drain", configured + "/cordon": "cordon"} {
		if a := g.ask("POST", "/engines/"+path); a.status != 200 || !strings.Contains(a.body, state) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	g.stop()
	g = startGateway(t, text, "127.0.0.72-"+port)
	g.await("the engine that is found to be drained", func() bool { return g.engineState(found) == "drained" })
	if s := g.engineState(configured); s != "cordoned" {
		t.Errorf("%s is %s", configured, s)
	}
	before := len(engines[0].Exchanges()) + len(extra.Exchanges())
	for i := range 20 {
		g.chat(c, chatBody("m", fmt.Sprint(i), false))
	}
	if n := len(engines[0].Exchanges()) + len(extra.Exchanges()) - before; n != 0 {
		t.Errorf("engines out by order got %d requests", n)
	}
	for _, name := range []string{found, configured} {
		if a := g.ask("POST", "/engines/"+name+"/uncordon"); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	g.stop()
	g = startGateway(t, text, found, configured)
	g.stop()
	if err := os.WriteFile(filepath.Join(dir, ordersFile), []byte("{\"engine\":\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g = startGateway(t, text, found, configured)
	if n := strings.Count(g.logs.String(), "saved orders are not used"); n != 1 {
		t.Errorf("a damaged file is told %d times", n)
	}
}
