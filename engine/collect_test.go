package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// describe writes a Sample for people, absent fields named as such.
func describe(s Sample) string {
	var b strings.Builder
	for _, f := range fields {
		if s.Has&f.field == 0 {
			fmt.Fprintf(&b, "%-16s absent\n", f.name)
			continue
		}
		fmt.Fprintf(&b, "%-16s %v\n", f.name, *s.at(f.field))
	}
	if a := s.Adapters; a != nil {
		fmt.Fprintf(&b, "%-16s running %q, waiting %q, at most %d\n", "adapters", a.Running, a.Waiting, a.Max)
	}
	return b.String()
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", path, got, want)
	}
}

// TestPages reads every page as the auto dialect would: by its metric families.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("testdata/metrics/*.txt")
	if err != nil || len(pages) != 23 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, path := range pages {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			page := readPage(t, name+".txt")
			on := kindsOn(page)
			if on == 0 {
				t.Fatal("no kind of engine recognised")
			}
			d := on.first()
			if others := on.without(d); others != "" {
				t.Errorf("taken for %s, and also for %s", d.name, others)
			}
			if file, _, _ := strings.Cut(strings.TrimPrefix(name, "shape_"), "_"); file != d.name {
				t.Errorf("taken for %s", d.name)
			}
			s, stats := newCollector(d).read(page, time.Time{})
			if stats.malformed > 0 || stats.series == 0 || s.Has == 0 {
				t.Errorf("%+v, has %v", stats, s.Has)
			}
			got := fmt.Sprintf("dialect %s, %d series\n%s", d.name, stats.series, describe(s))
			golden(t, strings.TrimSuffix(path, ".txt")+".golden", got)
		})
	}
}

