package engine

import "fmt"

// howConfigured is the How of a dialect that was not found but told.
const howConfigured = "configured"

// howAfter is the sign to show where old was found before: the first sign
// stays, later ones only confirm it.
func (d Detected) howAfter(old *Detected) string {
	if d.Dialect == old.Dialect && d.How != howConfigured && old.How != howConfigured {
		return old.How
	}
	return d.How
}

// evidence is what the answers of one engine say about its kind. Every later
// answer replaces what the same question gave before.
type evidence struct {
	server  string // Server header
	family  string // dialect whose metric families are on its page
	ownedBy string // of its models
	version string // of GET /version, where it has the shape of vLLM's
	props   bool   // GET /props has total_slots

	slots       int // total_slots
	slotContext int // tokens of context per slot

	asked question // what has a definite answer by now
}

// question is a set of things to ask an engine about its kind.
type question uint8

const (
	askedMetrics question = 1 << iota
	askedModels
	askedProps
	askedVersion
	askedAll = askedMetrics | askedModels | askedProps | askedVersion
)

// decide tells the dialect by the strongest sign there is. It is undecided
// (false) while there is none and a question is open.
func (ev *evidence) decide() (Detected, bool) {
	if ev.family != "" {
		d := dialectByName(ev.family)
		return ev.detected(d.name, fmt.Sprintf("metric families %q on %s", d.family, d.metricsPath)), true
	}
	for i := range dialects {
		if d := &dialects[i]; d.server != "" && ev.server == d.server {
			return ev.detected(d.name, fmt.Sprintf("header Server: %s", d.server)), true
		}
	}
	for i := range dialects {
		if d := &dialects[i]; d.ownedBy != "" && ev.ownedBy == d.ownedBy {
			return ev.detected(d.name, fmt.Sprintf("owned_by %q in /v1/models", d.ownedBy)), true
		}
	}
	if ev.props {
		return ev.detected(DialectLlamaCpp, "total_slots in /props"), true
	}
	if ev.version != "" {
		return ev.detected(DialectVLLM, fmt.Sprintf("/version answers %q", ev.version)), true
	}
	if ev.asked == askedAll {
		return ev.detected(DialectOpenAI, "no sign of vllm or llamacpp on /metrics, /v1/models, /props and /version"), true
	}
	return Detected{}, false
}

// conclude is decide under the configured word, which overrules all signs.
func (ev *evidence) conclude(configured string) (Detected, bool) {
	if d := dialectByName(configured); d != nil {
		return ev.detected(d.name, howConfigured), true
	}
	return ev.decide()
}

// detected adds what only llama.cpp tells of itself.
func (ev *evidence) detected(dialect, how string) Detected {
	d := Detected{Dialect: dialect, How: how}
	if dialect == DialectLlamaCpp {
		d.Slots = ev.slots
	}
	return d
}
