package engine

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxListBytes  = 4 << 20
	maxListModels = 4096
	maxModelBytes = 512 // of a model's id
)

// listed is one parsed model list.
type listed struct {
	at      time.Time // when it had been read; zero = never
	models  []Model
	ownedBy string // of the first model that says so
	native  bool   // of a server that serves them by an API that is not ours
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

func (m members) object(name string) members { return membersOf(m[name]) }

// membersOf reads a JSON object; nil if it is none, and every member is then
// as if it were not there.
func membersOf(raw []byte) members {
	var m members
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// parseModels reads /v1/models. Entries that are no objects or have no id
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
		m := membersOf(raw)
		id := m.text("id")
		if id == "" || len(id) > maxModelBytes || seen[id] {
			continue
		}
		seen[id] = true
		if l.ownedBy == "" {
			l.ownedBy = m.text("owned_by")
		}
		l.models = append(l.models, Model{ID: id, Parent: m.text("parent"), Raw: bytes.Clone(raw), ContextTokens: contextTokens(m)})
	}
	return l, nil
}

// parseInfo reads the one model of TGI's /info; early versions have no list.
func parseInfo(body []byte) (listed, error) {
	id := membersOf(body).text("model_id")
	if id == "" || len(id) > maxModelBytes {
		return listed{}, fmt.Errorf("information page: no member %q", "model_id")
	}
	return listed{models: []Model{{ID: id}}}, nil
}

// parseRepository reads the index of Triton's model repository. Its models
// are served by Triton's own protocol alone.
func parseRepository(body []byte) (listed, error) {
	var index []jsontext.Value
	if err := json.Unmarshal(body, &index); err != nil {
		return listed{}, fmt.Errorf("repository index: %w", err)
	}
	l := listed{native: true}
	if len(index) > maxListModels {
		return listed{}, fmt.Errorf("repository index: more than %d models", maxListModels)
	}
	seen := make(map[string]bool, len(index))
	for _, raw := range index {
		m := membersOf(raw)
		id := m.text("name")
		if id == "" || len(id) > maxModelBytes || m.text("state") != "READY" || seen[id] {
			continue
		}
		seen[id] = true
		l.models = append(l.models, Model{ID: id})
	}
	return l, nil
}

// asServed is the list by the names under which the engine serves: of
// adapters perhaps another than it lists. An adapter that does not tell its
// context length has that of its parent; context, where it is told (> 0),
// holds for all.
func asServed(models []Model, adapters adapterName, context int) []Model {
	served := slices.Clone(models)
	for i := range served {
		m := &served[i]
		if m.Parent == "" {
			continue
		}
		parent := slices.IndexFunc(models, func(p Model) bool { return p.ID == m.Parent })
		if m.ContextTokens == 0 && parent >= 0 {
			m.ContextTokens = models[parent].ContextTokens
		}
		if id := m.Parent + ":" + m.ID; adapters == adapterOfParent && len(id) <= maxModelBytes {
			m.ID, m.Raw = id, withID(m.Raw, id)
		}
	}
	for i := range served {
		if context > 0 {
			served[i].ContextTokens = context
		}
	}
	return served
}

// withID is a model object with another id, and all else as it stood.
func withID(raw []byte, id string) []byte {
	quoted, err := json.Marshal(id)
	if err != nil {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil
		}
		found := name.String() == "id"
		value, err := d.ReadValue()
		if err != nil {
			return nil
		}
		if end := int(d.InputOffset()); found {
			return slices.Concat(raw[:end-len(value)], quoted, raw[end:])
		}
	}
	return nil
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
