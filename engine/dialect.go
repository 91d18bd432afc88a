package engine

import (
	"slices"
	"time"
)

// The words for an engine's kind. Auto is only configured, never detected.
const (
	DialectAuto     = "auto"
	DialectVLLM     = "vllm"
	DialectSGLang   = "sglang"
	DialectTGI      = "tgi"
	DialectLlamaCpp = "llamacpp"
	DialectTRTLLM   = "trtllm"
	DialectTriton   = "triton"
	DialectLMDeploy = "lmdeploy"
	DialectNIM      = "nim"
	DialectOpenAI   = "openai" // anything else that speaks the API; gives no signals
)

// DialectNames lists the words a configuration may use.
func DialectNames() []string {
	return []string{DialectAuto, DialectVLLM, DialectSGLang, DialectTGI, DialectLlamaCpp, DialectTRTLLM, DialectTriton,
		DialectLMDeploy, DialectNIM, DialectOpenAI}
}

// dialect is one kind of engine, as data: by which signs it is told, where to
// ask, and what the answers mean.
//
// A page is written as it is asked for: "/health", "POST /v2/repository/index",
// or ":8002/metrics" for one on another port of the engine's host. Of several
// the first that the engine has counts.
type dialect struct {
	name string

	// Signs, see evidence.decide.
	families []string // of metric names, by prefix or, for names without one, whole
	ownedBy  string   // its "owned_by" in /v1/models
	server   string   // its Server header, where that is its own
	about    aboutPage

	health        []string
	healthTimeout time.Duration
	// loads lists the health statuses by which an engine that has not been
	// ready yet says that it is still loading.
	loads []int
	// healthNeedsSlot: its health page is answered by the threads that requests
	// hold, so that a full engine answers none.
	healthNeedsSlot bool
	// worksOn: it does not notice that the client of an answer in one piece has
	// left, and makes it to its end.
	worksOn bool

	metrics  []string
	signals  []signal // how its page becomes a Sample
	copies   []string // labels that number copies of one thing: the largest counts, they are not added up
	adapters string   // the metric whose labels name the adapters in use

	lists    []listing
	adapter  adapterName
	slots    slotsRule
	lacks    Capability // of what engines can do beyond plain text
	servesBy string     // its letter in the table of paths
}

// adapterName is the name by which an adapter that a model list shows with
// its parent is asked for.
type adapterName uint8

const (
	adapterByID     adapterName = iota
	adapterOfParent             // "parent:id"; SGLang answers for the plain id as the base model, without a word
)

// slotsRule says what the number of requests that an engine says it takes at
// once means for the in-flight cap.
type slotsRule uint8

const (
	// The rule of those that have no other: a batch limit, often far above what memory allows. It lowers
	// the default cap and never raises it: caps are weights where no capacity
	// is configured.
	_ slotsRule = iota
	// slotsThreads: sequences that it works on, exactly; beyond slotsBeyond more
	// it has no thread left.
	slotsThreads
	// slotsAdmitted: it refuses one more, its own queue included.
	slotsAdmitted
)

// capFor is the in-flight cap of an engine that told its slots; 0 = none told.
func (r slotsRule) capFor(slots int) int64 {
	switch {
	case slots <= 0:
		return 0
	case r == slotsThreads:
		return max(capFor(slots), int64(slots)+slotsBeyond)
	case r == slotsAdmitted:
		return min(capFor(DefaultSlots), int64(slots))
	default:
		return min(capFor(DefaultSlots), capFor(slots))
	}
}

// listing is one page that tells an engine's models.
type listing struct {
	page string
	read func(body []byte) (listed, error)
}

var openAIList = []listing{{modelsPath, parseModels}}

const (
	healthPath    = "/health"
	healthTimeout = 2 * time.Second
	// SGLang's health page runs a request and looks once a second whether it
	// made a token, for up to 20 s.
	sglangHealthTimeout = 20 * time.Second
)

