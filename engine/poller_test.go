package engine

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const someLoad = "vllm:num_requests_running 4\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n"

func TestC13_OneLateProbeChangesNothing(t *testing.T) {
	e1 := script(vllmLike(someLoad, "m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			after(time.Second)
			e := f.Set().Engines[0]
			e1.set("/health", page{status: 200, delay: 3 * time.Second})
			for seen := len(e1.times("/health")); len(e1.times("/health")) == seen; {
				after(100 * time.Millisecond)
			}
			e1.set("/health", page{status: 200})
			after(20 * time.Second)
			if n := e.polls.probes[timedOut].Load(); !e.Ready() || n != 1 {
				t.Errorf("ready %v after %d late probes", e.Ready(), n)
			}
			// Variant b: its health says no, for good.
			e1.set("/health", page{status: 503})
			for range 10 {
				if n := e.polls.probes[unhealthy].Load(); e.Ready() != (n < failuresDown) {
					t.Fatalf("ready %v after %d failed probes", e.Ready(), n)
				}
				after(2 * time.Second)
			}
			if s := e.Status(); s.State != Down || s.Reason != ReasonUnhealthy {
				t.Errorf("%v, %v", s.State, s.Reason)
			}
			if lines := log.with("state=down"); len(lines) != 1 || !strings.Contains(lines[0], "status 503") {
				t.Errorf("%q", lines)
			}
		})
}

func TestC13_SlowProbeOfAnEngineThatWorksForUs(t *testing.T) {
	e1 := script(plain("m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
			after(time.Second)
			e := f.Set().Engines[0]
			e1.set("/health", page{status: 200, delay: time.Hour})
			e.Acquire(10)
			for range 60 {
				e.Progress(time.Now())
				after(time.Second)
			}
			if n := e.polls.probes[excused].Load(); !e.Ready() || n < 5 {
				t.Errorf("ready %v with %d excused probes", e.Ready(), n)
			}
			after(time.Minute) // no byte any more
			if s := e.Status(); s.State != Down || s.Reason != ReasonTimeout {
				t.Errorf("silent: %v, %v", s.State, s.Reason)
			}
		})
}

func TestC21_NotReadyWhileLoading(t *testing.T) {
	e1 := script(plain("m"))
	e1.set("/health", recorded(t, "llamacpp_b11434_health_503"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
			e := f.Set().Engines[0]
			for range 80 {
				after(100 * time.Millisecond)
				if e.Ready() {
					t.Fatal("ready while loading")
				}
			}
			if s := e.Status(); s.State != Starting || s.Reason != ReasonLoading {
				t.Errorf("%v, %v", s.State, s.Reason)
			}
			e1.set("/health", recorded(t, "llamacpp_b11434_health_200"))
			after(freshEvery)
			if !e.Ready() || e.Live.Models() == nil {
				t.Error("not ready when loaded")
			}
		})
}

func TestC23_RenamedGaugesAreUnknownAndSaidSo(t *testing.T) {
	e1 := script(vllmLike("vllm:queue_length 0\nvllm:cache_fill 0\n", "m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			after(time.Minute)
			e := f.Set().Engines[0]
			if s := e.Sample(); s == nil || s.Has != 0 || !e.Ready() {
				t.Errorf("sample %+v, ready %v", s, e.Ready())
			}
			if lines := log.with("none of the known names"); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
			if n := e.polls.scrapes[scrapeNameless].Load(); n < 50 {
				t.Errorf("%d counted", n)
			}
			e1.set("/metrics", page{status: 200, body: someLoad})
			after(2 * time.Second)
			if s := e.Sample(); s.Running != 4 || len(log.with("metrics page readable")) != 1 {
				t.Errorf("sample %+v", s)
			}
		})
}

