package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"penstock/engine"
)

// decoder puts a parsed TOML document into a File and collects what is wrong.
type decoder struct {
	name   string // of the file, as the user called it
	lines  *lineIndex
	env    func(string) (string, bool)
	faults Faults
	bad    map[string]bool // paths whose value could not be decoded
}

// place is where in the document a value stands.
type place struct {
	path   string // with the index of each array element: engine[0].url
	key    string // as documentation has it: engine.url
	secret bool
}

func (p place) member(key string) place {
	return place{path: member(p.path, key), key: member(p.key, key)}
}

func (p place) element(i int) place {
	p.path = element(p.path, i)
	return p
}

// fault notes that the value at p cannot be decoded; shown is how it may be
// shown.
func (d *decoder) fault(p place, shown, reason string) {
	d.bad[p.path] = true
	d.add(p, shown, reason)
}

func (d *decoder) add(p place, shown, reason string) {
	if p.secret && shown != "" {
		shown = hidden
	}
	d.faults = append(d.faults, Fault{File: d.name, Line: d.lines.line(p.path), Key: shorten(p.key), Value: shown, Reason: reason})
}

// table decodes into a struct whose every field has a toml key.
func (d *decoder) table(at place, doc map[string]any, into reflect.Value) {
	known := fields(into.Type())
	for _, key := range d.inOrder(at, doc) {
		value, p := doc[key], at.member(key)
		base, isFile := strings.CutSuffix(key, "_file")
		switch f, ok := known[key]; {
		case ok && !f.file:
			p.secret = f.hidden
			d.value(p, value, into.Field(f.index), f)
		case isFile && known[base].secret:
			if _, twice := doc[base]; twice {
				d.fault(p, "", "want either "+member(at.key, base)+" or "+p.key)
				continue
			}
			if text, _, ok := d.secretFile(p, value); ok {
				into.Field(known[base].index).SetString(text)
			}
		case isFile && known[base].file:
			text, path, _ := d.secretFile(p, value)
			into.Field(known[base].index).Set(reflect.ValueOf(engine.SecretFile{Path: path, Text: Secret(text)}))
		default:
			d.unknown(p, value)
		}
	}
}

// inOrder lists a table's keys as they stand in the file.
func (d *decoder) inOrder(at place, doc map[string]any) []string {
	return slices.SortedFunc(maps.Keys(doc), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.lines.line(member(at.path, a)), d.lines.line(member(at.path, b))), strings.Compare(a, b))
	})
}

// unknown is the fault of a key without a field; for an array of tables one
// for each element, so that all its lines are named.
func (d *decoder) unknown(p place, value any) {
	if tables, ok := value.([]map[string]any); ok {
		for i := range tables {
			d.unknown(p.element(i), tables[i])
		}
		return
	}
	reason, mayShow := unknownKey(p.key)
	p.secret = !mayShow
	shown := show(value)
	if _, isTable := value.(map[string]any); isTable {
		shown = ""
	}
	d.fault(p, shown, reason)
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value decodes one value into a field by the field's type.
func (d *decoder) value(p place, value any, into reflect.Value, f keyField) {
	switch t := into.Type(); {
	case t == reflect.TypeFor[time.Duration]():
		d.parsed(p, value, into, func(v any) (int64, error) { n, err := parseDuration(v); return int64(n), err })
	case f.size:
		d.parsed(p, value, into, parseSize)
	case reflect.PointerTo(t).Implements(textUnmarshaler):
		if s, ok := d.text(p, value); ok {
			if err := into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
				d.fault(p, quote(s), err.Error())
			}
		}
	case t.Kind() == reflect.Slice && reflect.PointerTo(t.Elem()).Implements(textUnmarshaler):
		d.unmarshaled(p, value, into)
	case t.Kind() == reflect.Bool:
		if b, ok := value.(bool); ok {
			into.SetBool(b)
		} else {
			d.fault(p, show(value), "want true or false, without quotes")
		}
	case t.Kind() == reflect.String:
		if s, ok := d.text(p, value); ok {
			if f.path {
				s = d.fromHere(s)
			}
			into.SetString(s)
		}
	case t.Kind() == reflect.Int:
		d.parsed(p, value, into, parseInt)
	case t == reflect.TypeFor[*engine.Profile]():
		if profile := d.profile(p, value); profile != nil {
			into.Set(reflect.ValueOf(profile))
		}
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Float64:
		if x, ok := d.number(p, value); ok {
			into.Set(reflect.ValueOf(&x))
		}
	case t == reflect.TypeFor[[]string]():
		if list, ok := d.texts(p, value); ok {
			into.Set(reflect.ValueOf(list))
		}
	case t == reflect.TypeFor[map[string][]string]():
		d.labels(p, value, into)
	case t == reflect.TypeFor[map[string]map[string]float64]():
		d.matrix(p, value, into)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		d.tables(p, value, into)
	case t.Kind() == reflect.Struct:
		doc, ok := value.(map[string]any)
		if !ok {
			d.fault(p, show(value), "want one table ["+p.key+"]")
			return
		}
		d.table(p, doc, into)
	default:
		panic("config: no decoding for " + t.String())
	}
}

