package proxy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seen is one unit that a reader gave, copied.
type seenEvent struct {
	Raw, Data, Name string
	HasData         bool
	Comment, Cut    bool
}

// readStream plays reads into a reader and returns what came out and how far each read got:
// progress[i] is the number of bytes handed out after read i.
func readStream(t testing.TB, limit int, reads [][]byte) (events []seenEvent, progress []int, err error) {
	t.Helper()
	var r eventReader
	r.Reset(limit)
	out := 0
	drain := func() {
		var raws []byte
		for ev, ok := r.Next(); ok; ev, ok = r.Next() {
			events = append(events, seenEvent{string(ev.Raw), string(ev.Data), string(ev.Name), ev.Data != nil, ev.Comment, ev.Cut})
			raws = append(raws, ev.Raw...)
			out += len(ev.Raw)
		}
		if !bytes.Equal(raws, r.Taken()) {
			t.Fatalf("Taken is %q, the events were %q", r.Taken(), raws)
		}
		progress = append(progress, out)
	}
	for _, b := range reads {
		for len(b) > 0 {
			n := copy(r.Space(1), b)
			r.Fill(n)
			b = b[n:]
			if len(b) > 0 {
				drain()
				progress = progress[:len(progress)-1]
			}
		}
		drain()
	}
	r.Space(1)
	r.End()
	drain()
	return events, progress, r.Err()
}

func raws(events []seenEvent) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Raw)
	}
	return b.String()
}

// whatwgEvent and whatwgDecode are the event stream interpretation of the HTML standard, written
// for plainness: strip a BOM, split into lines, dispatch at blank lines, discard what is cut.
type whatwgEvent struct{ Name, Data string }

func whatwgDecode(stream string) (events []whatwgEvent) {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	data, name := "", ""
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != "" {
				events = append(events, whatwgEvent{name, strings.TrimSuffix(data, "\n")})
			}
			data, name = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data += value + "\n"
		case "event":
			name = value
		}
	}
	return events
}

func decoded(events []seenEvent) (out []whatwgEvent) {
	for _, e := range events {
		if e.HasData && !e.Cut {
			out = append(out, whatwgEvent{e.Name, e.Data})
		}
	}
	return out
}

