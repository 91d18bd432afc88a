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
