package enginetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustParse(t *testing.T, texts ...string) []Fault {
	t.Helper()
	faults, err := ParseFaults(texts)
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]string{ // "" = as it was
		"refuse": "", "refuse=5s": "", "reset-before": "", "reset-before@0.3": "", "reset-after=3@0.5": "", "no-done=0": "",
		"error-first": "error-first=500", "error-first=400": "", "status=429": "", "slow=2.5": "", "health=503": "", "health-hang": "",
		"silent@1": "silent", "metrics=500": "", "refuse=1500ms": "refuse=1.5s",
	} {
		f, err := ParseFault(text)
		if want == "" {
			want = text
		}
		if err != nil || f.String() != want {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
	for text, want := range map[string]string{
		"explode":          `unknown fault "explode", known are refuse, reset-before, `,
		"":                 `unknown fault ""`,
		"reset-after":      "needs a value: reset-after=N",
		"reset-after=-1":   "0 or more",
		"silent=3":         "silent takes no value",
		"status=99":        "between 200 and 599",
		"slow=0":           "above 0",
		"slow=NaN":         "above 0",
		"refuse=fast":      "above 0",
		"refuse@0.5":       "takes no probability",
		"slow=2@0.5":       "takes no probability",
		"silent@0":         "above 0 and at most 1",
		"silent@1.5":       "above 0 and at most 1",
		"silent@":          "above 0 and at most 1",
		"stall-after=one@": "0 or more",
	} {
		if _, err := ParseFault(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for k := FaultKind(0); k < noFault; k++ {
		if !strings.Contains(FaultHelp(), "  "+k.String()+argumentNames[faultTable[k].arg]+" ") {
			t.Errorf("%s is not in the help", k)
		}
	}
}

func TestFaultTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z-]{2,14}(=[0-9a-z.]{1,5})?(@[0-9.]{1,4})?`).Draw(t, "text")
		if rapid.Bool().Draw(t, "known") {
			text = rapid.SampledFrom(strings.Split(faultNames(), ", ")).Draw(t, "name") + rapid.SampledFrom([]string{"", "=3", "=404", "=2s", "=1.5"}).Draw(t, "value")
		}
		f, err := ParseFault(text)
		if err != nil {
			return
		}
		again, err := ParseFault(f.String())
		if err != nil || again != f {
			t.Fatalf("%s: %+v, printed %s, read %+v, %v", text, f, f, again, err)
		}
	})
}

// observed is what a raw client saw of one answer.
type observed struct {
	err  error  // of the connection
	head string // status line
	resp *http.Response
	body string // as far as it came, without chunk framing
	end  error  // of the body
}

// rawPost sends a request over a connection of its own and reads until it
// ends, or nothing comes for as long as quiet.
func rawPost(t *testing.T, url, path, body string, quiet time.Duration) observed {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return observed{err: err}
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	r := bufio.NewReader(deadlineReader{conn, quiet})
	first, err := r.Peek(12)
	if err != nil {
		return observed{err: err}
	}
	o := observed{head: string(first)}
	if o.resp, o.err = http.ReadResponse(r, nil); o.err != nil {
		return o
	}
	b, err := io.ReadAll(o.resp.Body)
	o.body, o.end = string(b), err
	return o
}

type deadlineReader struct {
	conn  net.Conn
	quiet time.Duration
}

func (d deadlineReader) Read(p []byte) (int, error) {
	_ = d.conn.SetReadDeadline(time.Now().Add(d.quiet))
	return d.conn.Read(p)
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
func isCut(err error) bool   { return errors.Is(err, io.ErrUnexpectedEOF) }
func isQuiet(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Each fault does to a stream and to a whole answer what it says.
func TestEachFaultIsSeenByARawClient(t *testing.T) {
	const tokens = 10
	type check func(o observed) bool
	ok200 := func(o observed) bool { return o.err == nil && o.resp.StatusCode == 200 }
	connErr := func(is func(error) bool) check { return func(o observed) bool { return is(o.err) } }
	// streamed checks the number of content events and how the body ends.
	streamed := func(content int, end func(error) bool, more func(v view) bool) check {
		return func(o observed) bool {
			if !ok200(o) || !end(o.end) {
				return false
			}
			v := view{text: map[int]string{}}
			if o.body != "" {
				v = viewOf(t, o.body)
			}
			return v.content == content && (content == tokens && v.broken == 0) == Complete(v.text[0]) && more(v)
		}
	}
	clean := func(err error) bool { return err == nil }
	unfinished := func(v view) bool { return v.finished == 0 && !v.done && v.errors == 0 }
	half := func(end func(error) bool) check {
		return func(o observed) bool {
			return ok200(o) && end(o.end) && len(o.body) > 100 && !strings.HasSuffix(o.body, "}")
		}
	}
	status := func(code int, contains string) check {
		return func(o observed) bool {
			return o.err == nil && o.resp.StatusCode == code && o.end == nil && strings.Contains(o.body, contains)
		}
	}
	errorEnd := func(v view) bool { return v.errors == 1 && v.done && v.finished == 0 }
	for _, c := range []struct {
		fault         string
		stream, whole check
		hangs         bool
	}{
		{"reset-before", connErr(isReset), connErr(isReset), false},
		{"reset-headers", streamed(0, isReset, unfinished), func(o observed) bool { return ok200(o) && isReset(o.end) }, false},
		{"reset-after=3", streamed(3, isReset, unfinished), half(isReset), false},
		{"reset-after=0", streamed(0, isReset, unfinished), half(isReset), false},
		{"cut-after=3", streamed(3, isCut, unfinished), half(isCut), false},
		{"cut-after=99", streamed(tokens-1, isCut, unfinished), half(isCut), false},
		{"no-done=3", streamed(3, clean, unfinished), half(clean), false},
		{"no-done-finish", streamed(tokens, clean, func(v view) bool { return v.finished == 1 && !v.done }), status(200, `"finish_reason":"length"`), false},
		{"error-first=400", streamed(0, clean, errorEnd), status(400, `"code":400`), false},
		{"error-first", streamed(0, clean, errorEnd), status(500, `"code":500`), false},
		{"error-after=3", streamed(3, clean, errorEnd), status(500, `"code":500`), false},
		{"silent", connErr(isQuiet), connErr(isQuiet), true},
		{"headers-only", streamed(0, isQuiet, unfinished), func(o observed) bool { return ok200(o) && isQuiet(o.end) && o.body == "" }, true},
		{"stall-after=3", streamed(3, isQuiet, unfinished), half(isQuiet), true},
		{"garbage", func(o observed) bool { return !strings.HasPrefix(o.head, "HTTP/") && o.err != nil }, func(o observed) bool { return o.err != nil }, false},
		{"bad-json-after=3", streamed(tokens-1, clean, func(v view) bool { return v.broken == 1 && v.done && v.finished == 1 }), half(clean), false},
		{"html", status(502, "<html>"), status(502, "<html>"), false},
		{"status=429", status(429, `"code":429`), status(429, `"code":429`), false},
		{"empty", func(o observed) bool { return ok200(o) && o.body == "" && o.resp.ContentLength == 0 }, func(o observed) bool { return ok200(o) && o.body == "" }, false},
		{"truncate", streamed(tokens/2, isCut, unfinished), half(isCut), false},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			s, url := serve(t, Config{Faults: mustParse(t, c.fault)})
			quiet := patience
			if c.hangs {
				quiet = time.Second
			}
			for _, stream := range []bool{true, false} {
				o := rawPost(t, url, "/v1/chat/completions", chatBody("n", "hello", tokens, stream), quiet)
				if seen := map[bool]check{true: c.stream, false: c.whole}[stream]; !seen(o) {
					t.Errorf("stream %t: error %v, response %v, end %v, body\n%s", stream, o.err, o.resp, o.end, o.body)
				}
			}
			left := map[bool]int{true: 2}[c.hangs] // only where an answer hangs does the client leave first
			eventually(t, "both requests are over", func() bool {
				st := s.Stats()
				return st.Running+st.Waiting == 0 && len(st.Disconnects) == left
			})
			if st := s.Stats(); st.Faulted != 2 || st.Received != 2 {
				t.Errorf("%+v", st)
			}
			s.SetFaults()
			o := rawPost(t, url, "/v1/chat/completions", chatBody("n", "hello", tokens, true), patience)
			// The connection stays open: the body has its own end.
			if v := viewOf(t, o.body); o.end != nil || !v.done || !Complete(v.text[0]) || !Carries(v.text[0], "n") {
				t.Errorf("after the fault: %+v", o)
			}
		})
	}
}

// The error that ends a stream is the one of a vLLM that is terminated.
func TestErrorAfterIsVLLMsEnding(t *testing.T) {
	_, url := serve(t, Config{Faults: mustParse(t, "error-after=5")})
	_, recordedBody := recorded(t, "sigterm_stream")
	body := readAll(t, post(t, url+"/v1/chat/completions", chatBody("n", "x", 10, true)).Body)
	const mark = `data: {"error"`
	want := recordedBody[strings.Index(recordedBody, mark):]
	if got := body[strings.Index(body, mark):]; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestFaultsOfHealthAndMetrics(t *testing.T) {
	s, url := serve(t, Config{Faults: mustParse(t, "health=503", "metrics=500")})
	get := func(path string, timeout time.Duration) (int, error) {
		client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get(url + path)
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		return resp.StatusCode, nil
	}
	for path, want := range map[string]int{"/health": 503, "/metrics": 500, "/v1/models": 200} {
		if got, err := get(path, patience); got != want || err != nil {
			t.Errorf("%s: %d, %v", path, got, err)
		}
	}
	s.SetFaults(mustParse(t, "health-hang")...)
	if _, err := get("/health", 200*time.Millisecond); !isQuiet(err) {
		t.Errorf("health-hang: %v", err)
	}
	if got, err := get("/metrics", patience); got != 200 || err != nil {
		t.Errorf("/metrics: %d, %v", got, err)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	s, url := serve(t, Config{})
	resp := post(t, url+"/sim/faults", `{"faults":["slow=2","silent@0.5"]}`)
	if body := readAll(t, resp.Body); resp.StatusCode != 200 || body != `{"faults":["slow=2","silent@0.5"]}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, bad := range []string{`{"faults":["explode"]}`, `{"fault":[]}`, `[]`, ``} {
		resp := post(t, url+"/sim/faults", bad)
		if body := readAll(t, resp.Body); resp.StatusCode != 400 || !strings.Contains(body, `"error"`) {
			t.Errorf("%s: %d %s", bad, resp.StatusCode, body)
		}
	}
	if f := s.Faults(); len(f) != 2 {
		t.Errorf("bad requests changed the faults: %v", f)
	}
	post(t, url+"/sim/faults", `{"faults":[]}`)
	resp, err := http.Get(url + "/sim/faults")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body := readAll(t, resp.Body); body != `{"faults":[]}` {
		t.Error(body)
	}
}

func TestRefuse(t *testing.T) {
	s, url := serve(t, Config{})
	dial := func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	refused := func() bool { return errors.Is(dial(), syscall.ECONNREFUSED) }
	accepted := func() bool { return dial() == nil }
	s.SetFaults(mustParse(t, "refuse")...)
	eventually(t, "connections are refused", refused)
	s.SetFaults()
	eventually(t, "connections are accepted again", accepted)
	s.SetFaults(mustParse(t, "refuse=20ms", "slow=2")...)
	eventually(t, "the fault has cleared itself", func() bool { return len(s.Faults()) == 1 })
	eventually(t, "connections are accepted again", accepted)
}

// Which of many requests a probable fault befalls follows from the seed.
func TestProbabilityIsDrawnFromTheSeed(t *testing.T) {
	run := func(seed uint64) (hit string, n int) {
		_, url := serve(t, Config{Seed: seed, Faults: mustParse(t, "status=503@0.3")})
		for range 60 {
			if resp := post(t, url+"/v1/chat/completions", chatBody("", "x", 1, false)); resp.StatusCode == 503 {
				hit += "x"
				n++
			} else {
				hit += "."
			}
		}
		return hit, n
	}
	a, n := run(1)
	if b, _ := run(1); a != b {
		t.Errorf("equal seeds differ:\n%s\n%s", a, b)
	}
	if b, _ := run(2); a == b {
		t.Error("the seed does not matter")
	}
	if n < 8 || n > 30 {
		t.Errorf("%d of 60 requests at 0.3: %s", n, a)
	}
}
