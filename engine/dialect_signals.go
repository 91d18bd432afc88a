package engine

import "slices"

// signal says where one field of a Sample comes from.
type signal struct {
	field   Field
	combine combine
	// from lists the sources in order of preference: the first whose every
	// part is on the page is taken, and its parts are added up.
	from [][]series
}

// combine is how the several series of one name become one number.
type combine uint8

const (
	sum     combine = iota // over models, ranks and reasons: work adds up
	maximum                // of shares: the fullest cache is the one that stalls
)

// series names the series of one source: by metric name and, where label is
// set, by one label's value; a series without the label has the value "".
type series struct {
	names        []string // spellings of one metric, the first on the page counts
	label, value string
}

func gauge(name string) []series { return []series{{names: []string{name}}} }

// counter is a counter by its base name: OpenMetrics tools drop or add "_total".
func counter(base string) []series { return []series{{names: []string{base + "_total", base}}} }

// labelled is the series of a gauge that carry label with that value.
func labelled(name, label, value string) []series {
	return []series{{names: []string{name}, label: label, value: value}}
}

var vllmSignals = []signal{
	{FieldRunning, sum, [][]series{gauge("vllm:num_requests_running")}},
	{FieldWaiting, sum, [][]series{gauge("vllm:num_requests_waiting")}},
	{FieldKVUsed, maximum, [][]series{gauge("vllm:kv_cache_usage_perc"), gauge("vllm:gpu_cache_usage_perc")}},
	{FieldPromptTokens, sum, [][]series{counter("vllm:prompt_tokens")}},
	{FieldGeneratedTokens, sum, [][]series{counter("vllm:generation_tokens")}},
	// Never prefix_cache_hits: a waiting request queries the cache again at
	// every scheduling try.
	{FieldCachedTokens, sum, [][]series{counter("vllm:prompt_tokens_cached")}},
	// iteration_tokens_total is a histogram, as its name hides.
	{FieldSteps, sum, [][]series{gauge("vllm:iteration_tokens_total_sum"), counter("vllm:generation_tokens")}},
}

var llamaCppSignals = []signal{
	{FieldRunning, sum, [][]series{gauge("llamacpp:requests_processing")}},
	{FieldWaiting, sum, [][]series{gauge("llamacpp:requests_deferred")}},
	{FieldKVUsed, maximum, [][]series{gauge("llamacpp:kv_cache_usage_ratio")}},
	// Its prompt counter leaves the cached tokens out.
	{FieldPromptTokens, sum, [][]series{
		slices.Concat(counter("llamacpp:prompt_tokens"), counter("llamacpp:prompt_tokens_cached")),
		counter("llamacpp:prompt_tokens"),
	}},
	{FieldGeneratedTokens, sum, [][]series{counter("llamacpp:tokens_predicted")}},
	{FieldCachedTokens, sum, [][]series{counter("llamacpp:prompt_tokens_cached")}},
	// tokens_predicted moves only when a request ends, and the rate gauges
	// are reset by whoever scrapes: neither shows work.
	{FieldSteps, sum, [][]series{counter("llamacpp:n_decode")}},
}

// sglangCopies: every tensor, pipeline and expert rank may show the gauges of
// the one scheduler they share. Data-parallel ranks (dp_rank) have one each.
var sglangCopies = []string{"tp_rank", "pp_rank", "moe_ep_rank"}

var sglangSignals = []signal{
	// With priority scheduling the total has no priority, and one series per
	// priority stands beside it.
	{FieldRunning, sum, [][]series{sglang("num_running_reqs", "priority")}},
	{FieldWaiting, sum, [][]series{sglang("num_queue_reqs", "priority")}},
	{FieldKVUsed, maximum, [][]series{sglang("token_usage", ""), sglang("full_token_usage", "")}},
	{FieldPromptTokens, sum, [][]series{sglangCounter("prompt_tokens")}},
	{FieldGeneratedTokens, sum, [][]series{sglangCounter("generation_tokens")}},
	{FieldCachedTokens, sum, [][]series{sglangCounter("cached_tokens")}},
	// generation_tokens moves only when a request ends.
	{FieldSteps, sum, [][]series{sglangCounter("realtime_tokens")}},
}

// sglang is a gauge under both of SGLang's prefixes; a label that is named
// must be empty.
func sglang(name, empty string) []series {
	return []series{{names: []string{"sglang:" + name, "sglang_" + name}, label: empty}}
}