func TestC24_MissingFamilyAndMalformedLineForAMinute(t *testing.T) {
	e1 := script(vllmLike(someLoad+"vllm:broken{x=\"1\" 3\n", "m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			after(time.Minute)
			e := f.Set().Engines[0]
			s := e.Sample()
			if s == nil || s.Running != 4 || s.Waiting != 2 || s.KVUsed != 0.5 || s.Age(time.Now()) > time.Second {
				t.Errorf("%+v", s)
			}
			if n := len(e1.times("/metrics")); n < 58 || n > 62 {
				t.Errorf("%d scrapes in a minute", n)
			}
			if n := e.polls.malformed.Load(); n < 58 {
				t.Errorf("%d malformed lines", n)
			}
			if lines := log.with("metrics page"); len(lines) > 1 {
				t.Errorf("%q", lines)
			}
		})
}

func TestC25_NoMetricsPageIsNotUnhealthy(t *testing.T) {
	e1, e2, e3 := script(vllmLike("", "m")), script(vllmLike("", "m")), script(vllmLike(someLoad, "m"))
	e1.set("/metrics", page{status: 501})
	e2.set("/metrics", page{status: 404})
	bubble(t, []string{"e1=10.0.0.1:80", "e2=10.0.0.2:80", "e3=10.0.0.3:80"}, func(n *network) {
		n.serve("10.0.0.1:80", e1)
		n.serve("10.0.0.2:80", e2)
		n.serve("10.0.0.3:80", e3)
	}, func(t *testing.T, _ *network, f *Fleet, log *logLines) {
		after(time.Minute)
		for i, e := range f.Set().Engines {
			if !e.Ready() || (e.Sample() != nil) != (i == 2) {
				t.Errorf("%s: ready %v, sample %+v", e.Name, e.Ready(), e.Sample())
			}
		}
		for _, s := range []*scripted{e1, e2} {
			if n := len(s.times("/metrics")); n > 5 {
				t.Errorf("asked %d times in a minute", n)
			}
		}
		if lines := log.with("metrics page"); len(lines) != 2 {
			t.Errorf("%q", lines)
		}
	})
}

func TestC26_HangingEnginesDelayNobody(t *testing.T) {
	e1, e3 := script(vllmLike(someLoad, "a")), script(plain("c"))
	e3.set(modelsPath, page{status: 200, body: listOf("x", "c"), delay: 20 * time.Second})
	bubble(t, []string{"e1=10.0.0.1:80", "e2=10.0.0.2:80", "e3=10.0.0.3:80"}, func(n *network) {
		n.serve("10.0.0.1:80", e1)
		n.swallow("10.0.0.2:80")
		n.serve("10.0.0.3:80", e3)
	}, func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
		after(100 * time.Millisecond)
		engines := f.Set().Engines
		if list := engines[0].Live.Models(); list == nil || describeModels(list.Models) != "a:0" || engines[0].Sample() == nil {
			t.Error("e1 waits for the others")
		}
		after(listAtReady)
		if !engines[2].Ready() {
			t.Error("e3 waits for its list")
		}
		after(time.Minute)
		if n := len(e1.times("/metrics")); n < 58 {
			t.Errorf("%d scrapes of e1 in a minute", n)
		}
		if s := engines[1].Status(); s.State != Down || s.Reason != ReasonTimeout {
			t.Errorf("e2: %v, %v", s.State, s.Reason)
		}
		if !engines[2].Ready() || len(e3.times("/health")) < 10 {
			t.Errorf("e3: ready %v, %d probes", engines[2].Ready(), len(e3.times("/health")))
		}
	})
}