// dialects is the table. Its order settles a page that shows signs of two:
// those that wrap another engine come before it.
var dialects = []dialect{
	{
		name: DialectTriton, servesBy: "t",
		families: []string{"nv_trt_llm_", "nv_inference_"}, ownedBy: "Triton Inference Server",
		about:  aboutPage{pages: []string{"/v2"}, read: aboutTriton},
		health: []string{"/v2/health/ready", "/health/ready"}, healthTimeout: healthTimeout, loads: []int{400, 503},
		// Its own HTTP port has no metrics; the OpenAI frontend's has.
		metrics: []string{"/metrics", ":8002/metrics"},
		signals: either(tritonSignals, vllmSignals),
		lists:   []listing{{modelsPath, parseModels}, {"POST /v2/repository/index", parseRepository}},
		// Its OpenAI frontend refuses parts that are not text and passes
		// response_format on to nobody.
		lacks: Vision | Audio | StructuredOutput,
	},
	{
		name: DialectNIM, servesBy: "n",
		// Its names have no prefix; this is the one that nobody else has.
		families: []string{"num_request_max"},
		about:    aboutPage{pages: []string{"/v1/version"}, read: aboutNIM},
		health:   []string{"/v1/health/ready"}, healthTimeout: healthTimeout, loads: []int{503},
		metrics: []string{"/v1/metrics", "/metrics"},
		// Later ones show the names of the engine inside.
		signals: either(nimSignals, vllmSignals, sglangSignals), copies: sglangCopies,
		lists: openAIList,
	},
	{
		name: DialectVLLM, servesBy: "v",
		families: []string{"vllm:"}, ownedBy: "vllm",
		about:  aboutPage{pages: []string{versionPath}, read: aboutVersion, weak: true},
		health: []string{healthPath}, healthTimeout: healthTimeout,
		metrics: []string{metricsPath}, signals: vllmSignals, adapters: "vllm:lora_requests_info",
		lists: openAIList,
	},
	{
		name: DialectSGLang, servesBy: "s",
		families: []string{"sglang:", "sglang_"}, ownedBy: "sglang",
		about:  aboutPage{pages: []string{"/server_info", "/get_server_info"}, read: aboutSGLang},
		health: []string{healthPath}, healthTimeout: sglangHealthTimeout, loads: []int{503},
		metrics: []string{metricsPath}, signals: sglangSignals, copies: sglangCopies,
		lists: openAIList, adapter: adapterOfParent,
	},
	{
		name: DialectTGI, servesBy: "g",
		families: []string{"tgi_"},
		about:    aboutPage{pages: []string{infoPath}, read: aboutTGI},
		health:   []string{healthPath}, healthTimeout: healthTimeout, loads: []int{503},
		metrics: []string{metricsPath}, signals: tgiSignals,
		lists: []listing{{modelsPath, parseModels}, {infoPath, parseInfo}},
		slots: slotsAdmitted,
		lacks: Audio | Embeddings,
	},
	{
		name: DialectLlamaCpp, servesBy: "l",
		families: []string{"llamacpp:"}, ownedBy: "llamacpp", server: "llama.cpp",
		about:  aboutPage{pages: []string{propsPath}, read: aboutLlamaCpp, again: true},
		health: []string{healthPath}, healthTimeout: healthTimeout, healthNeedsSlot: true, worksOn: true,
		metrics: []string{metricsPath}, signals: llamaCppSignals,
		lists: openAIList, slots: slotsThreads,
	},
	{
		name: DialectTRTLLM, servesBy: "r",
		families: []string{"trtllm_", "trtllm:"}, ownedBy: "tensorrt_llm",
		about:  aboutPage{pages: []string{versionPath}, read: aboutVersion, weak: true},
		health: []string{healthPath}, healthTimeout: healthTimeout,
		// Never /metrics: that page hands out iteration statistics once, to whoever asks.
		metrics: []string{"/prometheus/metrics"}, signals: trtllmSignals,
		lists: openAIList,
	},
	{
		name: DialectLMDeploy, servesBy: "d",
		families: []string{"lmdeploy:"}, ownedBy: "lmdeploy",
		health: []string{healthPath}, healthTimeout: healthTimeout,
		metrics: []string{metricsPath}, signals: lmdeploySignals,
		lists: openAIList,
		lacks: Embeddings,
	},
	{name: DialectOpenAI, servesBy: "", health: []string{healthPath}, healthTimeout: healthTimeout, lists: openAIList},
}

// dialectByName finds a dialect; nil for "auto", "" and unknown words.
func dialectByName(name string) *dialect {
	i := slices.IndexFunc(dialects, func(d dialect) bool { return d.name == name })
	if i < 0 {
		return nil
	}
	return &dialects[i]
}

// unknownMetrics are the pages to read for signs while the kind is not known,
// all on the engine's own port.
var unknownMetrics = func() (pages []string) {
	for i := range dialects {
		for _, p := range dialects[i].metrics {
			if p[0] == '/' && !slices.Contains(pages, p) {
				pages = append(pages, p)
			}
		}
	}
	return pages
}()