func TestC03_Framings(t *testing.T) {
	reads := []string{
		": ping\n",
		"data: {\"a\":1}\r\n\r\n",
		"data:{\"b\":2}\n\n",
		"event: message\nid: 7\nretry: 10\ndata: {\"c\":3}\n\n",
		"data: {\"d\":\ndata: 4}\n\n",
		"data: \xc3", "\xa4\n\n",
		"data: [DONE]\n\n",
	}
	var in [][]byte
	for _, r := range reads {
		in = append(in, []byte(r))
	}
	events, progress, err := readStream(t, maxEventBytes, in)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := raws(events), strings.Join(reads, ""); got != want {
		t.Fatalf("forwarded %q, want %q", got, want)
	}
	sum := 0
	for i, r := range reads {
		sum += len(r)
		if half := i == 5; progress[i] != sum && !half {
			t.Errorf("after read %d (%q) %d bytes were forwarded, want %d", i, r, progress[i], sum)
		}
	}
	want := []whatwgEvent{{"", `{"a":1}`}, {"", `{"b":2}`}, {"message", `{"c":3}`}, {"", "{\"d\":\n4}"}, {"", "ä"}, {"", "[DONE]"}}
	if got := decoded(events); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestEventReaderUnits(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []seenEvent
	}{
		{"comment with its own blank line", ":\n\n", []seenEvent{
			{Raw: ":\n", Comment: true}, {Raw: "\n", Comment: true}}},
		{"comment inside an event waits with it", "data: 1\n: c\ndata: 2\n\n", []seenEvent{
			{Raw: "data: 1\n: c\ndata: 2\n\n", Data: "1\n2", HasData: true}}},
		{"no data line", "id: 4\n\n", []seenEvent{{Raw: "id: 4\n\n"}}},
		{"BOM", "\xef\xbb\xbfdata: 1\n\n", []seenEvent{{Raw: "\xef\xbb\xbfdata: 1\n\n", Data: "1", HasData: true}}},
		{"BOM only at the start", "\n\xef\xbb\xbfdata: 1\n\n", []seenEvent{
			{Raw: "\n", Comment: true}, {Raw: "\xef\xbb\xbfdata: 1\n\n"}}},
		{"data without colon, two spaces, longer names", "data\n\ndata:  x\n\ndatas: y\n\n", []seenEvent{
			{Raw: "data\n\n", HasData: true}, {Raw: "data:  x\n\n", Data: " x", HasData: true}, {Raw: "datas: y\n\n"}}},
		{"NUL and garbage", "\x00\x01 garbage\n\ndata: a\x00b\n\n", []seenEvent{
			{Raw: "\x00\x01 garbage\n\n"}, {Raw: "data: a\x00b\n\n", Data: "a\x00b", HasData: true}}},
		{"bare CR", "data: 1\r\rdata: 2\r\r", []seenEvent{
			{Raw: "data: 1\r\r", Data: "1", HasData: true}, {Raw: "data: 2\r\r", Data: "2", HasData: true}}},
		{"bare CR, then an LF that belongs to the blank line", "data: 1\r\r\ndata: 2\n\n", []seenEvent{
			{Raw: "data: 1\r\r", Data: "1", HasData: true}, {Raw: "\ndata: 2\n\n", Data: "2", HasData: true}}},
		{"cut: [DONE] without blank line", "data: [DONE]", []seenEvent{
			{Raw: "data: [DONE]", Data: "[DONE]", HasData: true, Cut: true}}},
		{"cut after the line", "data: 1\n", []seenEvent{{Raw: "data: 1\n", Data: "1", HasData: true, Cut: true}}},
		{"cut in the second line", "data: 1\r\ndata: 2", []seenEvent{
			{Raw: "data: 1\r\ndata: 2", Data: "1\n2", HasData: true, Cut: true}}},
		{"cut comment", ": pi", []seenEvent{{Raw: ": pi", Comment: true, Cut: true}}},
		{"cut field name", "dat", []seenEvent{{Raw: "dat", Cut: true}}},
		{"CRLF blank line cut in its middle", "data: 1\r\n\r", []seenEvent{{Raw: "data: 1\r\n\r", Data: "1", HasData: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; n <= len(c.in); n++ {
				var reads [][]byte
				for b := range slices.Chunk([]byte(c.in), n) {
					reads = append(reads, b)
				}
				events, _, err := readStream(t, maxEventBytes, reads)
				if err != nil || !slices.Equal(events, c.want) {
					t.Errorf("reads of %d: %+v %v\nwant %+v", n, events, err, c.want)
				}
			}
		})
	}
}

func TestEventReaderBareCRDoesNotWait(t *testing.T) {
	_, progress, _ := readStream(t, maxEventBytes, [][]byte{[]byte("data: 1\r\r"), []byte("data: 2\r\r"), []byte("data: 3\r\r")})
	if want := []int{9, 18, 27, 27}; !slices.Equal(progress, want) {
		t.Errorf("forwarded %v, want %v", progress, want)
	}
}

// A cut event, closed, must not swallow what the gateway writes next.
func TestCutEventIsClosed(t *testing.T) {
	for _, in := range []string{"data: 1", "data: 1\n", "data: 1\r", "data: 1\r\n", "dat", ": c", "data: 1\rdata: 2", "\r"} {
		var r eventReader
		r.Reset(100)
		r.Fill(copy(r.Space(len(in)), in))
		r.End()
		wire, last := "", sseEvent{}
		for ev, ok := r.Next(); ok; ev, ok = r.Next() {
			wire += string(ev.Raw)
			last = ev
		}
		wire += last.closing() + "data: own\n\n"
		got := whatwgDecode(wire)
		if len(got) == 0 || got[len(got)-1] != (whatwgEvent{"", "own"}) {
			t.Errorf("%q became %q: %v", in, wire, got)
		}
	}
}

func TestEventTooLarge(t *testing.T) {
	const limit = 100
	line := func(n int) string { return "data:" + strings.Repeat("x", n-len("data:")-2) + "\n\n" }
	for _, c := range []struct {
		name, in string
		events   int
		fails    bool
	}{
		{"at the limit", line(limit) + line(limit), 2, false},
		{"one over", line(limit) + line(limit+1), 1, true},
		{"never ends", line(10) + strings.Repeat("x", limit+1), 1, true},
		{"comment", ":" + strings.Repeat("x", limit) + "\n", 0, true},
		{"many lines", strings.Repeat("data: 1\n", 20), 0, true},
	} {
		for _, n := range []int{1, 7, 64, 1000} {
			var reads [][]byte
			for b := range slices.Chunk([]byte(c.in), n) {
				reads = append(reads, b)
			}
			events, _, err := readStream(t, limit, reads)
			if len(events) != c.events || (err == errEventTooLarge) != c.fails {
				t.Errorf("%s, reads of %d: %d events, error %v", c.name, n, len(events), err)
			}
		}
	}
}

// Each byte is searched at most twice, once for LF and once for CR, whatever the event's shape.
func TestC04_HugeEventIsLinear(t *testing.T) {
	const size = 8 << 20
	for name, event := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", size) + "\n\n",
		"LF lines":   strings.Repeat("data: x\n", size/8) + "\n",
		"CR lines":   strings.Repeat("data: x\r", size/8) + "\r",
		"CRLF lines": strings.Repeat("data: \r\n", size/8) + "\r\n",
		"tiny CRs":   "data: 1\r" + strings.Repeat("x\r", size/2) + "\r",
	} {
		t.Run(name, func(t *testing.T) {
			var r eventReader
			r.Reset(maxEventBytes)
			stream := []byte("data: 1\n\n" + event + "data: 2\n\n")
			events, largest := 0, 0
			for b := range slices.Chunk(stream, 32<<10) {
				r.Fill(copy(r.Space(len(b)), b))
				largest = max(largest, cap(r.buf)+cap(r.join))
				for _, ok := r.Next(); ok; _, ok = r.Next() {
					events++
				}
			}
			if events != 3 || r.Err() != nil {
				t.Fatalf("%d events, %v", events, r.Err())
			}
			if most := int64(2*len(stream) + len(stream)/50); r.searched > most {
				t.Errorf("searched %d bytes for %d", r.searched, len(stream))
			}
			if largest > 4*size {
				t.Errorf("held %d bytes for an event of %d", largest, size)
			}
			r.Space(4 << 10)
			if held := cap(r.buf) + cap(r.join); held > keepBufferBytes {
				t.Errorf("%d bytes held after the event was sent", held)
			}
		})
	}
}