func TestC19_RestartWithinAProbeIsNoticedByTheList(t *testing.T) {
	e1 := script(vllmLike(someLoad, "a"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
			news := f.Subscribe()
			after(time.Second)
			<-news
			e := f.Set().Engines[0]
			e1.set(modelsPath, page{status: 200, body: listOf("llamacpp", "b")})
			e1.set("/metrics", page{status: 501})
			e1.set(propsPath, page{status: 200, body: `{"total_slots":2,"default_generation_settings":{"n_ctx":512}}`})
			after(6 * time.Second)
			if got := describeModels(e.Live.Models().Models); got != "b:512" {
				t.Errorf("serves %s", got)
			}
			if d := e.Detected(); d.Dialect != DialectLlamaCpp || d.Slots != 2 {
				t.Errorf("%+v", d)
			}
			select {
			case <-news:
			default:
				t.Error("the fleet was not told")
			}
			// A list that fails leaves the last.
			for _, bad := range []page{{status: 500}, {status: 200, body: "<html>"}, {status: 200, body: strings.Repeat(" ", maxListBytes) + listOf("x", "c")}} {
				e1.set(modelsPath, bad)
				after(6 * time.Second)
				if got := describeModels(e.Live.Models().Models); got != "b:512" {
					t.Errorf("serves %s", got)
				}
			}
		})
}

func TestSuspicionIsProbedAtOnceAndNotTooOften(t *testing.T) {
	e1 := script(plain("m"))
	var stop func()
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { stop = n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
			e := f.Set().Engines[0]
			after(time.Second)
			probes, lists := len(e1.times("/health")), len(e1.times(modelsPath))
			for range 1000 {
				e.Suspect()
				after(time.Millisecond)
			}
			if n := len(e1.times("/health")) - probes; n < 15 || n > 21 {
				t.Errorf("%d probes in a second of suspicion", n)
			}
			if n := len(e1.times(modelsPath)) - lists; n < 15 || n > 23 {
				t.Errorf("%d lists in a second of suspicion", n)
			}
			after(time.Second)
			stop()
			e.Suspect()
			after(suspectEvery)
			if s := e.Status(); s.State != Down || s.Reason != ReasonRefused {
				t.Errorf("%v, %v", s.State, s.Reason)
			}
		})
}

func TestHealthOfAnEngineWithoutAHealthPage(t *testing.T) {
	for _, status := range []int{404, 405, 501} {
		e1 := script(plain("m"))
		e1.set("/health", page{status: status})
		bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
			func(t *testing.T, _ *network, f *Fleet, _ *logLines) {
				e := f.Set().Engines[0]
				after(time.Minute)
				if !e.Ready() || len(e1.times("/health")) != 1 {
					t.Errorf("%d: ready %v, /health asked %d times", status, e.Ready(), len(e1.times("/health")))
				}
				e1.set(modelsPath, page{status: 500})
				after(20 * time.Second)
				if s := e.Status(); s.State != Down || s.Reason != ReasonUnhealthy {
					t.Errorf("%v, %v", s.State, s.Reason)
				}
				e1.set("/health", page{status: 200}) // another program
				after(3 * time.Second)
				if !e.Ready() {
					t.Error("health page that appeared later is not seen")
				}
			})
	}
}

func TestOversizedPagesAreRefused(t *testing.T) {
	e1 := script(vllmLike(someLoad, "m"))
	bubble(t, []string{"e1=10.0.0.1:80"}, func(n *network) { n.serve("10.0.0.1:80", e1) },
		func(t *testing.T, _ *network, f *Fleet, log *logLines) {
			e := f.Set().Engines[0]
			after(time.Second)
			last := e.Sample()
			e1.set("/metrics", page{status: 200, body: strings.Repeat("#", maxPageBytes+1)})
			after(5 * time.Second)
			e1.set("/metrics", page{status: 200, body: strings.Repeat("vllm:num_requests_running 1\n", maxPageSeries+1)})
			after(5 * time.Second)
			if e.Sample() != last || !e.Ready() {
				t.Errorf("sample %+v, ready %v", e.Sample(), e.Ready())
			}
			if a, b := e.polls.scrapes[scrapeTooLarge].Load(), e.polls.scrapes[scrapeTooMany].Load(); a < 4 || b < 4 {
				t.Errorf("%d too large, %d too many", a, b)
			}
			if lines := log.with("metrics page unreadable"); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
		})
}

func TestAddressChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFleet()
		if err := f.Apply([]Config{{Name: "e1", URL: "http://engine.example:80"}}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		addrs, fail, moved := []string{"10.0.0.2", "10.0.0.1"}, false, 0
		set := func(failing bool, now ...string) {
			mu.Lock()
			defer mu.Unlock()
			addrs, fail = now, failing
		}
		log := new(logLines)
		p := &Poller{Fleet: f, OnAddressChange: func(e *Engine) { moved++ }}
		w := newWatch(p, newAsker(nil, nil, nil), log.logger(), f.Set().Engines[0])
		w.lookup = func(context.Context, string) (found []netip.Addr, err error) {
			mu.Lock()
			defer mu.Unlock()
			if fail {
				return nil, errors.New("no such host")
			}
			for _, a := range addrs {
				found = append(found, netip.MustParseAddr(a))
			}
			return found, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.watchAddress(ctx, "engine.example")
		for _, step := range []struct {
			fail  bool
			addrs []string
			moved int
		}{
			{false, []string{"10.0.0.2", "10.0.0.1"}, 0},
			{false, []string{"10.0.0.1", "10.0.0.2"}, 0}, // another order
			{true, nil, 0},
			{false, []string{"10.0.0.1", "10.0.0.2"}, 0},
			{false, []string{"10.0.0.1"}, 1},
			{false, []string{"10.0.0.1"}, 1},
			{false, []string{"10.0.0.3"}, 2},
		} {
			set(step.fail, step.addrs...)
			after(lookupEvery)
			if moved != step.moved {
				t.Errorf("%v: moved %d times, want %d", step.addrs, moved, step.moved)
			}
		}
		if n := len(log.with("unreadable")); n != 1 {
			t.Errorf("%d lines on the failed lookup", n)
		}
	})
}

func TestC18_EnginesMayBeAbsentComeAndGo(t *testing.T) {
	e1 := script(plain("m"))
	srv := listenAt(t, "", e1)
	address := srv.Listener.Addr().String()
	srv.Close()
	f := NewFleet()
	if err := f.Apply([]Config{{Name: "e1", URL: srv.URL}, {Name: "e2", URL: refusing(t)}, {Name: "e3", URL: refusing(t)}}); err != nil {
		t.Fatal(err)
	}
	run(t, &Poller{Fleet: f})
	e := f.Set().ByName("e1")
	eventually(t, "all down", func() bool {
		for _, e := range f.Set().Engines {
			if s := e.Status(); s.State != Down || s.Reason != ReasonRefused {
				return false
			}
		}
		return true
	})
	for range 2 { // the first start, then a restart
		srv := listenAt(t, address, e1)
		eventually(t, "e1 ready", e.Ready)
		srv.CloseClientConnections()
		srv.Close()
		eventually(t, "e1 down", func() bool { e.Suspect(); return e.Status().State == Down })
	}
	if f.Set().ByName("e2").Ready() || f.Set().ByName("e3").Ready() {
		t.Error("an engine that never was is ready")
	}
}

func TestC19_RestartAsAnotherProgram(t *testing.T) {
	first := listenAt(t, "", script(vllmLike(someLoad, "a")))
	f := NewFleet()
	if err := f.Apply([]Config{{Name: "e1", URL: first.URL}}); err != nil {
		t.Fatal(err)
	}
	run(t, &Poller{Fleet: f})
	e := f.Set().Engines[0]
	eventually(t, "vllm", func() bool { return e.Ready() && e.Sample() != nil && e.Detected().Dialect == DialectVLLM })
	first.CloseClientConnections()
	first.Close()
	eventually(t, "down", func() bool { e.Suspect(); return !e.Ready() })
	listenAt(t, first.Listener.Addr().String(), script(map[string]page{
		"/health": recorded(t, "llamacpp_b11434_health_200"), modelsPath: recorded(t, "llamacpp_b11434_models_alias"),
		propsPath: recorded(t, "llamacpp_b11434_get_props"), "/metrics": {status: 501, server: "llama.cpp"},
	}))
	eventually(t, "ready again", e.Ready)
	if got := e.Live.Models().Models[0].ID; got != "smol" {
		t.Errorf("ready with the models of the program before: %s", got)
	}
	if e.Sample() != nil {
		t.Errorf("sample of the program before: %+v", e.Sample())
	}
	eventually(t, "llama.cpp", func() bool { d := e.Detected(); return d.Dialect == DialectLlamaCpp && d.Slots == 4 })
}

func TestRunFollowsTheFleetAndLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	hang := script(plain("m"))
	for _, path := range []string{"/health", modelsPath, "/metrics"} {
		hang.set(path, page{status: 200, delay: time.Hour})
	}
	good, bad := listenAt(t, "", script(vllmLike(someLoad, "m"))), listenAt(t, "", hang)
	f := NewFleet()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&Poller{Fleet: f}).Run(ctx) }()
	apply := func(configs ...Config) {
		t.Helper()
		if err := f.Apply(configs); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := Config{Name: "a", URL: good.URL}, Config{Name: "b", URL: bad.URL}, Config{Name: "c", URL: good.URL, Dialect: DialectOpenAI}
	apply(a, b, c)
	eventually(t, "a and c ready", func() bool { return f.Set().ByName("a").Ready() && f.Set().ByName("c").Ready() })
	// A change of labels keeps the Live, a change of dialect is followed.
	live := f.Set().ByName("a").Live
	a.Labels, a.Dialect = map[string][]string{"x": {"y"}}, DialectVLLM
	apply(a)
	eventually(t, "dialect as configured", func() bool { live.Suspect(); return live.Detected() != nil && live.Detected().How == howConfigured })
	if f.Set().ByName("a").Live != live || !live.Ready() {
		t.Error("the reload lost the engine's state")
	}
	apply(a, c)
	eventually(t, "c ready again", func() bool { return f.Set().ByName("c").Ready() })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	good.Close()
	bad.CloseClientConnections()
	bad.Close()
	eventually(t, "no goroutine left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestRedirectsAndLinkLocalAddressesAreNotFollowed(t *testing.T) {
	inner := script(plain("m"))
	target := listenAt(t, "", inner)
	outer := script(map[string]page{"/health": {status: http.StatusFound, target: target.URL + "/health"}})
	srv := listenAt(t, "", outer)
	f := NewFleet()
	if err := f.Apply([]Config{{Name: "e1", URL: srv.URL}}); err != nil {
		t.Fatal(err)
	}
	run(t, &Poller{Fleet: f})
	e := f.Set().Engines[0]
	eventually(t, "probed", func() bool { e.Suspect(); return e.polls.probes[unhealthy].Load() >= failuresDown })
	if e.Ready() || len(inner.times("/health")) > 0 {
		t.Error("followed a redirect")
	}
	ask := newAsker(nil, nil, nil)
	for _, url := range []string{"http://169.254.169.254", "http://[fe80::1]:80", "http://[::ffff:169.254.169.254]", "http://[fd00:ec2::254]"} {
		_, err := ask.get(t.Context(), ask.fresh, New(Config{Name: "e", URL: url}, NewLive(1)), "/health", 1)
		if !errors.Is(err, errDenied) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Whoever is asked before a connection is made may wait: the demo puts
// distance there.
func TestConnectingIsAskedBeforeProbes(t *testing.T) {
	const url = "http://127.0.0.1:1"
	f := NewFleet()
	if err := f.Apply([]Config{{Name: "e", URL: url}}); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	run(t, &Poller{Fleet: f, Connecting: func(address string) {
		select {
		case asked <- address:
		default:
		}
	}})
	select {
	case address := <-asked:
		if "http://"+address != url {
			t.Errorf("asked for %s", address)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was asked")
	}
}
