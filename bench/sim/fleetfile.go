package sim

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// ExampleFleet is a fleet file to start from, and the fleet of who names none:
// three regions with two kinds of GPU.
//
//go:embed fleets/three-regions.toml
var ExampleFleet string

// ReadFleet reads a fleet file, strictly; a fault names file, line and key.
func ReadFleet(path string) (*Fleet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseFleet(string(text), path)
}

// ParseFleet reads the text of a fleet file; path stands for it in faults.
func ParseFleet(text, path string) (*Fleet, error) {
	f := &Fleet{}
	md, err := toml.Decode(text, f)
	if broken, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, fmt.Errorf("%s:%d: %s", path, broken.Position.Line, broken.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		key := unknown[0].String()
		return nil, fmt.Errorf("%s:%d: %s: no such key", path, lineOfKey(text, key), key)
	}
	err = f.Complete()
	if bad, ok := errors.AsType[*fleetFault](err); ok {
		return nil, fmt.Errorf("%s:%d: %w", path, lineOfTable(text, bad.table, bad.index), bad)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// fleetFault is what is wrong with one [[table]] of a fleet file.
type fleetFault struct {
	table  string
	index  int // from 0
	reason string
}

func (f *fleetFault) Error() string { return fmt.Sprintf("%s %d: %s", f.table, f.index+1, f.reason) }

func faultOf(table string, index int, format string, args ...any) error {
	return &fleetFault{table, index, fmt.Sprintf(format, args...)}
}

// lineOfTable is where the index-th [[table]] begins.
func lineOfTable(text, table string, index int) int {
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.ReplaceAll(strings.TrimSpace(line), " ", ""), "[["+table+"]]") {
			if index == 0 {
				return n + 1
			}
			index--
		}
	}
	return 1
}

// lineOfKey is where the last word of a key first begins a line.
func lineOfKey(text, key string) int {
	word := key[strings.LastIndexByte(key, '.')+1:]
	for n, line := range strings.Split(text, "\n") {
		line = strings.Trim(strings.TrimSpace(line), "[] ")
		if rest, ok := strings.CutPrefix(line, word); ok && (rest == "" || strings.ContainsRune(" =.", rune(rest[0]))) {
			return n + 1
		}
	}
	return 1
}
