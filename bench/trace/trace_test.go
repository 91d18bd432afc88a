package trace

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// read is all of a text, and the error that ended it.
func read(t testing.TB, text string, o Options) ([]Request, error) {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), "f", o)
	if err != nil {
		return nil, err
	}
	var all []Request
	for {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, q)
	}
}

// TestFilesAsPublished reads the beginning of every trace and compares what
// comes out with a file that was looked through.
func TestFilesAsPublished(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		if name == "NOTICE" || name == "servegen_client_lengths.csv" || strings.HasSuffix(name, ".golden") || name == "fuzz" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r, err := Open(path, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got := described(t, r)
			golden := path + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is read as\n%swant\n%s", path, got, want)
			}
		})
	}
}

// described is what a reader yields, a line for each request, the first 60.
func described(t *testing.T, r *Reader) string {
	var b strings.Builder
	n := 0
	for {
		q, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > 60 {
			continue
		}
		blocks := "no blocks"
		if q.Blocks != nil {
			blocks = fmt.Sprintf("%d blocks of %d: %x..%x", len(q.Blocks), q.BlockTokens, q.Blocks[0]&0xffff, q.Blocks[len(q.Blocks)-1]&0xffff)
		}
		fmt.Fprintf(&b, "%v conversation %x turn %d think %v prompt %d output %d %s %q %q\n", q.At, q.Conversation&0xffff, q.Turn, q.Think, q.Prompt, q.Output, blocks, q.Class, q.Priority)
	}
	fmt.Fprintf(&b, "%s, %d requests, left out: %v\n", r.Format(), n, r.Skipped())
	return b.String()
}

func TestMooncakeConversationsByBlocks(t *testing.T) {
	all, err := read(t, `{"timestamp":0,"input_length":1100,"output_length":5,"hash_ids":[0,1,2]}
{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,9]}
{"timestamp":3000,"input_length":1600,"output_length":7,"hash_ids":[0,1,3,4]}
{"timestamp":3000,"input_length":700,"output_length":7,"hash_ids":[0,5]}
{"timestamp":9000,"input_length":2048,"output_length":7,"hash_ids":[0,1,3,6]}
`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		at           time.Duration
		conversation uint64
		turn         int
	}{{0, 1, 0}, {0, 2, 0}, {3 * time.Second, 1, 1}, {3 * time.Second, 3, 0}, {9 * time.Second, 1, 2}}
	for i, w := range want {
		if q := all[i]; q.At != w.at || q.Conversation != w.conversation || q.Turn != w.turn || q.BlockTokens != 512 {
			t.Errorf("request %d: %+v, want %+v", i, q, w)
		}
	}
}

// TestAzureWithZone: the trace of 2024 has a zone in its times.
func TestAzureWithZone(t *testing.T) {
	all, err := read(t, "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n", Options{})
	if err != nil || len(all) != 2 || all[1].At != 990070*time.Microsecond || all[1].Prompt != 2399 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestRAGPulseBlocks: equal beginnings have equal blocks as far as they are
// equal, and no further.
func TestRAGPulseBlocks(t *testing.T) {
	one := cut([]segment{{1, 100}, {2, 100}, {3, 60}}, 64)
	two := cut([]segment{{1, 100}, {2, 100}, {4, 60}}, 64)
	other := cut([]segment{{1, 100}, {2, 90}, {3, 70}}, 64)
	if len(one) != 4 || len(two) != 4 || len(other) != 4 {
		t.Fatalf("%d, %d and %d blocks, want 260/64 = 4", len(one), len(two), len(other))
	}
	same := func(a, b []uint64) (n int) {
		for n < len(a) && a[n] == b[n] {
			n++
		}
		return n
	}
	if n := same(one, two); n != 3 {
		t.Errorf("%d blocks are common, want the 3 whole ones within the first 200 tokens", n)
	}
	if n := same(one, other); n != 2 {
		t.Errorf("%d blocks are common, want the 2 whole ones within the first 190 tokens", n)
	}
}

func TestWekaSessions(t *testing.T) {
	const head = `{"session":%d,"kind":"session","block_size":64,"tool_tokens":128,"system_tokens":70,"model":"m"}
{"session":%d,"agent":0,"turn":0,"t":0,"in":300,"out":1,"blocks":"1-5"}
{"session":%d,"agent":0,"turn":1,"t":7200,"think_s":7000,"in":330,"out":1,"blocks":"1-4,9"}
`
	all, err := read(t, fmt.Sprintf(head+head, 0, 0, 0, 1, 1, 1), Options{SessionsPerSecond: 0.01, LongestPause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	first, second := all[0], all[1]
	if all[1].Conversation == all[0].Conversation {
		t.Fatalf("the sessions do not overlap: %+v", all)
	}
	for i := range first.Blocks {
		// 198 tokens of tools and system prompt are 3 whole blocks.
		if common := first.Blocks[i] == second.Blocks[i]; common != (i < 3) {
			t.Errorf("block %d common to both sessions: %v", i, common)
		}
	}
	if gap := all[2].At - all[0].At; gap != time.Hour {
		t.Errorf("a pause of two hours became %s, want one hour", gap)
	}
	if all[2].Think != time.Hour || all[2].Turn != 1 || len(all[2].Blocks) != 5 {
		t.Errorf("second turn: %+v", all[2])
	}
}

// TestServeGenRates: what is drawn has the rates and lengths of the file.
func TestServeGenRates(t *testing.T) {
	r, err := Open("testdata/servegen_client_rates.csv", Options{Seed: 3, Scale: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := Summarise(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	const want = 0.2 * 96339.6 // 600 s x rate_rps, summed over the file
	if n := float64(s.Requests); n < 0.9*want || n > 1.1*want {
		t.Errorf("%d requests, want about %.0f", s.Requests, want)
	}
	if s.Output.Mean < 40 || s.Output.Mean > 50 { // 44.4 and 45.0 in the file
		t.Errorf("output tokens %.1f on average, want 44 to 45", s.Output.Mean)
	}
}

func TestSummary(t *testing.T) {
	r, err := NewReader(strings.NewReader(`{"timestamp":0,"input_length":1024,"output_length":10,"hash_ids":[1,2]}
{"timestamp":1000,"input_length":1024,"output_length":20,"hash_ids":[1,3]}
{"timestamp":2000,"input_length":600,"output_length":30,"hash_ids":[1,2]}
`), "f", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Summarise(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	share := (512.0 + 600) / (1024 + 1024 + 600)
	if s.Requests != 3 || s.Rate != 1 || s.CV != 0 || s.Output.Mean != 20 || s.Output.Max != 30 || *s.Prefix != share || s.PrefixOf != 3 {
		t.Errorf("%+v, prefix %v, want %v", s, *s.Prefix, share)
	}
}

// BenchmarkReader is a request of a trace with blocks, from the file's bytes.
func BenchmarkReader(b *testing.B) {
	text, err := os.ReadFile("testdata/mooncake.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; n < b.N; {
		r, err := NewReader(strings.NewReader(string(text)), "f", Options{})
		if err != nil {
			b.Fatal(err)
		}
		for ; n < b.N; n++ {
			if _, err := r.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
