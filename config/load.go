package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
)

const (
	maxFile   = 4 << 20  // bytes of a configuration file
	maxSecret = 64 << 10 // bytes of a file that holds one value
)

// Load reads and checks the file at path, with the process's environment. The
// error is Faults with all that is wrong with it, or says that it cannot be read.
func Load(path string) (*File, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text, os.LookupEnv)
}

// LoadFleet reads the file for what it says of engines and of the network, for
// who plans with them and opens nothing: faults of listeners, tenants and of the
// files that a running gateway needs are passed over.
func LoadFleet(path string) (*File, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	file, faults := parse(path, text, os.LookupEnv)
	if file != nil {
		faults = slices.DeleteFunc(faults, func(f Fault) bool { return ofRunning(f.Key) })
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return file, nil
}

// ofRunning reports whether a key matters to a gateway that runs, and says
// nothing of engines and the network.
func ofRunning(key string) bool {
	table, leaf, _ := strings.Cut(key, ".")
	switch table {
	case "listen", "admin", "fleet", "log", "limits", "tenant", "alias", "discovery":
		return leaf != ""
	case "gateway":
		return leaf == "name" || leaf == "state_dir"
	case "routing":
		return leaf == "hash_key" || leaf == "hash_key_file"
	case "engine":
		return leaf == "key_file" || leaf == "ca_file"
	}
	return false
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return text, nil
}

// Parse checks a configuration text. name is what faults call it; files that
// it names are read from name's directory unless their path is absolute. The
// error is Faults, in the order of the lines.
func Parse(name string, text []byte, env func(string) (string, bool)) (*File, error) {
	file, faults := parse(name, text, env)
	if len(faults) > 0 {
		return nil, faults
	}
	return file, nil
}

// parse returns the file also where it has faults; nil where it is no TOML.
func parse(name string, text []byte, env func(string) (string, bool)) (*File, Faults) {
	if len(text) > maxFile {
		return nil, Faults{{File: name, Line: 1, Reason: "want a file of at most 4 MiB"}}
	}
	lines := indexLines(string(text))
	if lines.tooDeep > 0 {
		return nil, Faults{{File: name, Line: lines.tooDeep, Reason: fmt.Sprintf("nested deeper than %d levels", maxNesting)}}
	}
	var doc map[string]any
	if _, err := toml.Decode(string(text), &doc); err != nil {
		return nil, Faults{syntaxFault(name, err)}
	}
	d := &decoder{name: name, lines: lines, env: env, bad: map[string]bool{}}
	file := Default()
	d.table(place{}, doc, reflect.ValueOf(file).Elem())
	d.check(file)
	d.faults.sort()
	return file, d.faults
}

// syntaxFault has the library's position and words. There is no value: the
// text is not one yet.
func syntaxFault(name string, err error) Fault {
	fault := Fault{File: name, Line: 1, Reason: err.Error()}
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		fault.Line = max(at.Position.Line, 1)
		fault.Key = shorten(strings.Map(visible, at.LastKey))
		fault.Reason = "not TOML: " + strings.TrimSuffix(strings.Map(visible, at.Message), ".")
		if suggestsSecret(at.LastKey) { // the message may quote a part of the value
			fault.Reason = "not TOML: a value that cannot be read; a text needs quotes"
		}
	}
	return fault
}

func visible(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// secretFile reads the value of a key from the file that key_file names. The
// path is told also where the file cannot be read.
func (d *decoder) secretFile(p place, value any) (text, path string, ok bool) {
	path, ok = d.text(p, value)
	if !ok {
		return "", "", false
	}
	shown := quote(path)
	path = d.fromHere(path)
	text, err := ReadSecret(path)
	if err != nil {
		d.fault(p, shown, err.Error())
		return "", path, false
	}
	return text, path, true
}

// ReadSecret is a file's text without the line end that editors add. Only a
// regular file is read: a pipe could block a reload for ever.
func ReadSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return "", fmt.Errorf("want a readable file: %w", unwrapPath(err))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("want a readable file: %w", unwrapPath(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("want a readable file: %w", unwrapPath(err))
	}
	value := strings.TrimRight(string(text), "\r\n")
	if value == "" || len(text) > maxSecret {
		return "", errors.New("want a file of 1 byte to 64 KiB, one value in it")
	}
	return value, nil
}

// unwrapPath drops the path from a file error: the fault shows it already.
func unwrapPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
