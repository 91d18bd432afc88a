package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/engine/enginetest"
)

// testNames are the names that exist for this process, served by a name server
// on loopback that starts with the first question. Each test has names of its
// own.
var testNames = enginetest.NewZone()

func init() {
	resolver := sync.OnceValues(func() (*net.Resolver, error) {
		dns, err := enginetest.StartDNS(testNames)
		if err != nil {
			return nil, err
		}
		return dns.Resolver(), nil
	})
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		r, err := resolver()
		if err != nil {
			return nil, err
		}
		return r.Dial(ctx, network, address)
	}}
}

// startScriptsAt runs scripted engines on one port of several loopback
// addresses, as pods behind a headless service have one port.
func startScriptsAt(t testing.TB, hosts []string, play enginetest.Play) (engines []*enginetest.Script, port string) {
	t.Helper()
	for range 20 {
		_, port, _ = net.SplitHostPort(freeAddress(t))
		for _, host := range hosts {
			e, err := enginetest.StartScriptAt(net.JoinHostPort(host, port), play)
			if err != nil {
				if runtime.GOOS != "linux" {
					t.Skipf("this system has no loopback address %s: %v", host, err)
				}
				break // somebody else has the port there
			}
			engines = append(engines, e)
		}
		if len(engines) == len(hosts) {
			for _, e := range engines {
				t.Cleanup(e.Close)
			}
			return engines, port
		}
		for _, e := range engines {
			e.Close()
		}
		engines = nil
	}
	t.Fatal("no port is free on all addresses")
	return nil, ""
}

