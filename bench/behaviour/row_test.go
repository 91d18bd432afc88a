package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// How a stream ended is what a client would make of it.
func TestEndings(t *testing.T) {
	const text = `data: {"choices":[{"delta":{"content":"token0 "},"finish_reason":null}]}` + "\n\n"
	const failed = `data: {"error":{"message":"broken","code":"stream_interrupted"}}` + "\n\n"
	const finish = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	const done = "data: [DONE]\n\n"
	for _, c := range []struct {
		body string
		err  error
		want string
	}{
		{text + failed, io.ErrUnexpectedEOF, endsRight},
		{text, io.ErrUnexpectedEOF, endsCut},
		{text, nil, endsComplete},
		{text + done, nil, endsDone},
		{text + finish + done, nil, endsInvented},
		{text + failed + done, nil, endsErrorDone},
		{text + failed, nil, endsError},
		{text + failed + done, io.ErrUnexpectedEOF, endsErrorAbrt},
		{strings.ReplaceAll(text, "token0", `{\"error\": no}`), nil, endsComplete},
	} {
		a := answer{status: http.StatusOK, body: []byte(c.body), err: c.err}
		if got := a.ending(); got != c.want {
			t.Errorf("%q with %v: %q, want %q", c.body, c.err, got, c.want)
		}
	}
	if a := (answer{status: http.StatusBadGateway}); a.ending() != "502" {
		t.Errorf("a status: %q", a.ending())
	}
}