func sglangCounter(base string) []series {
	return []series{{names: slices.Concat(counter("sglang:" + base)[0].names, counter("sglang_" + base)[0].names)}}
}

var tgiSignals = []signal{
	{FieldRunning, sum, [][]series{gauge("tgi_batch_current_size")}},
	{FieldWaiting, sum, [][]series{gauge("tgi_queue_size")}},
	// No use of the cache: tgi_batch_current_max_tokens is a budget. Its token
	// counts are histograms over requests that have ended.
	{FieldPromptTokens, sum, [][]series{gauge("tgi_request_input_length_sum")}},
	{FieldGeneratedTokens, sum, [][]series{gauge("tgi_request_generated_tokens_sum")}},
	{FieldSteps, sum, [][]series{counter("tgi_batch_inference_count")}},
}

var trtllmSignals = []signal{
	{FieldRunning, sum, [][]series{trtllm("num_requests_running")}},
	{FieldWaiting, sum, [][]series{trtllm("num_requests_waiting")}},
	{FieldKVUsed, maximum, [][]series{trtllm("kv_cache_utilization")}},
	{FieldPromptTokens, sum, [][]series{trtllmCounter("prompt_tokens")}},
	{FieldGeneratedTokens, sum, [][]series{trtllmCounter("generation_tokens")}},
	{FieldCachedTokens, sum, [][]series{trtllmCounter("prompt_cached_tokens")}},
	{FieldSlots, sum, [][]series{trtllm("max_num_active_requests")}},
	// No steps: its counters move when requests end, its others while prompts run.
}

func trtllm(name string) []series {
	return []series{{names: []string{"trtllm_" + name, "trtllm:" + name}}}
}

func trtllmCounter(base string) []series {
	return []series{{names: slices.Concat(counter("trtllm_" + base)[0].names, counter("trtllm:" + base)[0].names)}}
}

var tritonSignals = []signal{
	{FieldRunning, sum, [][]series{labelled("nv_trt_llm_request_metrics", "request_type", "scheduled")}},
	{FieldWaiting, sum, [][]series{labelled("nv_trt_llm_request_metrics", "request_type", "waiting")}},
	{FieldKVUsed, maximum, [][]series{labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction")}},
	{FieldSlots, sum, [][]series{labelled("nv_trt_llm_request_metrics", "request_type", "max")}},
	{FieldSteps, sum, [][]series{labelled("nv_trt_llm_general_metrics", "general_type", "iteration_counter")}},
}

var lmdeploySignals = []signal{
	{FieldRunning, sum, [][]series{gauge("lmdeploy:num_requests_running")}},
	{FieldWaiting, sum, [][]series{gauge("lmdeploy:num_requests_waiting")}},
	{FieldKVUsed, maximum, [][]series{gauge("lmdeploy:gpu_cache_usage_perc")}},
	{FieldPromptTokens, sum, [][]series{counter("lmdeploy:prompt_tokens")}},
	// Some versions count every generated token twice, and the page does not
	// say which: good enough to see it move, not to count with.
	{FieldSteps, sum, [][]series{counter("lmdeploy:generation_tokens")}},
}

var nimSignals = []signal{
	{FieldRunning, sum, [][]series{gauge("num_requests_running")}},
	{FieldWaiting, sum, [][]series{gauge("num_requests_waiting")}},
	{FieldKVUsed, maximum, [][]series{gauge("gpu_cache_usage_perc")}},
	{FieldPromptTokens, sum, [][]series{counter("prompt_tokens")}},
	{FieldGeneratedTokens, sum, [][]series{counter("generation_tokens")}},
	{FieldSlots, sum, [][]series{gauge("num_request_max")}},
	{FieldSteps, sum, [][]series{counter("generation_tokens")}},
}

// either takes each field from the first of the lists that has it on the
// page. How a field combines is said by the first list that knows it.
func either(lists ...[]signal) (all []signal) {
	for _, list := range lists {
		for _, s := range list {
			i := slices.IndexFunc(all, func(have signal) bool { return have.field == s.field })
			if i < 0 {
				all = append(all, signal{s.field, s.combine, slices.Clone(s.from)})
				continue
			}
			all[i].from = append(all[i].from, s.from...)
		}
	}
	return all
}
