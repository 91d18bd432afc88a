package config

import (
	"reflect"
	"slices"
	"strings"
)

// notYet are the documented keys and tables that this build does not act on.
// An issue that builds what one promises moves it into its package's Config.
var notYet = []string{
	"gateway.replicas", "gateway.state_dir",
	"listen.tls_cert", "listen.tls_key",
	"admin.metrics_address",
	"routing.policy", "routing.period",
	"network",
	"engine.profile", "engine.key_file", "engine.pass_credentials", "engine.replicas", "engine.pass_headers", "engine.ca_file",
	"alias", "discovery", "tenant",
	"limits.queue_entries", "limits.queue_wait",
	"fleet",
}

// keyField is the struct field behind a key.
type keyField struct {
	index  int
	size   bool // bytes, written "64MiB" or as a plain number
	secret bool // never shown; KEY_file reads it from a file
}

// fields maps the keys of a configuration struct to its fields.
func fields(t reflect.Type) map[string]keyField {
	keys := make(map[string]keyField, t.NumField())
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ",")
		if name == "" {
			panic("config: " + t.String() + "." + t.Field(i).Name + " has no toml key")
		}
		keys[name] = keyField{index: i, size: options == "size", secret: options == "secret"}
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
			all = append(all, table+"."+name)
			if options == "secret" {
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
	switch {
	case slices.Contains(notYet, key):
		return "this build does not have " + key + " yet: take it out", mayShow
	case slices.Contains(notYet, nearest):
		return "unknown key; the nearest is " + nearest + ", which this build does not have yet", mayShow
	}
	return "unknown key; the nearest is " + nearest, mayShow
}

func suggestsSecret(name string) bool {
	return !strings.HasSuffix(name, "_file") && slices.ContainsFunc([]string{"key", "secret", "token", "passw", "credential"},
		func(word string) bool { return strings.Contains(strings.ToLower(name), word) })
}

// nearestKey is the documented key that key was most likely meant to be: the
// same name in another table, else the fewest edits within the table.
func nearestKey(key string) string {
	table, leaf := splitKey(key)
	best, bestEdits := "", -1.0
	for _, known := range append(keys(), notYet...) {
		knownTable, knownLeaf := splitKey(known)
		edits := float64(distance(plain(leaf), plain(knownLeaf)))
		switch {
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