func TestCombine(t *testing.T) {
	const nan = "absent"
	cases := []struct {
		name, dialect, page string
		want                map[Field]string
	}{
		{"ranks and models are summed, cache use is maxed", DialectVLLM, `
vllm:num_requests_running{engine="0",model_name="a"} 3
vllm:num_requests_running{model_name="a",engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75`,
			map[Field]string{FieldRunning: "7", FieldKVUsed: "0.75", FieldWaiting: nan}},
		{"new cache name beats the old, in either order", DialectVLLM, `
vllm:kv_cache_usage_perc 0.1
vllm:gpu_cache_usage_perc 0.9`, map[Field]string{FieldKVUsed: "0.1"}},
		{"old cache name alone", DialectVLLM, "vllm:gpu_cache_usage_perc 0.9", map[Field]string{FieldKVUsed: "0.9"}},
		{"counters with and without _total", DialectVLLM, "vllm:prompt_tokens 5\nvllm:generation_tokens_total 6",
			map[Field]string{FieldPromptTokens: "5", FieldGeneratedTokens: "6", FieldSteps: "6"}},
		{"both spellings at once are not added up", DialectVLLM, "vllm:prompt_tokens 5\nvllm:prompt_tokens_total 5", map[Field]string{FieldPromptTokens: "5"}},
		{"steps are the histogram's sum", DialectVLLM, `
vllm:iteration_tokens_total_bucket{le="+Inf"} 1
vllm:iteration_tokens_total_sum 900
vllm:iteration_tokens_total_count 1
vllm:generation_tokens_total 6`, map[Field]string{FieldSteps: "900"}},
		{"created and by-reason series are not the thing", DialectVLLM, `
vllm:generation_tokens_created 1.7e9
vllm:num_requests_waiting_by_reason{reason="capacity"} 5`, map[Field]string{FieldGeneratedTokens: nan, FieldWaiting: nan}},
		{"hits of a queue that asks again are not cached tokens", DialectVLLM, "vllm:prefix_cache_hits_total 5", map[Field]string{FieldCachedTokens: nan}},
		{"a sum with an unknown part is unknown", DialectVLLM, `
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} NaN
vllm:num_requests_waiting +Inf
vllm:kv_cache_usage_perc -1`, map[Field]string{FieldRunning: nan, FieldWaiting: nan, FieldKVUsed: nan}},
		{"a share stays a share", DialectVLLM, "vllm:kv_cache_usage_perc 1.0000001", map[Field]string{FieldKVUsed: "1"}},
		{"llama.cpp leaves cached tokens out of its prompt counter", DialectLlamaCpp, `
llamacpp:prompt_tokens_total 100
llamacpp:prompt_tokens_cached_total 30
llamacpp:n_decode_total 12
llamacpp:tokens_predicted_total 7
llamacpp:predicted_tokens_seconds 50`,
			map[Field]string{FieldPromptTokens: "130", FieldCachedTokens: "30", FieldSteps: "12", FieldGeneratedTokens: "7"}},
		{"old llama.cpp has no steps", DialectLlamaCpp, "llamacpp:tokens_predicted_total 7\nllamacpp:prompt_tokens_total 100",
			map[Field]string{FieldSteps: nan, FieldPromptTokens: "100", FieldCachedTokens: nan}},

		{"data-parallel ranks are summed, copies of other ranks are not", DialectSGLang, `
sglang:num_running_reqs{dp_rank="0",pp_rank="0",tp_rank="0"} 5
sglang:num_running_reqs{dp_rank="0",pp_rank="0",tp_rank="1"} 5
sglang:num_running_reqs{dp_rank="1",pp_rank="0",tp_rank="2"} 7
sglang:num_running_reqs{tp_rank="3",dp_rank="1",pp_rank="0"} 6
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.5
sglang:token_usage{dp_rank="1",tp_rank="2"} 0.25`, map[Field]string{FieldRunning: "12", FieldKVUsed: "0.5", FieldWaiting: nan}},
		{"a total and its parts by priority are not added up", DialectSGLang, `
sglang:num_queue_reqs{priority="",tp_rank="0"} 9
sglang:num_queue_reqs{priority="1",tp_rank="0"} 4
sglang:num_queue_reqs{priority="5",tp_rank="0"} 5`, map[Field]string{FieldWaiting: "9"}},
		{"both prefixes at once are not added up", DialectSGLang, "sglang_num_running_reqs 4\nsglang:num_running_reqs 4\nsglang_token_usage 0.5",
			map[Field]string{FieldRunning: "4", FieldKVUsed: "0.5"}},
		{"cached tokens of all sources", DialectSGLang, `
sglang:cached_tokens_total{cache_source="device"} 10
sglang:cached_tokens_total{cache_source="host"} 20`, map[Field]string{FieldCachedTokens: "30"}},
		{"tokens that are counted at the end of a request are no steps", DialectSGLang, "sglang:generation_tokens_total 7",
			map[Field]string{FieldGeneratedTokens: "7", FieldSteps: nan}},
		{"an unknown rank makes the sum unknown", DialectSGLang, `
sglang:num_running_reqs{dp_rank="0"} 5
sglang:num_running_reqs{dp_rank="1"} NaN`, map[Field]string{FieldRunning: nan}},
		{"tgi has no share of its cache", DialectTGI, `
tgi_batch_current_size 14
tgi_queue_size 3
tgi_batch_current_max_tokens 28412
tgi_batch_inference_count{method="prefill"} 10
tgi_batch_inference_count{method="decode"} 20`, map[Field]string{FieldRunning: "14", FieldWaiting: "3", FieldKVUsed: nan, FieldSteps: "30", FieldPromptTokens: nan}},
		{"one metric of triton serves several fields", DialectTriton, `
nv_trt_llm_request_metrics{model="a",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="b",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="a",request_type="scheduled",version="1"} 5
nv_trt_llm_request_metrics{model="a",request_type="max",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="a"} 3000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="a"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="b"} 0.75`,
			map[Field]string{FieldWaiting: "7", FieldRunning: "5", FieldSlots: "64", FieldKVUsed: "0.75", FieldSteps: nan}},
		{"triton with a vllm inside", DialectTriton, someLoad, map[Field]string{FieldRunning: "4", FieldWaiting: "2", FieldKVUsed: "0.5"}},
		{"early names of trtllm", DialectTRTLLM, "trtllm:num_requests_running 6\ntrtllm_num_requests_waiting 2", map[Field]string{FieldRunning: "6", FieldWaiting: "2"}},
		{"trtllm counts at the end of a request", DialectTRTLLM, "trtllm_generation_tokens_total 9", map[Field]string{FieldGeneratedTokens: "9", FieldSteps: nan}},
		{"lmdeploy may count twice", DialectLMDeploy, "lmdeploy:generation_tokens_total 9", map[Field]string{FieldGeneratedTokens: nan, FieldSteps: "9"}},
		{"nim of its own", DialectNIM, "num_requests_running 1\nnum_request_max 64\ngeneration_tokens_total 5",
			map[Field]string{FieldRunning: "1", FieldSlots: "64", FieldSteps: "5", FieldWaiting: nan}},
		{"nim with an sglang inside", DialectNIM, `
sglang:num_running_reqs{tp_rank="0"} 3
sglang:num_running_reqs{tp_rank="1"} 3`, map[Field]string{FieldRunning: "3", FieldWaiting: nan}},
	}
	for _, tc := range cases {
		s, _ := newCollector(dialectByName(tc.dialect)).read([]byte(tc.page), time.Time{})
		for f, want := range tc.want {
			got := nan
			if s.Has&f != 0 {
				got = fmt.Sprint(*s.at(f))
			}
			if got != want {
				t.Errorf("%s: %v = %s, want %s", tc.name, f, got, want)
			}
		}
	}
}

