package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/balancer"
	"penstock/engine"
	"penstock/route"
	"penstock/selector"
)

// place sends one request for each of n conversation ids, two at a time, and
// returns the engine of each.
func (r *running) place(c *http.Client, n int) []string {
	r.t.Helper()
	homes := make([]string, n)
	atOnce(n, 2, func(i int) {
		a := r.post(c, "/v1/chat/completions", chatBody("m", "hello", false), "x-session-id", fmt.Sprint("conversation ", i))
		if !a.looksComplete() {
			r.t.Errorf("conversation %d: %d %v %.300s", i, a.status, a.err, a.body)
		}
		if by := a.header.Get("X-Penstock-Affinity"); by != "x-session-id" {
			r.t.Errorf("affinity by %q", by)
		}
		homes[i] = a.header.Get("X-Penstock-Engine")
	})
	return homes
}

// rewrite puts a configuration in place of the gateway's and has it read.
func (r *running) rewrite(text string) error {
	r.t.Helper()
	text = "[listen]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n" + text
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	_, err := r.reload(false)
	return err
}

// Under the capacity policy: weights that are learned would move keys too.
func TestC15_EnginesJoinAndLeave(t *testing.T) {
	t.Parallel()
	const keys = 2000
	engines := startScripts(t, 11, playAnswer)
	list := func(without int, n int, backwards bool) string {
		var tables []string
		for i, e := range engines[:n] {
			if i != without {
				tables = append(tables, engineTOML(nth(i), e.URL()))
			}
		}
		if backwards {
			slices.Reverse(tables)
		}
		return "[routing]\npolicy = \"capacity\"\n" + strings.Join(tables, "")
	}
	steps := []struct {
		name  string
		text  string
		n     int
		out   string // the engine that is not there
		fresh string // the engine that has joined since the start
	}{
		{"start", list(-1, 10, false), 10, "", ""},
		{"(a) another order", list(-1, 10, true), 10, "", ""},
		{"(b) e03 removed", list(3, 10, false), 10, "e03", ""},
		{"(c) e03 back", list(-1, 10, false), 10, "", ""},
		{"(d) e10 added", list(-1, 11, false), 11, "", "e10"},
	}
	for _, restart := range []bool{false, true} {
		name, allowed := "by reload", 0
		if restart {
			name, allowed = "by restart", keys/200 // 0.5 %
		}
		t.Run(name, func(t *testing.T) {
			c := client(t)
			var g *running
			var start []string
			for i, s := range steps {
				names := slices.DeleteFunc(nths(s.n), func(n string) bool { return n == s.out })
				switch {
				case i == 0 || restart:
					if g != nil {
						g.stop()
					}
					g = startGateway(t, s.text, names...)
				default:
					if err := g.rewrite(s.text); err != nil {
						t.Fatal(err)
					}
					g.await("the table of "+s.name, func() bool {
						for _, n := range names {
							if g.weight(n) == 0 {
								return false
							}
						}
						return s.out == "" || g.weight(s.out) == 0
					})
				}
				now := g.place(c, keys)
				if i == 0 {
					start = now
					continue
				}
				own, foreign, spread := moved(start, now, s.out, s.fresh)
				t.Logf("%s: %d of %d keys moved for it, %d foreign keys moved", s.name, own, keys, foreign)
				if foreign > allowed {
					t.Errorf("%s: %d foreign keys moved, allowed are %d", s.name, foreign, allowed)
				}
				switch {
				case s.out != "" && (own == 0 || len(spread) != 9 || slices.Max(slices.Collect(maps.Values(spread))) > own/9+40):
					t.Errorf("%s: its %d keys went to %v", s.name, own, spread)
				case s.fresh != "" && own > keys/11+45: // 3.5 standard deviations
					t.Errorf("%s: %d keys moved to it", s.name, own)
				case restart && s.fresh != "" && own < keys/11-45:
					t.Errorf("%s: only %d keys moved to it", s.name, own)
				}
			}
		})
	}
}

// moved compares where keys are with where they were: how many moved because
// out went or fresh came, where those of out went, and how many moved besides.
func moved(was, is []string, out, fresh string) (own, foreign int, spread map[string]int) {
	spread = make(map[string]int)
	for i := range was {
		switch {
		case was[i] == is[i]:
		case out != "" && was[i] == out:
			own++
			spread[is[i]]++
		case fresh != "" && is[i] == fresh:
			own++
		default:
			foreign++
		}
	}
	return own, foreign, spread
}