// steady sends requests all the time, workers at once, until stop, which
// reports how many there were and what was wrong with those that failed.
func (r *running) steady(c *http.Client, workers int) (stop func() (sent int)) {
	var all together
	var n atomic.Int64
	done := make(chan struct{})
	for w := range workers {
		all.send(func() string {
			for {
				select {
				case <-done:
					return ""
				default:
				}
				i := n.Add(1)
				headers := []string{"x-penstock-affinity", "off"}
				if i%3 == 0 {
					headers = []string{"x-session-id", fmt.Sprint(w, i%7)}
				}
				if fault := r.post(c, "/v1/chat/completions", chatBody("m", fmt.Sprint(i), i%2 == 0), headers...).notWhole(); fault != "" {
					return fmt.Sprintf("request %d: %s", i, fault)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return func() int {
		r.t.Helper()
		close(done)
		all.wait(r.t)
		return int(n.Load())
	}
}

// engines are the names in the fleet.
func (r *running) engines() (names []string) {
	for _, e := range r.fleet.Set().Engines {
		names = append(names, e.Name)
	}
	return names
}

// awaitEngines waits for the fleet and its table to be these, all ready and
// with weight.
func (r *running) awaitEngines(names ...string) {
	r.t.Helper()
	r.await(fmt.Sprintf("the engines to be %q", names), func() bool {
		if !slices.Equal(r.engines(), names) || !r.loop.Follows(r.fleet.Set()) {
			return false
		}
		return !slices.ContainsFunc(names, func(n string) bool { return r.weight(n) == 0 })
	})
}

func TestC22_ARemovalWhileTheNameServerFails(t *testing.T) {
	t.Parallel()
	const name = "c22.test"
	engines, port := startScriptsAt(t, []string{"127.0.0.21", "127.0.0.22", "127.0.0.23"}, playAnswer)
	at := func(host string) string { return host + "-" + port }
	testNames.SetHost(name, "127.0.0.21", "127.0.0.22", "127.0.0.23")
	g := startGateway(t, fmt.Sprintf("[discovery]\ndns = [%q]\n", name+":"+port))
	g.awaitEngines(at("127.0.0.21"), at("127.0.0.22"), at("127.0.0.23"))
	entry := fmt.Sprintf(`{entry="%s:%s",kind="dns"}`, name, port)
	c := client(t)
	stop := g.steady(c, 4)
	testNames.Fail(name, enginetest.DNSServFail)
	testNames.SetHost(name, "127.0.0.22", "127.0.0.23")
	g.await("the failure to be seen", func() bool { return g.metric("penstock_discovery_failing"+entry) == 1 })
	g.await("a failure to be counted", func() bool { return g.metric("penstock_discovery_failures_total"+entry) > 0 })
	g.await("the log to say so", func() bool { return strings.Contains(g.logs.String(), "discovery fails") })
	if n := strings.Count(g.logs.String(), "discovery fails"); n != 1 {
		t.Errorf("%d lines on the failure", n)
	}
	if len(g.engines()) != 3 {
		t.Errorf("the last known set did not stay: %q", g.engines())
	}
	kill(engines[0]) // it is gone as well as removed: health notices without any name server
	g.await("the dead engine to be out", func() bool { return g.weight(at("127.0.0.21")) == 0 })
	testNames.Fail(name, enginetest.DNSAnswers)
	g.awaitEngines(at("127.0.0.22"), at("127.0.0.23"))
	if n := stop(); n < 100 {
		t.Errorf("only %d requests", n)
	}
	g.await("its series to be gone", func() bool { return !strings.Contains(g.ask("GET", "/metrics").body, "127.0.0.21") })
	if row := g.engineRowOf(at("127.0.0.22")); row.FoundBy != "dns "+name+":"+port {
		t.Errorf("%+v", row)
	}
}

// Engines come and go by their names; those that go finish their streams, those
// that return are the same.
func TestC45_StreamsOutliveDiscovery(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines, port := startScriptsAt(t, []string{"127.0.0.31", "127.0.0.32", "127.0.0.33"}, playHeld(release))
	file := filepath.Join(t.TempDir(), "engines.json")
	list := func(pins ...int) {
		t.Helper()
		var groups []string
		for _, i := range pins {
			groups = append(groups, fmt.Sprintf(`{"targets": ["127.0.0.3%d:%s"], "labels": {"name": "e%02d", "pin": "e%02d"}}`, i+1, port, i, i))
		}
		if err := os.WriteFile(file+".new", []byte("["+strings.Join(groups, ",\n")+"]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	list(0, 1, 2)
	g := startGateway(t, fmt.Sprintf("[discovery]\nfile_sd = [%q]\n", file), nths(3)...)
	c := client(t)
	wait := g.streams(c, engines, 6, "x-penstock-require", "pin=e01")
	list(0, 2)
	g.awaitEngines("e00", "e02")
	for i := range 30 {
		if e := g.chat(c, chatBody("m", fmt.Sprint(i), true)); e == "e01" {
			t.Fatal("a new request was served by the engine that is gone")
		}
	}
	wantRefusal(t, g.post(c, "/v1/chat/completions", chatBody("m", "x", true), "x-penstock-require", "pin=e01"), 503, "no_healthy_engine")
	list(0, 1, 2)
	g.awaitEngines(nths(3)...)
	if n := g.metric(`penstock_inflight{engine="e01"}`); n != 6 {
		t.Errorf("%g streams are in flight on the engine that is back, not 6", n)
	}
	close(release)
	wait()
	g.await("in flight to be zero", func() bool { return g.metric(`penstock_inflight{engine="e01"}`) == 0 })
}

// A headless service of pods with names: they keep their names while their
// addresses change, and the gateway follows within seconds.
func TestDiscoveryBySRV(t *testing.T) {
	t.Parallel()
	engines, port := startScriptsAt(t, []string{"127.0.0.41", "127.0.0.42", "127.0.0.43"}, playAnswer)
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	pod := func(i int) net.SRV {
		return net.SRV{Target: fmt.Sprintf("pod-%d.srv.test.", i), Port: uint16(n), Weight: 50}
	}
	testNames.SetHost("pod-0.srv.test", "127.0.0.41")
	testNames.SetHost("pod-1.srv.test", "127.0.0.42")
	testNames.SetSRV("_http._tcp.srv.test", pod(0), pod(1))
	g := startGateway(t, "[discovery]\ndns = [\"_http._tcp.srv.test\"]\n[discovery.engine]\nlabels = { residency = \"eu\" }\n")
	first, second := "pod-0.srv.test-"+port, "pod-1.srv.test-"+port
	g.awaitEngines(first, second)
	c := client(t)
	seen := map[string]bool{}
	for i := range 60 {
		seen[g.chat(c, chatBody("m", fmt.Sprint(i), i%2 == 0), "x-penstock-require", "residency=eu")] = true
	}
	if !seen[first] || !seen[second] {
		t.Errorf("served by %v", seen)
	}
	kill(engines[0])
	g.await("the pod to be out", func() bool { return g.weight(first) == 0 })
	testNames.SetHost("pod-0.srv.test", "127.0.0.43") // it was started again elsewhere
	g.awaitEngines(first, second)
	before := len(engines[2].Exchanges())
	for i := range 60 {
		g.chat(c, chatBody("m", fmt.Sprint("again ", i), false))
	}
	if len(engines[2].Exchanges()) == before {
		t.Error("the pod got no request at its new address")
	}
}

// interface.md 1: a host name in an engine's URL is looked up again every 5 s,
// also while the engine behind the old address still answers.
func TestEngineMovesToAnotherAddress(t *testing.T) {
	t.Parallel()
	engines, port := startScriptsAt(t, []string{"127.0.0.51", "127.0.0.52"}, playAnswer)
	testNames.SetHost("moves.test", "127.0.0.51")
	g := startGateway(t, engineTOML("e1", "http://moves.test:"+port), "e1")
	c := client(t)
	g.chat(c, chatBody("m", "x", true))
	// The first look-up is what a change is told from.
	g.await("the name to be looked up", func() bool { return testNames.Asked("moves.test") > 4 })
	testNames.SetHost("moves.test", "127.0.0.52")
	g.await("requests at the new address", func() bool {
		g.chat(c, chatBody("m", "x", false))
		return len(engines[1].Exchanges()) > 0
	})
	before := len(engines[0].Exchanges())
	for i := range 20 {
		g.chat(c, chatBody("m", fmt.Sprint(i), true))
	}
	if n := len(engines[0].Exchanges()) - before; n != 0 {
		t.Errorf("%d requests went to the old address", n)
	}
}

// C69 by discovery: 500 addresses later the page is as it was.
func TestC69_DiscoveryChurnLeavesNoSeries(t *testing.T) {
	t.Parallel()
	e := startScript(t, playAnswer)
	file := filepath.Join(t.TempDir(), "engines.yml")
	list := func(extra ...string) {
		t.Helper()
		text := "- targets: []\n"
		for _, x := range extra {
			text += "- targets: ['" + x + "']\n  labels: {models: m, capacity: '1'}\n"
		}
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	list()
	g := startGateway(t, engineTOML("e1", e.URL(), "capacity = 1000")+fmt.Sprintf("[discovery]\nfile_sd = [%q]\n", file), "e1")
	c := client(t)
	g.chat(c, chatBody("m", "x", false))
	before, _ := g.page()
	for round := range 25 {
		var extra []string
		for i := range 20 {
			extra = append(extra, fmt.Sprintf("127.0.0.1:1/%d/%d", round, i))
		}
		for i := range extra {
			extra[i] = "http://" + extra[i]
		}
		list(extra...)
		if a := g.ask("POST", "/-/reload?force=1"); a.status != 200 { // the files with it, and nothing is held
			t.Fatalf("%d %s", a.status, a.body)
		}
		if n := len(g.engines()); n != 21 {
			t.Fatalf("%d engines", n)
		}
		g.chat(c, chatBody("m", fmt.Sprint(round), false))
	}
	list()
	if a := g.ask("POST", "/-/reload?force=1"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if after, _ := g.page(); after > before {
		t.Errorf("%d series instead of %d", after, before)
	}
}
