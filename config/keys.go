package config

import (
	"reflect"
	"slices"
	"strings"
)

// keyField is the struct field behind a key.
type keyField struct {
	index  int
	size   bool // bytes, written "64MiB" or as a plain number
	secret bool // never shown; KEY_file reads it from a file
	hidden bool // never shown
	file   bool // a SecretFile: there is only KEY_file
	path   bool // of a file: from the configuration's directory where it is not absolute
}

// fields maps the keys of a configuration struct to its fields.
func fields(t reflect.Type) map[string]keyField {
	keys := make(map[string]keyField, t.NumField())
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
		if !t.Field(i).IsExported() {
			continue
		}
		if name == "" {
			panic("config: " + t.String() + "." + t.Field(i).Name + " has no toml key")
		}
		keys[name] = keyField{index: i, size: options == "size", secret: options == "secret", path: options == "path",
			hidden: options == "hidden" || options == "secret", file: options == "file"}
	}
	return keys
}

// keys lists every accepted key, dotted, tables included, in the order of File.
func keys() []string {
	var all []string
	file := reflect.TypeFor[File]()
	for i := range file.NumField() {
		table := file.Field(i).Tag.Get("toml")
		all = append(all, table)
		t := file.Field(i).Type
		if t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		for j := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(j).Tag.Get("toml"), ",")
			if name == "" { // not exported
				continue
			}
			if options != "file" {
				all = append(all, table+"."+name)
			}
			if options == "secret" || options == "file" {
				all = append(all, table+"."+name+"_file")
			}
		}
	}
	return all
}

// unknownKey says what is wrong with a key that no struct has. The value is
// not shown where the name suggests a secret.
func unknownKey(key string) (reason string, mayShow bool) {
	nearest := nearestKey(key)
	leaf := key[strings.LastIndexByte(key, '.')+1:]
	mayShow = !suggestsSecret(leaf) && !suggestsSecret(nearest)
	return "unknown key; the nearest is " + nearest, mayShow
}

func suggestsSecret(name string) bool {
	return !strings.HasSuffix(name, "_file") && slices.ContainsFunc([]string{"key", "secret", "token", "passw", "credential"},
		func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
}

// nearestKey is the documented key that key was most likely meant to be: the
// same name in another table or with _file behind it, else the fewest edits
// within the table.
func nearestKey(key string) string {
	table, leaf := splitKey(key)
	best, bestEdits := "", -1.0
	for _, known := range keys() {
		knownTable, knownLeaf := splitKey(known)
		edits := float64(distance(plain(leaf), plain(knownLeaf)))
		switch {
		case known == key+"_file":
			edits = 0.25
		case knownTable == table:
		case edits == 0:
			edits = 0.5
		default:
			continue
		}
		if bestEdits < 0 || edits < bestEdits {
			best, bestEdits = known, edits
		}
	}
	return best
}

// splitKey parts the first name from the rest: "" and engine, engine and name.
func splitKey(key string) (table, leaf string) {
	if table, leaf, found := strings.Cut(key, "."); found {
		return table, leaf
	}
	return "", key
}

// plain makes a key comparable with one spelled MaxInFlight or max-in-flight.
func plain(key string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
}

// distance is the number of single-byte edits from a to b, with both cut to a
// length that no key has.
func distance(a, b string) int {
	const longest = 64
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
