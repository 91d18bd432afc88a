package engine

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scanAll lists what the scanner finds, one "name{labels} value" each.
func scanAll(page string) (found []string, malformed int) {
	s := scanner{rest: []byte(page)}
	for s.next() {
		found = append(found, fmt.Sprintf("%s{%s} %v", s.name, s.labels, s.value))
	}
	return found, s.malformed
}

func TestScan(t *testing.T) {
	cases := []struct {
		name, page string
		want       []string
		malformed  int
	}{
		{"plain", "a 1\nb 2.5\n", []string{"a{} 1", "b{} 2.5"}, 0},
		{"no newline at the end", "a 1", []string{"a{} 1"}, 0},
		{"crlf", "a 1\r\nb{x=\"y\"} 2\r\n", []string{"a{} 1", `b{x="y"} 2`}, 0},
		{"blank lines and indents", "\n  \n\ta  1 \n", []string{"a{} 1"}, 0},
		{"comments", "# SOURCE: x 1\n# SHAPE y\n#\n# HELP a b\n# TYPE a gauge\na 1\n# EOF\n", []string{"a{} 1"}, 0},
		{"integer timestamp", "a 1 1795986088000\n", []string{"a{} 1"}, 0},
		{"openmetrics timestamp and exemplar", "a_total 1 1795986088.123 # {id=\"x\"} 0.5 1.2\nb 2 # {} 1\n", []string{"a_total{} 1", "b{} 2"}, 0},
		{"colons", "vllm:num_requests_running{engine=\"0\"} 3.0\n", []string{`vllm:num_requests_running{engine="0"} 3`}, 0},
		{"no labels in braces", "a{} 1\nb{ } 2\n", []string{"a{} 1", "b{ } 2"}, 0},
		{"trailing comma", `a{x="1",} 1`, []string{`a{x="1",} 1`}, 0},
		{"blanks in labels", `a { x = "1" , y = "2" } 1`, []string{`a{ x = "1" , y = "2" } 1`}, 0},
		{"brace, comma and hash in a value", `a{x="}",y=",#"} 1`, []string{`a{x="}",y=",#"} 1`}, 0},
		{"escapes", `a{x="\"} 9 \\"} 1`, []string{`a{x="\"} 9 \\"} 1`}, 0},
		{"quoted names", `{"a.b",x="1"} 1` + "\n" + `c{"d.e"="1"} 2`, []string{`a.b{"a.b",x="1"} 1`, `c{"d.e"="1"} 2`}, 0},
		{"special numbers", "a NaN\nb +Inf\nc -Inf\nd 1e3\ne -0\n", []string{"a{} NaN", "b{} +Inf", "c{} -Inf", "d{} 1000", "e{} -0"}, 0},
		{"malformed lines", strings.Join([]string{"ok 1", "no_value", "a{x=\"1\" 1", "b{x=1} 1", "c{=\"1\"} 1", "d 1 2 3", "e x", "9f 1", "g{x=\"1\"", "h{x=\"1}",
			"i 0x10", "j 1_000", "k{,} 1", "{} 1", "l{x=\"1\"y=\"2\"} 1", "ok 2"}, "\n"), []string{"ok{} 1", "ok{} 2"}, 14},
		{"html", "<html>\n<body>404</body>\n</html>\n", nil, 3},
	}
	for _, tc := range cases {
		found, malformed := scanAll(tc.page)
		if !slices.Equal(found, tc.want) || malformed != tc.malformed {
			t.Errorf("%s: got %q and %d malformed, want %q and %d", tc.name, found, malformed, tc.want, tc.malformed)
		}
	}
}

func TestScanLabelIs(t *testing.T) {
	s := scanner{rest: []byte(`a{z="1",reason="say \"no\"\n\\",} 1`)}
	if !s.next() {
		t.Fatal("no series")
	}
	for _, tc := range []struct {
		label, want string
		is          bool
	}{
		{"z", "1", true}, {"z", "", false}, {"z", "11", false}, {"reason", "say \"no\"\n\\", true}, {"reason", "say", false}, {"eason", "1", false}, {"x", "", true}, {"x", "1", false},
	} {
		if got := s.labelIs(tc.label, tc.want); got != tc.is {
			t.Errorf("%s is %q: got %v", tc.label, tc.want, got)
		}
	}
}

