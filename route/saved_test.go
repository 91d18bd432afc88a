package route

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"penstock/engine"
)

func savedBytes(t testing.TB, p *Pool, keys ...ClassKey) []byte {
	t.Helper()
	table := &Table{Version: 7, Built: time.Unix(250, 0), Source: "here", Classes: make(map[ClassKey]*Class)}
	for _, k := range keys {
		table.Classes[k] = &Class{Pool: p}
	}
	var b bytes.Buffer
	if _, err := table.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func enginesOf(p *Pool) (list []*engine.Engine) {
	for i := range p.Candidates {
		list = append(list, p.Candidates[i].Engine)
	}
	return list
}

// A pool built on the saved one has its slots, whatever led to them; where an
// engine is gone, its slots alone are elsewhere.
func TestSavedTable(t *testing.T) {
	order := names(6)
	w := equalWeights(order)
	p := poolOf(w, order, nil, 0)
	w["e0002"] = 3
	p = poolOf(w, order, p, 100)
	w["e0004"] = 0.5
	p = poolOf(w, order, p, 200)
	plain, tools := ClassKey{Model: "m"}, ClassKey{Model: "m", Caps: engine.Tools, Tier: 2, Require: "gpu=h100"}
	data := savedBytes(t, p, plain, tools)
	if max := 6*p.Slots() + 4096; len(data) > max {
		t.Errorf("%d bytes for two classes of one pool", len(data))
	}
	s, err := ReadSaved(data)
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != 7 || s.Source != "here" || len(s.Classes) != 2 {
		t.Errorf("version %d, source %q, classes %v", s.Version, s.Source, s.Classes)
	}
	if n := moves(owners(p), owners(poolOf(w, order, nil, 0))); n == 0 {
		t.Fatal("the past made no difference: the test shows nothing")
	}
	for _, k := range []ClassKey{plain, tools} {
		again := NewPool(p.Candidates, &Component{}, s.Pool(k, enginesOf(p), 300), 300)
		for i := range p.slots {
			if p.slots[i].Draining(300) && p.slots[i].Previous != again.slots[i].Previous {
				t.Fatalf("slot %d does not remember who had it", i)
			}
		}
		if n := moves(owners(p), owners(again)); n > 0 {
			t.Errorf("%v: %d slots are elsewhere after a restart", k, n)
		}
	}
	less := candidatesOf(w, append(append([]string{}, order[:3]...), order[4:]...)...)
	again := NewPool(less, &Component{}, s.Pool(plain, enginesOf(&Pool{Candidates: less}), 300), 300)
	before, after := owners(p), owners(again)
	for i := range before {
		if before[i] != after[i] && before[i] != "e0003" {
			t.Fatalf("slot %d of %s went to %s", i, before[i], after[i])
		}
	}
	if s.Pool(ClassKey{Model: "other"}, enginesOf(p), 0) != nil || s.Pool(plain, nil, 0) != nil || (*Saved)(nil).Pool(plain, enginesOf(p), 0) != nil {
		t.Error("a pool out of nothing")
	}
}

// What was not written whole is not read in part.
func TestSavedTableDamaged(t *testing.T) {
	order := names(2)
	data := savedBytes(t, poolOf(equalWeights(order), order, nil, 0), ClassKey{Model: "m"})
	for name, damaged := range map[string][]byte{
		"empty":   {},
		"cut":     data[:len(data)-1],
		"halved":  data[:len(data)/2],
		"changed": append(append([]byte{}, data[:1000]...), append([]byte{data[1000] + 1}, data[1001:]...)...),
		"other":   []byte("hello"),
	} {
		if _, err := ReadSaved(damaged); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

func FuzzReadSaved(f *testing.F) {
	order := names(2)
	w := equalWeights(order)
	f.Add(savedBytes(f, poolOf(w, order, nil, 0), ClassKey{Model: "m"})[:64])
	f.Add([]byte(savedMagic + "{\"pools\":[{\"slots\":4,\"engines\":[{\"name\":\"a\"}]}],\"classes\":[{\"model\":\"m\"}]}\n" + strings.Repeat("\x00\x00\xff\xff\x00\x00", 4)))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := ReadSaved(seal(body))
		if err != nil {
			return
		}
		p := poolOf(w, order, nil, 0)
		for _, k := range s.Classes {
			if prev := s.Pool(k, enginesOf(p), 0); prev != nil {
				NewPool(p.Candidates, &Component{}, prev, 0)
			}
		}
	})
}

// seal makes body a file whose sum is right, so that the fuzzer gets past it.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint64(append([]byte{}, body...), xxhash.Sum64(body))
}