// h2cClient speaks HTTP/2 without TLS, over as few connections as it can; with
// TLS where the gateways of this run have it.
func h2cClient(t testing.TB) *http.Client {
	tr := &http.Transport{Protocols: http2Only(), DisableCompression: true, TLSClientConfig: trusting()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// turnBody is turn n of a conversation that resends its history, in one of
// many spellings of the same.
func turnBody(conversation, turn int) string {
	text := func(s string, parts bool) string {
		if parts {
			return fmt.Sprintf(`[{"type":"text","text":%q}]`, s)
		}
		return fmt.Sprintf("%q", s)
	}
	v := conversation + 3*turn // which spelling
	var messages []string
	add := func(role, s string) {
		if v%2 == 0 {
			messages = append(messages, fmt.Sprintf(`{"role":%q,"content":%s}`, role, text(s, v%3 == 0)))
		} else {
			messages = append(messages, fmt.Sprintf(`{ "content": %s,  "role" : %q }`, text(s, v%3 == 0), role))
		}
	}
	add("system", "You are helpful. Answer in \u00fcbersichtlichen S\u00e4tzen.")
	for k := range turn + 1 {
		add("user", fmt.Sprintf("question %d of conversation %d", k, conversation))
		if k < turn {
			add("assistant", fmt.Sprintf("answer %d", k))
		}
	}
	members := []string{`"model":"m"`, fmt.Sprintf(`"stream":%t`, v%2 == 0), fmt.Sprintf(`"temperature":0.%d`, 1+v%9), `"messages":[` + strings.Join(messages, ", ") + `]`}
	for range v % 4 {
		members = append(members[1:], members[0])
	}
	space := strings.Repeat(" ", v%3)
	return "{" + space + strings.Join(members, ","+space) + space + "}"
}

func TestC16_TurnsStayOnOneEngine(t *testing.T) {
	t.Parallel()
	g := startGateway(t, fleetTOML(startScripts(t, 4, playAnswer)), nths(4)...)
	h1, h2 := client(t), h2cClient(t)
	for _, by := range []string{"opening", "x-session-id"} {
		used := make(map[string]int)
		for conversation := range 50 {
			var headers []string
			if by == "x-session-id" {
				headers = []string{"X-Session-Id", fmt.Sprint("session ", conversation)}
			}
			home := ""
			for turn := range 10 {
				c := h1
				if (conversation+turn)%2 == 1 {
					c = h2
				}
				a := g.post(c, "/v1/chat/completions", turnBody(conversation, turn), headers...)
				if !a.looksComplete() {
					t.Fatalf("%d %s", a.status, a.body)
				}
				if source := a.header.Get("X-Penstock-Affinity"); source != by {
					t.Fatalf("affinity by %q instead of %q", source, by)
				}
				e := a.header.Get("X-Penstock-Engine")
				if home == "" {
					home = e
				} else if e != home {
					t.Errorf("by %s: turn %d of conversation %d went from %s to %s", by, turn, conversation, home, e)
				}
			}
			used[home]++
		}
		if len(used) != 4 {
			t.Errorf("by %s: fifty conversations use %v", by, used)
		}
	}
}

func TestC17_SaltAndAdapterAreOfTheKey(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	for _, e := range engines {
		e.SetModels("m", "m-lora")
	}
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(4)...) // a plan goes by times, which a busy machine makes unlike
	c := client(t)
	prompt := strings.Repeat("the same long prompt ", 200)
	body := func(model, salt string) string {
		return fmt.Sprintf(`{"model":%q,"cache_salt":%q,"messages":[{"role":"user","content":%q}]}`, model, salt, prompt)
	}
	used := make(map[string]int)
	for i := range 200 {
		salt := fmt.Sprint("salt ", i)
		home := g.chat(c, body("m", salt))
		if again := g.chat(c, body("m", salt)); again != home {
			t.Errorf("%s went from %s to %s", salt, home, again)
		}
		used[home]++
	}
	for i := range 4 {
		if n := used[nth(i)]; n < 25 || n > 75 { // 50 +- 4 standard deviations
			t.Errorf("salts per engine: %v", used)
		}
	}
	apart := 0
	for i := range 40 {
		salt := fmt.Sprint("tenant ", i)
		home := g.chat(c, body("m-lora", salt))
		if g.chat(c, body("m", salt)) != home {
			apart++
		}
		if again := g.chat(c, body("m-lora", salt)); again != home {
			t.Errorf("the adapter's conversation went from %s to %s", home, again)
		}
	}
	if apart < 18 || apart == 40 { // 30 +- 4.4 standard deviations
		t.Errorf("base model and adapter are apart in %d of 40 conversations", apart)
	}
}

func TestAffinityOff(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 4, playAnswer)
	g := startGateway(t, withPolicy("capacity", fleetTOML(engines)), nths(4)...) // as in C17
	c := client(t)
	keyed := make(map[string]bool)
	for i := range 100 {
		keyed[g.chat(c, chatBody("m", "the same", true), "x-session-id", "one")] = true
		a := g.post(c, "/v1/chat/completions", chatBody("m", "the same", true), "x-session-id", "one", "x-penstock-affinity", []string{"off", "OFF", " off "}[i%3])
		if by := a.header.Get("X-Penstock-Affinity"); !a.looksComplete() || by != "none" {
			t.Fatalf("%d, affinity by %q", a.status, by)
		}
	}
	if len(keyed) != 1 {
		t.Errorf("with a key one conversation was on %v", keyed)
	}
	for i, n := range played(engines) {
		if keyed[nth(i)] {
			n -= 100
		}
		if n < 8 { // 25 - 4 standard deviations
			t.Errorf("without a key %s got %d of 100", nth(i), n)
		}
	}
}

