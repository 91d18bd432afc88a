package enginetest

import (
	"math"
	"net/http"
	"slices"
	"strconv"
)

// histogram is a Prometheus histogram; bounds are inclusive.
type histogram struct {
	bounds []float64
	counts []int64 // one more than bounds, not cumulated
	sum    float64
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

// meters are vLLM's metrics that the batch does not count itself.
type meters struct {
	iteration, ttft, itl histogram
	stop, length         int64 // answers that ended by themselves, by their limit
	rejected             int64 // 503 for a full queue
}

// The bucket bounds are vLLM 0.32's.
func newMeters() meters {
	return meters{
		iteration: newHistogram(1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
		ttft: newHistogram(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
			1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
		itl: newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
			1, 2.5, 5, 7.5, 10, 20, 40, 80),
	}
}

func (m *meters) step(st Step) { m.iteration.observe(float64(st.Prefill + st.Decoding)) }

func (m *meters) finished(limited bool) {
	if limited {
		m.length++
	} else {
		m.stop++
	}
}

// page writes metrics in the text format, with the labels of one engine
// unless others are given.
type page struct {
	buf    []byte
	labels string // without braces
}

func (p *page) family(name, kind, help string) {
	p.buf = append(p.buf, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

func (p *page) sample(name, extra string, v float64) { p.sampleOf(name, p.labels+extra, v) }

func (p *page) sampleOf(name, labels string, v float64) {
	p.buf = append(p.buf, name+"{"+labels+"} "...)
	p.buf = append(appendFloat(p.buf, v), '\n')
}

// appendFloat writes a number as Python's Prometheus client does: whole ones
// with a fraction.
func appendFloat(buf []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return strconv.AppendFloat(buf, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(buf, v, 'g', -1, 64)
}

func (p *page) single(name, kind, help string, v float64) {
	p.family(name, kind, help)
	p.sample(name, "", v)
}

func (p *page) histogram(name, help string, h *histogram) {
	p.family(name, "histogram", help)
	total := int64(0)
	for i, n := range h.counts {
		total += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = string(appendFloat(nil, h.bounds[i]))
		}
		p.sample(name+"_bucket", `,le="`+bound+`"`, float64(total))
	}
	p.sample(name+"_count", "", float64(total))
	p.sample(name+"_sum", "", h.sum)
}

func (s *Sim) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if f := s.draw(onMetrics); f.Kind == Metrics {
		writeError(w, f.N, errorFor(f.N, "metrics are not available"))
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
	_, _ = w.Write(s.metricsPage())
}

// metricsPage is the page of vLLM 0.32, reduced to what this engine has.
func (s *Sim) metricsPage() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	model := `model_name=` + promQuote(s.cfg.Models[0])
	p := page{labels: `engine="0",` + model}
	t := s.batch.Totals()
	waiting := float64(s.batch.Waiting())
	p.single("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(s.batch.Running()))
	p.single("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", waiting)
	p.family("vllm:num_requests_waiting_by_reason", "gauge", "Number of waiting requests by reason.")
	p.sample("vllm:num_requests_waiting_by_reason", `,reason="capacity"`, waiting)
	p.sample("vllm:num_requests_waiting_by_reason", `,reason="deferred"`, 0)
	p.single("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", s.batch.KVUsed())
	p.single("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", float64(t.Prompt))
	p.single("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", float64(t.Cached))
	p.single("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", float64(t.Preemptions))
	p.single("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(t.Prompt))
	p.single("vllm:prompt_tokens_cached_total", "counter", "Number of cached prompt tokens (local + external).", float64(t.Cached))
	p.single("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(t.Generated))
	p.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	p.sample("vllm:request_success_total", `,finished_reason="stop"`, float64(s.met.stop))
	p.sample("vllm:request_success_total", `,finished_reason="length"`, float64(s.met.length))
	// vLLM leaves "abort" at 0 when clients leave.
	for _, reason := range []string{"abort", "error", "repetition"} {
		p.sample("vllm:request_success_total", `,finished_reason="`+reason+`"`, 0)
	}
	p.family("vllm:admission_rejections_total", "counter", "Requests refused because the queue is full.")
	p.sampleOf("vllm:admission_rejections_total", model+`,reason="max_num_queued_reqs"`, float64(s.met.rejected))
	p.histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &s.met.iteration)
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &s.met.ttft)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &s.met.itl)
	p.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	p.sampleOf("vllm:cache_config_info", `engine="0",block_size="`+strconv.Itoa(BlockTokens)+`",enable_prefix_caching="True",num_gpu_blocks="`+
		strconv.Itoa(s.batch.Blocks)+`"`, 1)
	return p.buf
}

// promQuote writes a label value; the format knows three escapes only.
func promQuote(v string) string {
	out := []byte{'"'}
	for i := range len(v) {
		switch v[i] {
		case '\\', '"':
			out = append(out, '\\', v[i])
		case '\n':
			out = append(out, `\n`...)
		default:
			out = append(out, v[i])
		}
	}
	return string(append(out, '"'))
}
