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
	if rest, found := strings.CutPrefix(key, "discovery.engine."); found { // has the keys of [[engine]]
		reason, mayShow = unknownKey("engine." + rest)
		return strings.ReplaceAll(reason, " engine.", " discovery.engine."), mayShow
	}
	nearest, edits := nearestKey(key)
	table, leaf := splitKey(key)
	last := key[strings.LastIndexByte(key, '.')+1:]
	mayShow = !suggestsSecret(last) && !suggestsSecret(nearest)
	if meant := otherNames[key]; meant != "" {
		return "unknown key; what is meant may be " + meant, mayShow
	}
	_, nearestLeaf := splitKey(nearest)
	far := edits > float64(len(leaf))/2 && !strings.HasPrefix(plain(nearestLeaf), plain(leaf))
	if all := within(table); far && len(all) > 0 {
		return "unknown key; " + of(table) + " has " + strings.Join(all, ", "), mayShow
	}
	return "unknown key; the nearest is " + nearest, mayShow
}

// otherNames are keys that other gateways have, with ours for the same thing.
var otherNames = map[string]string{
	"engine.api_key": "engine.key_file, the path of a file with the key", "engine.token": "engine.key_file, the path of a file with the key",
	"engine.weight": "engine.capacity", "engine.timeout": "limits.first_content or limits.stall", "engine.host": "engine.url", "engine.address": "engine.url",
	"engine.base_url": "engine.url", "engine.api_base": "engine.url", "engine.type": "engine.dialect", "engine.region": "engine.cluster",
	"listen.port": "listen.address", "listen.host": "listen.address", "admin.port": "admin.address", "admin.host": "admin.address",
	"limits.timeout": "limits.first_content or limits.stall", "server": "listen", "backend": "engine", "backends": "engine", "upstream": "engine", "tenant.api_key": "tenant.key_hash, as penstock hash-key prints it",
}

// within lists the keys of a table, "" for the file's own.
func within(table string) (all []string) {
	for _, known := range keys() {
		if t, leaf := splitKey(known); t == table {
			all = append(all, leaf)
		}
	}
	return all
}

func of(table string) string {
	if table == "" {
		return "the file"
	}
	return "[" + table + "]"
}

func suggestsSecret(name string) bool {
	return !strings.HasSuffix(name, "_file") && slices.ContainsFunc([]string{"key", "secret", "token", "passw", "credential"},
		func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
}

// nearestKey is the documented key that key was most likely meant to be: the
// same name in another table or with _file behind it, else the fewest edits
// within the table.
//
// edits are how many it takes from key within its table.
func nearestKey(key string) (best string, edits float64) {
	table, leaf := splitKey(key)
	edits = -1
	for _, known := range keys() {
		knownTable, knownLeaf := splitKey(known)
		n := float64(distance(plain(leaf), plain(knownLeaf)))
		switch {
		case known == key+"_file":
			n = 0.25
		case knownTable == table:
		case n == 0:
			n = 0.5
		default:
			continue
		}
		if edits < 0 || n < edits {
			best, edits = known, n
		}
	}
	return best, edits
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