func TestC66_MemoryOfConversationsIsBounded(t *testing.T) {
	fleet := engine.NewFleet()
	var configs []engine.Config
	for _, name := range nths(8) {
		configs = append(configs, engine.Config{Name: name, URL: "http://127.0.0.1:1", Models: []string{"m"}})
	}
	if err := fleet.Apply(configs); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, e := range fleet.Set().Engines {
		e.SetStatus(engine.Ready, engine.ReasonHealthy, now)
	}
	tables := route.NewPublished("here")
	balancer.NewLoop(balancer.Options{Fleet: fleet, Tables: tables, Log: slog.New(slog.DiscardHandler)}).Cycle(now)
	s := selector.New(tables, nil)
	keyer := selector.NewKeyer("", "")
	place := func(from, to int) {
		for i := from; i < to; i++ {
			class, refusal := s.Resolve("m", selector.Need{}, now)
			if refusal != nil {
				t.Fatal(refusal.Why)
			}
			id := fmt.Sprintf("%0200d", i)
			ask := selector.Ask{Keyed: true, Key: keyer.Key("m", "", selector.DomainID, id), Now: now.Unix()}
			var d selector.Decision
			lease := s.Pick(class, &ask, &d)
			r := &selector.Record{ID: id, Model: "m", Key: ask.Key, Keyed: true}
			s.Records.Add(r)
			r.Begin(&d, lease.Engine.Name)
			lease.Release()
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const first, last = 500_000, 650_000
	others := heap()
	place(0, first) // the ring of records is full, the memory of conversations at its largest
	before := heap()
	if before > others+(24<<20) {
		t.Errorf("records and conversations take %d bytes", before-others)
	}
	place(first, last)
	if after := heap(); after > before+(1<<20) {
		t.Errorf("150,000 conversations later the heap has grown from %d to %d bytes", before, after)
	}
	if s.Records.Find(fmt.Sprintf("%0200d", 0)) != nil || s.Records.Find(fmt.Sprintf("%0200d", last-1)) == nil {
		t.Error("of the records the oldest do not go first")
	}
	runtime.KeepAlive(s)
}

func TestC66_LongSessionIDsAreNoKeys(t *testing.T) {
	t.Parallel()
	g := startGateway(t, engineTOML("e1", startScript(t, playAnswer).URL()), "e1")
	c := client(t)
	for _, length := range []int{257, 4096, 60_000} {
		a := g.post(c, "/v1/chat/completions", chatBody("m", "x", false), "x-session-id", strings.Repeat("s", length))
		if by := a.header.Get("X-Penstock-Affinity"); !a.looksComplete() || by != "opening" {
			t.Errorf("id of %d bytes: %d, affinity by %q", length, a.status, by)
		}
	}
	if n := g.metric("penstock_unfit_keys_total"); n != 3 {
		t.Errorf("%g unfit ids are counted", n)
	}
}

func TestConversationsWithoutAnIDStay(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4, 20} {
		for _, capacities := range [][]float64{{1, 1, 1, 1}, {30, 20, 40, 25}} {
			t.Run(fmt.Sprintf("%d at once, capacities %v", workers, capacities), func(t *testing.T) {
				t.Parallel()
				conversationsStay(t, workers, capacities)
			})
		}
	}
}

// conversationsStay runs 20 conversations of 8 turns and the first turn of
// 2,000 others.
func conversationsStay(t *testing.T, workers int, capacities []float64) {
	engines := startScripts(t, 4, playAnswer)
	var more []string
	all := 0.0
	for _, capacity := range capacities {
		more = append(more, fmt.Sprintf("capacity = %g", capacity))
		all += capacity
	}
	g := startGateway(t, "[routing]\npolicy = \"capacity\"\n"+fleetTOML(engines, more...), nths(4)...)
	c := client(t)
	var mu sync.Mutex
	moves := 0
	atOnce(20, workers, func(i int) {
		home := ""
		for turn := range 8 {
			a := g.post(c, "/v1/chat/completions", turnBody(10_000+i, turn))
			e := a.header.Get("X-Penstock-Engine")
			mu.Lock()
			if !a.looksComplete() {
				t.Errorf("%d %s", a.status, a.body)
			}
			if home != "" && e != home {
				moves++
				t.Errorf("conversation %d, turn %d: from %s to %s", i, turn, home, e)
			}
			mu.Unlock()
			home = e
		}
	})
	used := make(map[string]int)
	const n = 2000
	atOnce(n, workers, func(i int) {
		a := g.post(c, "/v1/chat/completions", turnBody(i, 0))
		mu.Lock()
		defer mu.Unlock()
		if !a.looksComplete() {
			t.Errorf("%d %s", a.status, a.body)
		}
		used[a.header.Get("X-Penstock-Engine")]++
	})
	for i, capacity := range capacities {
		want := n * capacity / all
		if got := float64(used[nth(i)]); got < 0.85*want || got > 1.15*want {
			t.Errorf("%s has %g conversations, its weight is %.0f (%v)", nth(i), got, want, used)
		}
	}
}

func TestSameConversationInOtherWordsOrAfterARestart(t *testing.T) {
	t.Parallel()
	engines := startScripts(t, 8, playAnswer)
	g := startGateway(t, fleetTOML(engines), nths(8)...)
	c := client(t)
	spellings := []string{
		`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"TEXT"}]}`,
		`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"Be brief."}]},{"role":"user","content":[{"type":"text","text":"TEXT"}]}]}`,
		`{ "messages" : [ { "content":"Be brief.", "role":"system" }, {"content":[{"text":"TEXT","type":"text"}],"role":"user"} ],  "model":"m" }`,
		`{"stream":true,"temperature":0.5,"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"TEXT"},{"role":"assistant","content":"so"},{"role":"user","content":"and?"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"\u0054EXT"}],"max_tokens":5}`,
	}
	homes := make(map[int]string)
	used := make(map[string]bool)
	check := func(when string) {
		for i := range 40 {
			for k, s := range spellings {
				e := g.chat(c, strings.ReplaceAll(s, "EXT", fmt.Sprint("EXT of conversation ", i)))
				if homes[i] == "" {
					homes[i] = e
					used[e] = true
				} else if e != homes[i] {
					t.Errorf("%s: spelling %d of conversation %d went from %s to %s", when, k, i, homes[i], e)
				}
			}
		}
	}
	check("at first")
	if len(used) < 6 {
		t.Errorf("forty conversations use %v", used)
	}
	g.stop()
	g = startGateway(t, fleetTOML(engines), nths(8)...)
	check("after a restart")
}

func TestHotKeySpreadsBeforeItIsRefused(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	engines := startScripts(t, 8, playUntil(release))
	g := startGateway(t, noQueue+fleetTOML(engines, slices.Repeat([]string{"max_in_flight = 2"}, 8)...), nths(8)...)
	c := client(t)
	var all together
	for range 16 {
		all.send(func() string {
			return g.post(c, "/v1/chat/completions", chatBody("m", "all the same", true)).notWhole()
		})
	}
	g.await("16 requests in flight", func() bool { return sum(played(engines)) == 16 })
	if n := played(engines); slices.Max(n) != 2 {
		t.Errorf("requests per engine: %v", n)
	}
	over := g.post(c, "/v1/chat/completions", chatBody("m", "all the same", true))
	wantRefusal(t, over, 429, "overloaded")
	if over.header.Get("X-Penstock-Reason") != "engines_full" || g.metric(`penstock_shed_total{reason="engines_full"}`) != 1 {
		t.Errorf("the shed is not told: %v", over.header)
	}
	close(release)
	all.wait(t)
	g.awaitIdle()
	g.chat(c, chatBody("m", "all the same", true))
}