func TestScanStopsAtSeriesBound(t *testing.T) {
	page := []byte(strings.Repeat("vllm:num_requests_running 1\n", maxPageSeries))
	c := newCollector(dialectByName(DialectVLLM))
	if s, stats := c.read(page, time.Now()); stats.overflow || s.Running != maxPageSeries {
		t.Errorf("at the bound: %+v %+v", s, stats)
	}
	if _, stats := c.read(append(page, "x 1"...), time.Now()); !stats.overflow {
		t.Error("over the bound: not noticed")
	}
}

func TestReadDoesNotAllocate(t *testing.T) {
	for _, tc := range []struct{ dialect, file string }{
		{DialectVLLM, "vllm_v0.32.0_cpu_real_busy.txt"}, {DialectLlamaCpp, "llamacpp_b11434_real_busy.txt"},
		{DialectSGLang, "sglang_v0.5.12_hicache_overloaded.txt"}, {DialectVLLM, "vllm_v0.5.4_v0engine.txt"},
		{DialectTGI, "shape_tgi_2.x.txt"}, {DialectTRTLLM, "shape_trtllm_serve.txt"}, {DialectTriton, "triton_tensorrtllm_backend.txt"},
		{DialectLMDeploy, "shape_lmdeploy.txt"}, {DialectNIM, "nim_1.x_llama31_8b.txt"},
	} {
		page := readPage(t, tc.file)
		c := newCollector(dialectByName(tc.dialect))
		now := time.Now()
		if n := testing.AllocsPerRun(20, func() {
			if s, _ := c.read(page, now); s.Has == 0 {
				t.Fatal("nothing read")
			}
			if kindsOn(page) == 0 {
				t.Fatal("no family")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", tc.file, n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	page := readPage(b, "vllm_v0.32.0_cpu_real_busy.txt")
	c := newCollector(dialectByName(DialectVLLM))
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		c.read(page, time.Time{})
	}
}

func readPage(tb testing.TB, name string) []byte {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join("testdata", "metrics", name))
	if err != nil {
		tb.Fatal(err)
	}
	return page
}

// FuzzParse: whatever Prometheus' own parser accepts, the scanner reads the
// same, without a malformed line; on anything else it merely survives.
func FuzzParse(f *testing.F) {
	pages, _ := filepath.Glob("testdata/metrics/*.txt")
	for _, p := range pages {
		page, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(page[:min(len(page), 1500)])
	}
	f.Add([]byte("sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 5\nsglang_num_queue_reqs{priority=\"\"} 1\nnum_request_max -1\n"))
	f.Add([]byte("vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,\\\\,b\"} 1.7e9\n"))
	f.Add([]byte("a{x=\"\\\"}\\n\",\"y\"=\"1\",} +Inf 12\n{\"b c\",z=\"\"} NaN\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		got := make(map[string][]float64)
		s := scanner{rest: page}
		for s.next() {
			got[string(s.name)] = append(got[string(s.name)], s.value)
			s.labelIs("le", "+Inf")
		}
		kindsOn(page)
		for i := range dialects {
			c := newCollector(&dialects[i])
			sample, _ := c.read(page, time.Time{})
			if !finite(sample) || !bounded(sample.Adapters) {
				t.Errorf("%s: impossible sample %+v", dialects[i].name, sample)
			}
			if again, _ := c.read(page, time.Time{}); again != sample {
				t.Errorf("%s: read again it is %+v, was %+v", dialects[i].name, again, sample)
			}
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil || s.overflow {
			return
		}
		if s.malformed > 0 {
			t.Errorf("%d malformed lines on a page that Prometheus accepts", s.malformed)
		}
		for name, family := range families {
			if want := scalars(family); len(want) > 0 && !equalNumbers(got[name], want) {
				t.Errorf("%s: got %v, want %v", name, got[name], want)
			}
		}
	})
}

// scalars are the values of a family that has one number per series.
func scalars(f *dto.MetricFamily) (values []float64) {
	for _, m := range f.Metric {
		switch {
		case m.Gauge != nil:
			values = append(values, m.Gauge.GetValue())
		case m.Counter != nil:
			values = append(values, m.Counter.GetValue())
		case m.Untyped != nil:
			values = append(values, m.Untyped.GetValue())
		}
	}
	return values
}

func equalNumbers(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

func bounded(a *Adapters) bool {
	return a == nil || len(a.Running) <= maxAdapters && len(a.Waiting) <= maxAdapters && a.Max >= 0
}

func finite(s Sample) bool {
	for _, f := range fields {
		if v := *s.at(f.field); math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || s.Has&f.field == 0 && v != 0 {
			return false
		}
	}
	return s.KVUsed <= 1
}