// TestC23_UnknownNamesAreNotAnIdleEngine is the parsing half: renamed gauges
// leave fields absent, and old and new names are both known.
func TestC23_UnknownNamesAreNotAnIdleEngine(t *testing.T) {
	c := newCollector(dialectByName(DialectVLLM))
	for _, tc := range []struct {
		page string
		has  Field
	}{
		{"vllm:gpu_cache_usage_perc 0.95\nvllm:num_requests_waiting 30", FieldKVUsed | FieldWaiting},
		{"vllm:kv_cache_usage_perc 0.10\nvllm:num_requests_waiting 0", FieldKVUsed | FieldWaiting},
		{"vllm:kv_cache_fill 0.10\nvllm:queue 30", 0},
		{"", 0},
	} {
		if s, _ := c.read([]byte(tc.page), time.Time{}); s.Has != tc.has {
			t.Errorf("%q: has %b, want %b", tc.page, s.Has, tc.has)
		}
	}
}

func TestC24_MalformedLineCostsOnlyItself(t *testing.T) {
	page := "vllm:num_requests_running 4\nvllm:lora_requests_info{max_lora=\"4\" 1.7e9\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n"
	s, stats := newCollector(dialectByName(DialectVLLM)).read([]byte(page), time.Time{})
	if stats.malformed != 1 || s.Has != FieldRunning|FieldWaiting|FieldKVUsed || s.Running != 4 || s.Waiting != 2 || s.KVUsed != 0.5 {
		t.Errorf("%+v %+v", s, stats)
	}
}

