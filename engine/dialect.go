package engine

import (
	"slices"
	"time"
)

// The words for an engine's kind. Auto is only configured, never detected.
const (
	DialectAuto     = "auto"
	DialectVLLM     = "vllm"
	DialectLlamaCpp = "llamacpp"
	DialectOpenAI   = "openai" // anything else that speaks the API; gives no signals
)

// DialectNames lists the words a configuration may use.
func DialectNames() []string {
	return []string{DialectAuto, DialectVLLM, DialectLlamaCpp, DialectOpenAI}
}

// Detected is what kind of engine answered, and by which sign it was told.
type Detected struct {
	Dialect string // "vllm", "llamacpp" or "openai"
	How     string // for people: what gave it away
	Slots   int    // requests it runs at once, where it says so (llama.cpp /props); 0 = not told
}

// dialect is one kind of engine, as data: where to ask and what the answers mean.
type dialect struct {
	name          string
	healthPath    string
	healthTimeout time.Duration
	metricsPath   string   // "": it has no signals that we read
	family        string   // prefix of its metric names, by which a page gives it away
	ownedBy       string   // its "owned_by" in /v1/models
	server        string   // its Server header, where that is its own
	signals       []signal // how its page becomes a Sample
}

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
// set, by one label's value.
type series struct {
	names        []string // spellings of one metric, the first on the page counts
	label, value string
}

func gauge(name string) []series { return []series{{names: []string{name}}} }

// counter is a counter by its base name: OpenMetrics tools drop or add "_total".
func counter(base string) []series { return []series{{names: []string{base + "_total", base}}} }

// dialects is the table. Its order settles a page that shows signs of two.
var dialects = []dialect{
	{
		name: DialectVLLM, healthPath: "/health", healthTimeout: 2 * time.Second, metricsPath: "/metrics",
		family: "vllm:", ownedBy: "vllm",
		signals: []signal{
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
		},
	},
	{
		name: DialectLlamaCpp, healthPath: "/health", healthTimeout: 2 * time.Second, metricsPath: "/metrics",
		family: "llamacpp:", ownedBy: "llamacpp", server: "llama.cpp",
		signals: []signal{
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
		},
	},
	{name: DialectOpenAI, healthPath: "/health", healthTimeout: 2 * time.Second},
}

// dialectByName finds a dialect; nil for "auto", "" and unknown words.
func dialectByName(name string) *dialect {
	for i := range dialects {
		if dialects[i].name == name {
			return &dialects[i]
		}
	}
	return nil
}