// unmarshaled decodes a text, or a list of texts, whose type reads itself.
func (d *decoder) unmarshaled(p place, value any, into reflect.Value) {
	raw, isList := value.([]any)
	if !isList {
		raw = []any{value}
	}
	list := reflect.MakeSlice(into.Type(), len(raw), len(raw))
	for i, e := range raw {
		at := p
		if isList {
			at = p.element(i)
		}
		s, ok := d.text(at, e)
		if !ok {
			continue
		}
		if err := list.Index(i).Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			d.fault(at, quote(s), err.Error())
		}
	}
	into.Set(list)
}

// tables decodes [[key]], one struct an element.
func (d *decoder) tables(p place, value any, into reflect.Value) {
	var docs []map[string]any
	switch v := value.(type) {
	case []map[string]any:
		docs = v
	case []any: // key = [{...}, {...}]
		for i, e := range v {
			doc, ok := e.(map[string]any)
			if !ok {
				d.fault(p.element(i), show(e), "want a table [["+p.key+"]]")
				continue
			}
			docs = append(docs, doc)
		}
		if len(docs) < len(v) {
			d.bad[p.path] = true
			return
		}
	default:
		d.fault(p, show(value), "want [["+p.key+"]], with two brackets, one for each "+p.key)
		return
	}
	list := reflect.MakeSlice(into.Type(), len(docs), len(docs))
	for i, doc := range docs {
		d.table(p.element(i), doc, list.Index(i))
	}
	into.Set(list)
}

// parsed decodes by a function whose error says what would be right.
func (d *decoder) parsed(p place, value any, into reflect.Value, parse func(any) (int64, error)) {
	if s, ok := value.(string); ok {
		if value, ok = d.text(p, s); !ok {
			return
		}
	}
	n, err := parse(value)
	if err != nil {
		d.fault(p, show(value), err.Error())
		return
	}
	into.SetInt(n)
}

func parseInt(v any) (int64, error) {
	n, ok := v.(int64)
	switch {
	case !ok:
		return 0, fmt.Errorf("want a whole number, without quotes")
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, fmt.Errorf("want a whole number of at most %d", math.MaxInt32)
	}
	return n, nil
}

func (d *decoder) number(p place, value any) (float64, bool) {
	switch v := value.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	d.fault(p, show(value), "want a number, without quotes")
	return 0, false
}

// text is a string with its variables expanded.
func (d *decoder) text(p place, value any) (string, bool) {
	raw, ok := value.(string)
	if !ok {
		d.fault(p, show(value), "want a text in quotes")
		return "", false
	}
	s, err := expand(raw, d.env)
	if err != nil {
		d.fault(p, quote(raw), err.Error())
		return "", false
	}
	return s, true
}

// fromHere is the path of a file that the configuration names.
func (d *decoder) fromHere(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.name), path)
}

func (d *decoder) texts(p place, value any) ([]string, bool) {
	raw, ok := value.([]any)
	if !ok {
		d.fault(p, show(value), `want a list of texts like ["a", "b"]`)
		return nil, false
	}
	list, whole := make([]string, 0, len(raw)), true
	for i, e := range raw {
		s, ok := d.text(p.element(i), e)
		list, whole = append(list, s), whole && ok
	}
	return list, whole
}

// labels decodes a table of names to a text or a list of texts.
func (d *decoder) labels(p place, value any, into reflect.Value) {
	doc, ok := value.(map[string]any)
	if !ok {
		d.fault(p, show(value), `want a table like { residency = "eu", gpu = ["h100", "h200"] }`)
		return
	}
	labels := make(map[string][]string, len(doc))
	for _, name := range d.inOrder(p, doc) {
		at := p.member(name)
		if one, ok := doc[name].(string); ok {
			if s, ok := d.text(at, one); ok {
				labels[name] = []string{s}
			}
		} else if list, ok := doc[name].([]any); ok {
			if list, ok := d.texts(at, list); ok {
				labels[name] = list
			}
		} else {
			d.fault(at, show(doc[name]), `want a text in quotes, or a list of them`)
		}
	}
	into.Set(reflect.ValueOf(labels))
}

// matrix decodes a table of tables of numbers.
func (d *decoder) matrix(p place, value any, into reflect.Value) {
	const want = `want a table of tables like { us-east = { us-east = 1, eu-west = 82 } }`
	doc, ok := value.(map[string]any)
	if !ok {
		d.fault(p, show(value), want)
		return
	}
	rows := make(map[string]map[string]float64, len(doc))
	for _, name := range d.inOrder(p, doc) {
		at := p.member(name)
		inner, ok := doc[name].(map[string]any)
		if !ok {
			d.fault(at, show(doc[name]), want)
			continue
		}
		rows[name] = make(map[string]float64, len(inner))
		for _, column := range d.inOrder(at, inner) {
			if x, ok := d.number(at.member(column), inner[column]); ok {
				rows[name][column] = x
			}
		}
	}
	into.Set(reflect.ValueOf(rows))
}
