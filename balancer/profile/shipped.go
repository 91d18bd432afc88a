package profile

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"penstock/engine"
)

// Default is a shipped profile: the steps of a model on a GPU, fitted to
// published measurements (bench/solve/profiles.py; each row has its source and
// licence). It is where an engine begins, not where it stays: once enough of
// its own answers were learned from they count alone.
type Default struct {
	Name          string  `json:"name"` // model/GPUs
	Model         string  `json:"model"`
	GPU           string  `json:"gpu"`
	GPUs          int     `json:"gpus"`
	Step          float64 `json:"step_ms"`
	PerSeq        float64 `json:"per_seq_ms"`
	PerToken      float64 `json:"per_token_ms"`
	Points        int     `json:"points"`         // load points that it was fitted to
	MAPE          float64 `json:"mape"`           // how far it is from them on average, of the time per output token
	MostSequences int     `json:"most_sequences"` // at once, in those points
	Prompts       bool    `json:"prompts"`        // false: prompts were mostly cached, their share is in PerSeq
	Source        string  `json:"source"`
	Licence       string  `json:"licence"`
}

//go:embed shipped.json
var shippedText []byte

// Defaults are all shipped profiles, by name.
var Defaults = func() []Default {
	var all []Default
	if err := json.Unmarshal(shippedText, &all); err != nil {
		panic("profile: shipped.json: " + err.Error())
	}
	slices.SortFunc(all, func(a, b Default) int { return strings.Compare(a.Name, b.Name) })
	return all
}()

// Shipped is the shipped profile of that name.
func Shipped(name string) (*engine.Profile, bool) {
	for i := range Defaults {
		if Defaults[i].Name == name {
			return Defaults[i].profile(), true
		}
	}
	return nil, false
}

func (d *Default) profile() *engine.Profile {
	return &engine.Profile{Step: d.Step, PerSeq: d.PerSeq, PerToken: d.PerToken, Name: d.Name}
}

// Match is the shipped profile of an engine that serves one of the models and
// is labelled with its GPU, as in gpu = "h200", and gpus = "4" where there is
// more than one number of them. Nil where none fits, or several do.
func Match(models []string, labels map[string][]string) *engine.Profile {
	var found *Default
	for i := range Defaults {
		d := &Defaults[i]
		if !slices.ContainsFunc(models, func(m string) bool { return strings.Contains(plain(m), plain(d.Model)) }) ||
			!slices.ContainsFunc(labels["gpu"], func(g string) bool { return isGPU(g, d.GPU) }) {
			continue
		}
		if n := labels["gpus"]; len(n) > 0 && !slices.Contains(n, itoa(d.GPUs)) {
			continue
		}
		if found != nil {
			return nil
		}
		found = d
	}
	if found == nil {
		return nil
	}
	return found.profile()
}

func itoa(n int) string { return string(rune('0' + n)) } // at most 8 GPUs

// plain is a name as people spell it differently.
func plain(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", ".", "", "/", "").Replace(strings.ToLower(s))
}

// isGPU reports whether a label such as NVIDIA-H200-141GB-HBM3e is that GPU: its
// words follow each other in it.
func isGPU(label, gpu string) bool {
	words := func(s string) string {
		return " " + strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return strings.ContainsRune(" -_", r) }), " ") + " "
	}
	return strings.Contains(words(label), words(gpu)) || plain(label) == plain(gpu)
}
