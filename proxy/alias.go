package proxy

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"penstock/engine"
)

// Alias is one [[alias]] table: another name for a model.
type Alias struct {
	Name  string `toml:"name"`  // what clients ask for
	Model string `toml:"model"` // what engines serve
}

// Validate returns the faults of one table. Whether aliases fit together is
// for the file's owner to check.
func (a Alias) Validate() []engine.Fault {
	var faults []engine.Fault
	for _, v := range [...]struct{ key, text string }{{"name", a.Name}, {"model", a.Model}} {
		if v.text == "" || len(v.text) > maxAliasBytes || !utf8.ValidString(v.text) || strings.ContainsFunc(v.text, unicode.IsControl) {
			faults = append(faults, engine.Fault{Key: v.key, Value: strconv.Quote(v.text), Want: "a model's name, 1 to 512 bytes without control characters"})
		}
	}
	if a.Name != "" && a.Name == a.Model {
		faults = append(faults, engine.Fault{Key: "model", Value: strconv.Quote(a.Model), Want: "a name other than the alias has itself"})
	}
	return faults
}

const maxAliasBytes = 512

func (s *settings) setAliases(aliases []Alias) {
	s.aliases = make(map[string]string, len(aliases))
	for _, a := range aliases {
		s.aliases[a.Name] = a.Model
	}
	s.listed = slices.SortedFunc(slices.Values(aliases), func(a, b Alias) int { return strings.Compare(a.Name, b.Name) })
}

// withAliases adds to a sorted model list the aliases of the models on it,
// each with its model's fields. An alias hides a model of the same name:
// that is whom a request by that name gets.
func (s *settings) withAliases(models []engine.Model) []engine.Model {
	if len(s.listed) == 0 {
		return models
	}
	all := slices.DeleteFunc(slices.Clone(models), func(m engine.Model) bool { return s.aliases[m.ID] != "" })
	for _, a := range s.listed {
		for _, m := range models {
			if m.ID == a.Model {
				m.ID = a.Name
				m.Raw = renamed(m.Raw, a.Name)
				all = append(all, m)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b engine.Model) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// renamed is a model's object with another id; nil where it has none.
func renamed(raw []byte, id string) []byte {
	var j jsonReader
	if j.begin(raw); j.kind() != '{' {
		return nil
	}
	j.enter()
	for {
		name, err := j.next()
		if err != nil || name == nil {
			return nil
		}
		isID := string(name) == "id"
		if j.value() != nil {
			return nil
		}
		if isID {
			out := append(bytes.Clone(raw[:j.at-len(j.raw)]), appendJSONString(nil, id)...)
			return append(out, raw[j.at:]...)
		}
	}
}

// spliceModel puts the engine's name for the model in the place of the alias.
// Every other byte of the body stays.
func (x *exchange) spliceModel() *apiError {
	name := []byte(x.env.Model)
	if x.ep.api != APIForm {
		name = appendJSONString(nil, x.env.Model)
	}
	spliced := x.body.splice(x.env.ModelFrom, x.env.ModelTo, name)
	if spliced == nil {
		return errNoMemory()
	}
	x.body = spliced
	return nil
}

// handedOn is the part of a query that engines see.
func handedOn(raw string, names []string) (string, error) {
	if raw == "" || names == nil {
		return "", nil
	}
	const longest = 4 << 10
	values, err := url.ParseQuery(raw)
	if err != nil || len(raw) > longest {
		return "", badRequest("", "the query cannot be read, or is longer than %d bytes", longest)
	}
	for name := range values {
		if !slices.Contains(names, name) {
			delete(values, name)
		}
	}
	return values.Encode(), nil
}