func TestErrorFormats(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"no"}}`: "JSON", `{"detail":"no"}`: "text", "": "empty", "<html>": "HTML",
	} {
		a := answer{status: 502, header: http.Header{}, body: []byte(body)}
		if body == "<html>" {
			a.header.Set("Content-Type", "text/html")
		}
		if got := a.format(); got != want {
			t.Errorf("%q: %s, want %s", body, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	groups := fold([]observation{{"cut", []float64{3}}, {"cut", []float64{1}}, {"whole", []float64{9}}, {"cut", []float64{2}}})
	if len(groups) != 2 || groups[0].label != "cut" || groups[0].count != 3 || groups[0].numbers[0] != (span{1, 2, 3}) {
		t.Errorf("%+v", groups)
	}
	for s, want := range map[span]string{
		{1, 2, 3}: "1-3", {29, 29, 29}: "29", {0.04, 0.04, 0.04}: "0.04", {1.04, 1.04, 1.01}: "1.0", {77.6, 77.6, 77.9}: "78",
	} {
		if s.String() != want {
			t.Errorf("%v is written %q, want %q", [3]float64{s.low, s.mid, s.high}, s, want)
		}
	}
}

// A cell is right only if every repetition was; only what is known to wait, and
// only for Penstock, is excused.
func TestVerdicts(t *testing.T) {
	free := &row{name: "r", rightLabel: "good"}
	waits := &row{name: "r", rightLabel: "good", waits: "a part"}
	ours, theirs, given := &target{peer: penstock}, &target{peer: nginx}, &target{}
	good, bad := observation{Label: "good"}, observation{Label: "bad"}
	for _, c := range []struct {
		name string
		cell cell
		want verdict
	}{
		{"right", cell{row: free, target: ours, seen: []observation{good, good}}, isRight},
		{"once wrong", cell{row: free, target: ours, seen: []observation{good, bad, good}}, isWrong},
		{"waiting", cell{row: waits, target: ours, seen: []observation{bad}}, isWaiting},
		{"waiting no more", cell{row: waits, target: ours, seen: []observation{good}}, isRight},
		{"others do not wait", cell{row: waits, target: theirs, seen: []observation{bad}}, isWrong},
		{"nor does somebody else's", cell{row: waits, target: given, seen: []observation{bad}}, isWrong},
		{"an error is not right", cell{row: free, target: ours, seen: []observation{good}, err: errors.New("no")}, isError},
		{"nothing seen is not right", cell{row: free, target: ours}, isWrong},
		{"not here", cell{row: free, target: &target{peer: nginx, skip: "no"}}, isSkipped},
	} {
		c.cell.judge(limits{slack: 1})
		if c.cell.verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.cell.verdict, c.want)
		}
	}
}

// Every row can come out right and wrong, and says something in both cases.
func TestRowsCanFail(t *testing.T) {
	l := limits{firstByte: 3 * time.Second, stall: 2 * time.Second, overload: 3 * time.Second, slack: 1}
	best := map[string]observation{ // the best that a proxy could do
		"engine silent in mid-stream":              {endsRight, []float64{2}},
		"engines accept and never answer":          {"504", []float64{3}},
		"own errors: engines reset / engines down": {"502 JSON / 503 JSON, Retry-After", nil},
		"64 clients leave at once":                 {"", []float64{40, 0}},
		"first event is an error":                  {"", []float64{40, 0, 0}},
		"request headers at the engine":            {"", []float64{7}},
		"2x overload":                              {"", []float64{98, 78, 1}},
		"engine resets after 5 events":             {endsRight, []float64{5, 0}},
		"body ends properly":                       {endsRight, []float64{5, 0}},
		"client leaves":                            {"", []float64{0.2, 0, 20}},
		"POST delivered":                           {"", []float64{1}},
		"both engines fail: deliveries":            {"", []float64{1, 1, 1}},
		"one engine answers":                       {"", []float64{0, 1}},
		"engine refuses":                           {"", []float64{0, 0}},
		"no key":                                   {"", []float64{1, 0.6}},
		"`user`":                                   {"", []float64{1, 0.6}},
		"`prompt_cache_key`":                       {"", []float64{1, 0.6}},
		"X-Session-Id":                             {"", []float64{1, 0.6}},
		"own header":                               {"", []float64{1, 0.6}},
		"one engine of two never answers":          {"", []float64{0}},
		"one reset at each engine":                 {"", []float64{0}},
		"engine accepts, then resets":              {"", []float64{0}},
		"engine is back":                           {"", []float64{1}},
		"after that load (503) stops: time without any answer": {"", []float64{0}},
	}
	for _, r := range append(behaviours(), affinities()...) {
		good := observation{Label: r.rightLabel}
		for prefix, o := range best {
			if strings.HasPrefix(r.name, prefix) {
				good = o
			}
		}
		if r.right != nil && good.Label == "" && good.Numbers == nil {
			t.Errorf("%s: no observation to judge", r.name)
			continue
		}
		if groups := fold([]observation{good}); !r.holds(groups, l) {
			t.Errorf("%s: the best, %s, is not right", r.name, r.text(groups))
		}
		bad := observation{Label: "no answer"}
		for range good.Numbers {
			bad.Numbers = append(bad.Numbers, 1000)
		}
		groups := fold([]observation{bad})
		if r.holds(groups, l) {
			t.Errorf("%s: the worst, %s, is right", r.name, r.text(groups))
		}
		if r.text(groups) == "" || r.wanted == "" {
			t.Errorf("%s: says nothing", r.name)
		}
	}
}

func TestBoundsAndSlack(t *testing.T) {
	l := limits{slack: 1}
	if l.quick(2) != 2 || l.least(76) != 76 {
		t.Errorf("without slack: %v %v", l.quick(2), l.least(76))
	}
	l.slack = 11
	if l.quick(2) != 22 || l.least(100) != 90 {
		t.Errorf("with slack: %v %v", l.quick(2), l.least(100))
	}
}

// What could be served is limited by the slots, and follows a machine that is late.
func TestPossible(t *testing.T) {
	even := func(n int, every time.Duration) (sent []time.Duration) {
		for i := range n {
			sent = append(sent, time.Duration(i)*every)
		}
		return sent
	}
	length := 10 * time.Second
	every := time.Duration(float64(time.Second) / offered)
	all := possible(even(int(offered*length.Seconds()), every), serviceTime, length)
	if perSecond := float64(all) / length.Seconds(); perSecond < 0.98*capacity || perSecond > 1.02*capacity {
		t.Errorf("%.1f a second, want nearly %.0f", perSecond, capacity)
	}
	if slow := possible(even(int(offered*length.Seconds()), every), 2*serviceTime, length); slow > all*11/20 || slow < all*9/20 {
		t.Errorf("%d with twice the service time, %d before", slow, all)
	}
	if few := possible(even(100, 100*time.Millisecond), serviceTime, length); few != 100 {
		t.Errorf("%d of 100 that do not overlap much", few)
	}
}