// TestC57_OnlyTheNewestAdaptersCount: the gauge keeps old label sets, its
// value is a time, and its labels are lists.
func TestC57_OnlyTheNewestAdaptersCount(t *testing.T) {
	const family = "vllm:lora_requests_info"
	series := func(running, waiting, most string, at string) string {
		return fmt.Sprintf("%s{max_lora=%q,running_lora_adapters=%q,waiting_lora_adapters=%q} %s\n", family, most, running, waiting, at)
	}
	old := ""
	for i := range 5 {
		old += series("x", "y", "4", fmt.Sprintf("1.7950%de+09", i))
	}
	newest := series("p", "q,r", "4", "1.7959e+09")
	for _, tc := range []struct{ name, page, want string }{
		{"newest last", old + newest, `["p"] ["q" "r"] 4`},
		{"newest first", newest + old, `["p"] ["q" "r"] 4`},
		{"newest amid", old[:len(old)/5*2] + newest + old, `["p"] ["q" "r"] 4`},
		{"blanks beside commas", series("p , q", " r,, s ", "8", "1"), `["p" "q"] ["r" "s"] 8`},
		{"empty lists", old + series("", "", "4", "1.7959e+09"), `[] [] 4`},
		{"escaped", family + `{running_lora_adapters="a\"b,c\\d"} 1`, `["a\"b" "c\\d"] [] 0`},
		{"no number for the most", series("p", "", "None", "1"), `["p"] [] 0`},
		{"times that are none", newest + series("x", "", "4", "NaN") + series("x", "", "4", "+Inf"), `["p"] ["q" "r"] 4`},
	} {
		c := newCollector(dialectByName(DialectVLLM))
		page := []byte(someLoad + tc.page)
		s, _ := c.read(page, time.Time{})
		if s.Adapters == nil {
			t.Errorf("%s: none", tc.name)
			continue
		}
		if got := fmt.Sprintf("%q %q %d", s.Adapters.Running, s.Adapters.Waiting, s.Adapters.Max); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if s.Running != 4 || s.Waiting != 2 || s.KVUsed != 0.5 || s.Has != FieldRunning|FieldWaiting|FieldKVUsed {
			t.Errorf("%s: a time became load: %+v", tc.name, s)
		}
		if again, _ := c.read(page, time.Time{}); again.Adapters != s.Adapters {
			t.Errorf("%s: the same page is read into new memory", tc.name)
		}
	}
	if s, _ := newCollector(dialectByName(DialectVLLM)).read([]byte(someLoad), time.Time{}); s.Adapters != nil {
		t.Errorf("adapters from nowhere: %+v", s.Adapters)
	}
	// A list beyond its bound is cut, and told apart from none.
	many := series(strings.Repeat("a,", maxAdapters+10), strings.Repeat("b", maxModelBytes+1), "4", "1")
	if s, _ := newCollector(dialectByName(DialectVLLM)).read([]byte(many), time.Time{}); len(s.Adapters.Running) != maxAdapters || s.Adapters.Waiting != nil {
		t.Errorf("%d running, waiting %q", len(s.Adapters.Running), s.Adapters.Waiting)
	}
}

// TestCopiesDoNotChangeASum: whatever ranks show the same, and in whatever
// order, the load is the sum over data-parallel ranks of what the largest
// copy says; more ranks than can be are no load at all.
func TestCopiesDoNotChangeASum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := 0.0
		var lines []string
		for dp := range rapid.IntRange(1, 20).Draw(t, "data-parallel ranks") {
			load := float64(rapid.IntRange(0, 500).Draw(t, "load"))
			want += load
			for tp := range rapid.IntRange(1, 8).Draw(t, "copies") {
				v := load
				if tp > 0 {
					v = float64(rapid.IntRange(0, int(load)).Draw(t, "late copy"))
				}
				labels := rapid.Permutation([]string{`model_name="m"`, fmt.Sprintf(`dp_rank="%d"`, dp), fmt.Sprintf(`tp_rank="%d"`, tp), `pp_rank="0"`}).Draw(t, "labels")
				lines = append(lines, fmt.Sprintf("sglang:num_running_reqs{%s} %v", strings.Join(labels, ","), v))
			}
		}
		page := strings.Join(rapid.Permutation(lines).Draw(t, "lines"), "\n")
		if s, _ := newCollector(dialectByName(DialectSGLang)).read([]byte(page), time.Time{}); s.Running != want || s.Has != FieldRunning {
			t.Errorf("got %v, want %v from\n%s", s.Running, want, page)
		}
	})
	var page strings.Builder
	for dp := range maxCopied {
		fmt.Fprintf(&page, "sglang:num_running_reqs{dp_rank=\"%d\"} 1\n", dp)
	}
	c := newCollector(dialectByName(DialectSGLang))
	if s, _ := c.read([]byte(page.String()), time.Time{}); s.Running != maxCopied {
		t.Errorf("at the bound: %+v", s)
	}
	page.WriteString("sglang:num_running_reqs{dp_rank=\"x\"} 1\n")
	if s, _ := c.read([]byte(page.String()), time.Time{}); s.Has != 0 {
		t.Errorf("over the bound: %+v", s)
	}
}
