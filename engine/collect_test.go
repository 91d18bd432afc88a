package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
			d := familyOn(page)
			if d == nil {
				d = dialectByName(DialectOpenAI)
			}
			known := strings.Contains(name, "vllm") || strings.Contains(name, "llamacpp")
			if known == (d.name == DialectOpenAI) {
				t.Errorf("read as %s", d.name)
			}
			s, stats := newCollector(d).read(page, time.Time{})
			if stats.malformed > 0 || stats.series == 0 {
				t.Errorf("%+v", stats)
			}
			if !known {
				if s.Has != 0 {
					t.Errorf("signals of an unknown engine: %+v", s)
				}
				return
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

// TestLabelSelector reads one metric that serves several fields, told apart by
// a label, on a real page.
func TestLabelSelector(t *testing.T) {
	const name = "nv_trt_llm_request_metrics"
	d := &dialect{signals: []signal{
		{FieldRunning, sum, [][]series{{{names: []string{name}, label: "request_type", value: "scheduled"}}}},
		{FieldWaiting, sum, [][]series{{{names: []string{name}, label: "request_type", value: "waiting"}}}},
		{FieldKVUsed, maximum, [][]series{{{names: []string{"nv_trt_llm_kv_cache_block_metrics"}, label: "kv_cache_block_type", value: "fraction"}}}},
	}}
	s, _ := newCollector(d).read(readPage(t, "triton_tensorrtllm_backend.txt"), time.Time{})
	if s.Has != FieldRunning|FieldWaiting|FieldKVUsed || s.Running != 1 || s.Waiting != 1 || s.KVUsed != 0.4875 {
		t.Errorf("%+v", s)
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
