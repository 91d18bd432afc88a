package engine

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// aboutPage is the page by which one kind of engine tells about itself, and
// by which it is told from the others.
type aboutPage struct {
	pages []string
	read  func(answer) (about, bool) // false: the page is not of that kind
	weak  bool                       // other kinds, and other programs, have one of the same shape
	again bool                       // asked with every model list, not once
}

// about is what such a page said; zero values are not told.
type about struct {
	page    string // where it stands
	sign    string // what gave it away
	version string
	slots   int // requests that it takes at once
	context int // longest prompt + answer in tokens
}

const (
	maxVersionBytes = 64
	// maxSlots bounds what an engine can say of its slots; more is taken as
	// nothing said.
	maxSlots = 1 << 16
)

// aboutVersion reads {"version": "..."}: vLLM and trtllm-serve, by the
// framework that serves it. Many other programs have a /version of their own.
func aboutVersion(ans answer) (about, bool) {
	m := membersOf(ans.body)
	a := about{sign: "version", version: versionText(m.text("version"))}
	return a, ans.server == "uvicorn" && len(m) == 1 && a.version != ""
}

// aboutLlamaCpp reads /props.
func aboutLlamaCpp(ans answer) (about, bool) {
	m := membersOf(ans.body)
	a := about{
		sign: "total_slots", version: versionText(m.text("build_info")), slots: slotCount(m.count("total_slots")),
		context: m.object("default_generation_settings").count("n_ctx"),
	}
	return a, a.slots > 0
}

// aboutSGLang reads /server_info, which also holds keys: nothing but what is
// named here leaves this function. Its slots are those of all data-parallel
// ranks together.
func aboutSGLang(ans answer) (about, bool) {
	m := membersOf(ans.body)
	a := about{sign: "internal_states", version: versionText(m.text("version"))}
	var ranks []jsontext.Value
	if json.Unmarshal(m["internal_states"], &ranks) != nil || m["model_path"] == nil {
		return about{}, false
	}
	for _, raw := range ranks[:min(len(ranks), maxSlots)] {
		a.slots += membersOf(raw).count("effective_max_running_requests_per_dp")
		a.slots = min(a.slots, maxSlots+1)
	}
	if a.slots == 0 {
		a.slots = m.count("max_running_requests")
	}
	a.slots = slotCount(a.slots)
	return a, true
}

// aboutTGI reads /info. Text-embeddings-inference has a page of that name
// too: without a limit of generated tokens.
func aboutTGI(ans answer) (about, bool) {
	m := membersOf(ans.body)
	a := about{sign: "max_total_tokens", version: versionText(m.text("version")),
		slots: slotCount(m.count("max_concurrent_requests")), context: m.count("max_total_tokens")}
	router := m.text("router")
	is := m.text("model_id") != "" && a.context > 0 && m["max_best_of"] != nil
	return a, is && (router == "" || strings.HasPrefix(router, "text-generation"))
}

// aboutTriton reads /v2, the metadata page of the KServe protocol; only
// Triton calls itself so there.
func aboutTriton(ans answer) (about, bool) {
	m := membersOf(ans.body)
	return about{sign: `name "triton"`, version: versionText(m.text("version"))}, m.text("name") == "triton" && m["extensions"] != nil
}

// aboutNIM reads /v1/version: the release of the container and of its API.
func aboutNIM(ans answer) (about, bool) {
	m := membersOf(ans.body)
	a := about{sign: "release and api", version: versionText(m.text("release"))}
	return a, a.version != "" && m.text("api") != ""
}

// slotCount is n where it can be meant.
func slotCount(n int) int {
	if n > maxSlots {
		return 0
	}
	return n
}

// versionText is a version for logs and pages: of printable text and short,
// else as if not told.
func versionText(s string) string {
	if len(s) > maxVersionBytes || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return s
}
