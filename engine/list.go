package engine

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxListBytes  = 4 << 20
	maxListModels = 4096
	maxModelBytes = 512 // of a model's id
)

// listed is one parsed /v1/models.
type listed struct {
	models  []Model
	ownedBy string // of the first model that says so
}

// members are the members of a JSON object, each as it stood.
type members map[string]jsontext.Value

func (m members) text(name string) string {
	var s string
	if v := m[name]; v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return ""
}

// count is a positive whole number, 0 if the member is none.
func (m members) count(name string) int {
	v, err := strconv.ParseFloat(string(m[name]), 64)
	if err != nil || !(v >= 1 && v <= math.MaxInt32) {
		return 0
	}
	return int(v)
}

func (m members) object(name string) members {
	var o members
	if json.Unmarshal(m[name], &o) != nil {
		return nil
	}
	return o
}

// parseModels reads a model list. Entries that are no objects or have no id
// are left out, and so is a second entry of the same id.
func parseModels(body []byte) (listed, error) {
	var page struct {
		Data *[]jsontext.Value `json:"data"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return listed{}, fmt.Errorf("model list: %w", err)
	}
	if page.Data == nil {
		return listed{}, fmt.Errorf("model list: no member %q", "data")
	}
	if len(*page.Data) > maxListModels {
		return listed{}, fmt.Errorf("model list: more than %d models", maxListModels)
	}
	var l listed
	seen := make(map[string]bool, len(*page.Data))
	for _, raw := range *page.Data {
		var m members
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		id := m.text("id")
		if id == "" || len(id) > maxModelBytes || seen[id] {
			continue
		}
		seen[id] = true
		if l.ownedBy == "" {
			l.ownedBy = m.text("owned_by")
		}
		l.models = append(l.models, Model{ID: id, Raw: bytes.Clone(raw), ContextTokens: contextTokens(m)})
	}
	return l, nil
}

// contextTokens is what the engine says of prompt + answer: vLLM's
// max_model_len, or llama.cpp's context of one slot, or what the model was
// trained with.
func contextTokens(m members) int {
	if n := m.count("max_model_len"); n > 0 {
		return n
	}
	meta := m.object("meta")
	if n := meta.count("n_ctx"); n > 0 {
		return n
	}
	return meta.count("n_ctx_train")
}

// settle keeps the objects of old that differ from the new ones only in what
// an engine makes up anew for every answer, so that clients see a stable list.
// It reports whether the two lists then hold the same.
func settle(old *ModelList, fresh []Model) (same bool) {
	if old == nil {
		return false
	}
	known := make(map[string]*Model, len(old.Models))
	for i := range old.Models {
		known[old.Models[i].ID] = &old.Models[i]
	}
	same = len(old.Models) == len(fresh)
	for i := range fresh {
		was := known[fresh[i].ID]
		if was == nil || !sameButVolatile(was.Raw, fresh[i].Raw) {
			same = false
			continue
		}
		fresh[i].Raw = was.Raw
		same = same && was.ContextTokens == fresh[i].ContextTokens
	}
	return same
}

// sameButVolatile compares two model objects without created and permission,
// which vLLM fills anew each time.
func sameButVolatile(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y members
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, m := range []members{x, y} {
		delete(m, "created")
		delete(m, "permission")
	}
	if len(x) != len(y) {
		return false
	}
	for name, v := range x {
		if w, ok := y[name]; !ok || !bytes.Equal(v, w) {
			return false
		}
	}
	return true
}

// parseProps reads llama.cpp's /props: slots, and the context of one slot.
// False if the page is not that.
func parseProps(body []byte) (slots, context int, ok bool) {
	var m members
	if json.Unmarshal(body, &m) != nil {
		return 0, 0, false
	}
	slots = m.count("total_slots")
	return slots, m.object("default_generation_settings").count("n_ctx"), slots > 0
}

// parseVersion reads vLLM's /version: an object of one text member, served by
// the framework that vLLM uses. "" if the page is not that; other programs
// have a /version of their own.
func parseVersion(ans answer) string {
	var m members
	if ans.server != "uvicorn" || json.Unmarshal(ans.body, &m) != nil || len(m) != 1 {
		return ""
	}
	return m.text("version")
}

// ids lists the names, at most a few of them, for a log line.
func ids(models []Model) []string {
	const few = 10
	names := make([]string, 0, few+1)
	for _, m := range models[:min(len(models), few)] {
		names = append(names, m.ID)
	}
	if rest := len(models) - few; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return slices.Clip(names)
}
