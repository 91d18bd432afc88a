package engine

import (
	"strings"
	"testing"
)

func TestParseModels(t *testing.T) {
	cases := []struct {
		name, body string
		want       string // id:context of each, or the error's part
	}{
		{"vllm with an adapter", `{"object":"list","data":[{"id":"base","max_model_len":1024},{"id":"fin","parent":"base","max_model_len":null}]}`, "base:1024 fin:0"},
		{"odd ids", `{"data":[{"id":"org/b:7b v2"},{"id":"ÄÖ\u00e9"}]}`, "org/b:7b v2:0 ÄÖé:0"},
		{"llama.cpp's two lists", `{"models":[{"name":"x"}],"data":[{"id":"x","meta":{"n_ctx":1024,"n_ctx_train":8192}}]}`, "x:1024"},
		{"trained context", `{"data":[{"id":"x","meta":{"n_ctx_train":8192}}]}`, "x:8192"},
		{"fields of other types", `{"data":[{"id":"x","max_model_len":"many","meta":[],"owned_by":7}]}`, "x:0"},
		{"impossible contexts", `{"data":[{"id":"x","max_model_len":-1},{"id":"y","max_model_len":1e300}]}`, "x:0 y:0"},
		{"entries that are none", `{"data":[7,null,{"id":""},{"id":3},{"name":"x"},{"id":"x"},{"id":"x"}]}`, "x:0"},
		{"empty", `{"data":[]}`, ""},
		{"no data", `{"object":"list"}`, `error no member "data"`},
		{"null data", `{"data":null}`, `error no member "data"`},
		{"not json", `<html>`, "error model list"},
		{"cut", `{"data":[{"id":"x"}`, "error model list"},
		{"too many", `{"data":[` + strings.Repeat(`{"id":"x"},`, maxListModels) + `{}]}`, "error more than"},
	}
	for _, tc := range cases {
		l, err := parseModels([]byte(tc.body))
		if part, isError := strings.CutPrefix(tc.want, "error "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v", tc.name, err)
			}
			continue
		}
		if got := describeModels(l.models); err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v", tc.name, got, err)
		}
	}
}

// TestC27_CreatedStaysStable: an engine that dates its models anew for every
// answer keeps one object, any other change is a change.
func TestC27_CreatedStaysStable(t *testing.T) {
	list := func(objects ...string) []Model {
		l, err := parseModels([]byte(`{"data":[` + strings.Join(objects, ",") + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return l.models
	}
	const first = `{"id":"a","created":1,"permission":[{"id":"p1"}],"max_model_len":10}`
	old := &ModelList{Models: list(first, `{"id":"b"}`)}
	for _, tc := range []struct {
		name  string
		fresh []Model
		same  bool
	}{
		{"dated anew", list(`{"id":"a","created":2,"permission":[{"id":"p2"}],"max_model_len":10}`, `{"id":"b"}`), true},
		{"longer context", list(`{"id":"a","created":2,"permission":[],"max_model_len":20}`, `{"id":"b"}`), false},
		{"a field more", list(`{"id":"a","created":1,"max_model_len":10,"root":"x"}`, `{"id":"b"}`), false},
		{"one less", list(first), false},
		{"one more", list(first, `{"id":"b"}`, `{"id":"c"}`), false},
		{"another", list(first, `{"id":"c"}`), false},
	} {
		if got := settle(old, tc.fresh); got != tc.same {
			t.Errorf("%s: same = %v", tc.name, got)
		}
		if tc.same && string(tc.fresh[0].Raw) != first {
			t.Errorf("%s: object is now %s", tc.name, tc.fresh[0].Raw)
		}
	}
	if settle(nil, list(first)) {
		t.Error("a first list is news")
	}
}

func TestOtherLists(t *testing.T) {
	for _, tc := range []struct {
		name   string
		read   func([]byte) (listed, error)
		body   string
		want   string
		native bool
	}{
		{"tgi", parseInfo, recorded(t, "shape_tgi_info").body, "meta-llama/Llama-3.1-8B-Instruct:0", false},
		{"no model", parseInfo, `{"version":"1"}`, `error no member "model_id"`, false},
		{"no page", parseInfo, `<html>`, `error no member "model_id"`, false},
		{"triton", parseRepository, recorded(t, "shape_triton_repository_index").body, "ensemble:0 postprocessing:0 preprocessing:0 tensorrt_llm:0", true},
		{"two versions", parseRepository, `[{"name":"m","version":"1","state":"READY"},{"name":"m","version":"2","state":"READY"},{"name":"n"},{},3]`, "m:0", true},
		{"empty", parseRepository, `[]`, "", true},
		{"an error", parseRepository, `{"error":"no"}`, "error repository index", false},
		{"too many", parseRepository, "[" + strings.Repeat("{},", maxListModels) + "{}]", "error more than", false},
	} {
		l, err := tc.read([]byte(tc.body))
		if part, isError := strings.CutPrefix(tc.want, "error "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v", tc.name, err)
			}
			continue
		}
		if got := describeModels(l.models); err != nil || got != tc.want || l.native != tc.native {
			t.Errorf("%s: got %q, native %v, %v", tc.name, got, l.native, err)
		}
	}
}

// TestC56_AdaptersByTheNameThatReachesThem: where the id of a list is not what
// an engine answers to, the served name is; the object stays as it was
// otherwise, and an adapter has the context of its parent.
func TestC56_AdaptersByTheNameThatReachesThem(t *testing.T) {
	l, err := parseModels([]byte(`{"data":[{"id":"base","max_model_len":4096},{"owned_by":"x", "id" : "fin" ,"parent":"base","root":"/a","max_model_len":null},` +
		`{"id":"own","parent":"base","max_model_len":512},{"id":"orphan","parent":"gone"},{"id":"` + strings.Repeat("x", maxModelBytes) + `","parent":"base"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	byID, ofParent := asServed(l.models, adapterByID, 0), asServed(l.models, adapterOfParent, 0)
	const long = 4
	if got := describeModels(byID[:long]); got != "base:4096 fin:4096 own:512 orphan:0" {
		t.Errorf("by id: %s", got)
	}
	if got := describeModels(ofParent[:long]); got != "base:4096 base:fin:4096 base:own:512 gone:orphan:0" {
		t.Errorf("of parent: %s", got)
	}
	if got := string(ofParent[1].Raw); got != `{"owned_by":"x", "id" : "base:fin" ,"parent":"base","root":"/a","max_model_len":null}` {
		t.Errorf("object %s", got)
	}
	if ofParent[long].ID != l.models[long].ID {
		t.Error("a name longer than any is made up")
	}
	if got := describeModels(asServed(l.models, adapterByID, 77)[:long]); got != "base:77 fin:77 own:77 orphan:77" {
		t.Errorf("one context for all: %s", got)
	}
	if string(l.models[1].Raw) == string(ofParent[1].Raw) || l.models[1].ID != "fin" {
		t.Error("the engine's own list was changed")
	}
}