// streamOf draws a stream of odd pieces and every line end.
func streamOf(t *rapid.T) string {
	piece := rapid.SampledFrom([]string{"\n", "\n\n", "\r", "\r\r", "\r\n", "\r\n\r\n", "\n\r", "data: x", "data:", "data",
		"data: {\"a\":1}", "event: error", "event:", ": c", ":", "id: 1", "x", "\x00", "\xef\xbb\xbf", "\xef", "ä", "data: [DONE]"})
	return strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
}

func splits(t *rapid.T, s string) (reads [][]byte) {
	for s != "" {
		n := rapid.IntRange(1, min(len(s), 12)).Draw(t, "read")
		reads = append(reads, []byte(s[:n]))
		s = s[n:]
	}
	return reads
}

func TestC03_AnySplitGivesTheSameEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stream := streamOf(rt)
		limit := rapid.SampledFrom([]int{10, 20, maxEventBytes}).Draw(rt, "limit")
		whole, _, wholeErr := readStream(t, limit, [][]byte{[]byte(stream)})
		split, _, splitErr := readStream(t, limit, splits(rt, stream))
		if !slices.Equal(whole, split) || wholeErr != splitErr {
			rt.Fatalf("whole %+v %v\nsplit %+v %v", whole, wholeErr, split, splitErr)
		}
		checkCopy(rt, stream, whole, wholeErr)
	})
}

