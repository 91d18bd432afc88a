package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// FileFault is one thing wrong with a file_sd file.
type FileFault struct {
	File  string
	Line  int // from 1; 0: the file as a whole
	Fault     // without a Key, Want says why the file cannot be read at all
}

func (f FileFault) String() string {
	where := f.File
	if f.Line > 0 {
		where += ":" + strconv.Itoa(f.Line)
	}
	if f.Key == "" {
		return where + ": " + f.Want
	}
	return where + ": " + f.Fault.String()
}

const (
	maxTargets   = 10_000
	maxFaults    = 100     // that are named
	maxSDFile    = 4 << 20 // bytes
	wantHostPort = "HOST:PORT, [IPV6]:PORT, or a URL"
)

// parseFileSD turns the text of a file_sd file into engines, each begun as
// template says, sorted by name. With a fault anywhere there are none.
func parseFileSD(file string, text []byte, template Config) ([]Config, []FileFault) {
	parse := parseGroupsYAML
	if filepath.Ext(file) == ".json" {
		parse = parseGroupsJSON
	}
	groups, err := parse(text)
	if err != nil {
		line := 0
		if at, ok := errors.AsType[*sdError](err); ok {
			line = at.line
		}
		return nil, []FileFault{{file, line, Fault{Want: err.Error()}}}
	}
	b := &sdBuilder{file: file, template: template, names: map[string]sdEngine{}, urls: map[string]sdEngine{}}
	for _, g := range groups {
		b.group(g)
	}
	if len(b.faults) > 0 {
		return nil, b.faults
	}
	slices.SortFunc(b.found, func(x, y Config) int { return strings.Compare(x.Name, y.Name) })
	return b.found, nil
}

// sdBuilder makes engines out of groups and collects what is wrong with them.
type sdBuilder struct {
	file     string
	template Config
	found    []Config
	names    map[string]sdEngine
	urls     map[string]sdEngine
	targets  int
	faults   []FileFault
}

// sdEngine is an engine with the line of its target.
type sdEngine struct {
	Config
	line int
}

func (b *sdBuilder) fault(line int, key, value, want string) {
	f := FileFault{b.file, line, Fault{key, value, want}}
	if len(b.faults) < maxFaults && !slices.Contains(b.faults, f) { // a label's fault shows at each target of the group
		b.faults = append(b.faults, f)
	}
}

func (b *sdBuilder) group(g sdGroup) {
	base, lines, scheme := b.template, map[string]int{}, "http"
	base.Labels = maps.Clone(base.Labels)
	for _, l := range g.labels {
		lines[l.name], lines["labels."+l.name] = l.line, l.line
		switch {
		case l.name == "__scheme__":
			scheme = l.text
		case strings.HasPrefix(l.name, "__"), l.text == "": // Prometheus's own; no label
		case isEngineKey(l.name):
			b.key(&base, l)
		default:
			if base.Labels == nil {
				base.Labels = map[string][]string{}
			}
			base.Labels[l.name] = splitList(l.text)
		}
	}
	if base.Name != "" && len(g.targets) > 1 {
		b.fault(lines["name"], "name", strconv.Quote(base.Name), fmt.Sprintf("one target in a group with a name, or no name: there are %d", len(g.targets)))
		return
	}
	for _, t := range g.targets {
		if b.targets++; b.targets > maxTargets {
			if b.targets == maxTargets+1 {
				b.fault(t.line, "targets", strconv.Quote(t.text), fmt.Sprintf("at most %d targets in one file", maxTargets))
			}
			return
		}
		b.target(base, scheme, t, lines)
	}
}

// target adds the engine at one target.
func (b *sdBuilder) target(c Config, scheme string, t sdText, lines map[string]int) {
	where, ok := t.text, strings.Contains(t.text, "://")
	if ok {
		_, where, _ = strings.Cut(t.text, "://")
		c.URL = strings.TrimRight(t.text, "/")
	} else if host, port, err := net.SplitHostPort(t.text); err == nil && host != "" && isNumber(port) && !strings.ContainsAny(host, "/?#@ ") {
		c.URL, ok = scheme+"://"+net.JoinHostPort(strings.ToLower(host), port), true
	}
	if !ok {
		b.fault(t.line, "targets", strconv.Quote(t.text), wantHostPort)
		return
	}
	if c.Name == "" {
		c.Name = nameOf(strings.ToLower(where))
	}
	c = c.fromTemplate()
	faults := c.Validate()
	for _, f := range faults {
		line := cmp.Or(lines[f.Key], t.line)
		if f.Key == "url" {
			f.Key, line = "targets", t.line
		}
		b.fault(line, f.Key, f.Value, f.Want)
	}
	if len(faults) > 0 {
		return
	}
	this := sdEngine{c, t.line}
	other, taken := b.names[c.Name]
	if !taken {
		other, taken = b.urls[c.URL]
	}
	switch {
	case !taken:
		b.names[c.Name], b.urls[c.URL] = this, this
		b.found = append(b.found, c)
	case reflect.DeepEqual(other.Config, c): // listed again, the same
	case other.URL == c.URL:
		b.fault(t.line, "targets", strconv.Quote(t.text), fmt.Sprintf("each target once: line %d has it with other labels", other.line))
	default:
		b.fault(cmp.Or(lines["name"], t.line), "name", strconv.Quote(c.Name), fmt.Sprintf("a name of its own: %s on line %d has this one", other.URL, other.line))
	}
}

// sdKeys are the keys of [[engine]] that a label of a file_sd file may give.
// Those that decide which secrets an engine is sent, or which files are read,
// are the operator's alone: the file may be written by somebody else.
var sdKeys = []string{"name", "cluster", "dialect", "models", "capabilities", "capacity", "max_in_flight", "replicas", "tls_server_name"}

// engineFields maps the keys of [[engine]] to the fields of Config.
var engineFields = func() map[string]int {
	fields := map[string]int{}
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); key != "" {
			fields[key] = i
		}
	}
	return fields
}()

// isEngineKey reports whether a label's name is a key of [[engine]], and not a
// label.
func isEngineKey(name string) bool {
	_, ok := engineFields[name]
	base, isFile := strings.CutSuffix(name, "_file")
	_, hasFile := engineFields[base]
	return ok || isFile && hasFile
}

// key sets one key of an engine from a label.
func (b *sdBuilder) key(c *Config, l sdLabel) {
	if !slices.Contains(sdKeys, l.name) {
		value := strconv.Quote(l.text)
		if l.name != "url" && l.name != "labels" {
			value = "(not shown)"
		}
		b.fault(l.line, l.name, value, "no such label: this key of [[engine]] stands in the configuration alone ([discovery.engine])")
		return
	}
	want := ""
	switch f := reflect.ValueOf(c).Elem().Field(engineFields[l.name]).Addr().Interface().(type) {
	case *string:
		*f = l.text
	case *[]string:
		*f = splitList(l.text)
	case **float64:
		v, err := strconv.ParseFloat(l.text, 64)
		if *f = &v; err != nil {
			want = "a number"
		}
	case *int:
		v, err := strconv.Atoi(l.text)
		if *f = v; err != nil || v < 1 {
			want = "a whole number, 1 or more"
		}
	default:
		panic("engine: no reading for the label " + l.name)
	}
	if want != "" {
		b.fault(l.line, l.name, strconv.Quote(l.text), want)
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// splitList reads a label's value as a list: what may be demanded of an engine
// has no commas in it.
func splitList(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