type fataler interface{ Fatalf(string, ...any) }

func checkCopy(t fataler, stream string, events []seenEvent, err error) {
	if out := raws(events); err == nil && out != stream || !strings.HasPrefix(stream, out) {
		t.Fatalf("forwarded %q of %q, error %v", out, stream, err)
	}
	if err == nil {
		if got, want := decoded(events), whatwgDecode(stream); !slices.Equal(got, want) {
			t.Fatalf("%q: events %q, want %q", stream, got, want)
		}
	}
}

func FuzzSSE(f *testing.F) {
	for _, s := range []string{"", ":\n\n", "data: 1\r\n\r\ndata: 2", "\xef\xbb\xbfdata\r\rdata:x\n\r\n", "event: error\ndata: {}\n\n\r"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, n uint8) {
		for _, limit := range []int{16, maxEventBytes} {
			whole, _, err := readStream(t, limit, [][]byte{stream})
			var reads [][]byte
			for b := range slices.Chunk(stream, int(n)+1) {
				reads = append(reads, b)
			}
			split, _, splitErr := readStream(t, limit, reads)
			if !slices.Equal(whole, split) || err != splitErr {
				t.Fatalf("whole %+v %v\nsplit %+v %v", whole, err, split, splitErr)
			}
			checkCopy(t, string(stream), whole, err)
		}
	})
}

const vllmChunk = `data: {"id":"chatcmpl-84cb401f69e23ed7","object":"chat.completion.chunk","created":1795987764,"model":"smol","choices":[{"index":0,"delta":{"content":" river"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n"

// stream returns a function that plays one event through a warm reader and a warm judge.
func playChunk(tb testing.TB, chunk string) func() {
	var r eventReader
	a := new(answer)
	r.Reset(maxEventBytes)
	a.Reset()
	return func() {
		r.Fill(copy(r.Space(4<<10), chunk))
		for ev, ok := r.Next(); ok; ev, ok = r.Next() {
			if v := a.observe(ev); v == verdictMalformed || v == verdictError {
				tb.Fatal(v)
			}
		}
		if len(r.Taken()) != len(chunk) {
			tb.Fatal("not forwarded")
		}
	}
}

func TestStreamedEventDoesNotAllocate(t *testing.T) {
	for name, chunk := range map[string]string{
		"chunk":      vllmChunk,
		"CRLF":       strings.ReplaceAll(vllmChunk, "\n", "\r\n"),
		"two lines":  "data: {\"choices\":\ndata: []}\n\n",
		"three":      vllmChunk + ": ping\n\n" + vllmChunk,
		"usage":      `data: {"choices":[],"usage":{"prompt_tokens":23,"total_tokens":29,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\n",
		"escaped":    `data: {"choices":[{"ind\u0065x":0,"delta":{"content":"a\nb"}}]}` + "\n\n",
		"event name": "event: message\n" + vllmChunk,
	} {
		play := playChunk(t, chunk)
		play()
		if n := testing.AllocsPerRun(1000, play); n != 0 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
	}
}

func BenchmarkStreamedEvent(b *testing.B) {
	run := func(name string, play func(), size int) {
		b.Run(name, func(b *testing.B) {
			play()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				play()
			}
		})
	}
	run("read and judge", playChunk(b, vllmChunk), len(vllmChunk))
	var r eventReader
	r.Reset(maxEventBytes)
	run("read", func() {
		r.Fill(copy(r.Space(4<<10), vllmChunk))
		for _, ok := r.Next(); ok; _, ok = r.Next() {
		}
	}, len(vllmChunk))
	huge := []byte(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, strings.Repeat("x", 8<<20)))
	a := new(answer)
	run("judge 8 MiB", func() { a.observe(sseEvent{Data: huge}) }, len(huge))
}
