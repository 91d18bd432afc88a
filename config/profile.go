package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"penstock/balancer/profile"
	"penstock/engine"
)

const wantProfile = "want a table like { base_ms = 0, slope_ms = 50, limit = 40 }, the path of a profile file (FILE.toml), or the name of a shipped profile"

// profile decodes engine.profile: a table, a file, or a name. Nil where it
// cannot be read, with its fault noted.
func (d *decoder) profile(p place, value any) *engine.Profile {
	switch v := value.(type) {
	case map[string]any:
		return d.profileTable(p, v, nil)
	case string:
		text, ok := d.text(p, v)
		if !ok {
			return nil
		}
		if filepath.Ext(text) != ".toml" {
			shipped, ok := profile.Shipped(text)
			if !ok {
				reason := wantProfile
				if near := nearestProfile(text); near != "" {
					reason += "; did you mean " + near + "?"
				}
				d.fault(p, quote(text), reason)
				return nil
			}
			return shipped
		}
		read, err := LoadProfile(d.fromHere(text))
		if faults, ok := errors.AsType[Faults](err); ok {
			for _, f := range faults {
				d.fault(p, quote(text), "want a profile file without faults: "+f.String())
			}
		} else if err != nil {
			d.fault(p, quote(text), "want a readable file: "+unwrapPath(err).Error())
		}
		if err != nil {
			return nil
		}
		return read
	}
	d.fault(p, show(value), wantProfile)
	return nil
}

// nearestProfile is the shipped profile that name was most likely meant to be.
func nearestProfile(name string) string {
	best, edits := "", 0
	for _, p := range profile.Defaults {
		if n := distance(plain(name), plain(p.Name)); best == "" || n < edits {
			best, edits = p.Name, n
		}
	}
	if edits > len(name)/2 {
		return ""
	}
	return best
}

// profileNotes are the keys of a profile file that only people read.
var profileNotes = []string{"model", "gpu", "engine", "measured", "note"}

// profileTable decodes a profile; notes are keys that are texts for people.
func (d *decoder) profileTable(p place, doc map[string]any, notes []string) *engine.Profile {
	var out engine.Profile
	fields := map[string]*float64{
		"base_ms": &out.Base, "slope_ms": &out.Slope, "limit": &out.Limit,
		"step_ms": &out.Step, "per_seq_ms": &out.PerSeq, "per_token_ms": &out.PerToken, "slots": &out.Slots,
	}
	sound := true
	for _, key := range d.inOrder(p, doc) {
		at, value := p.member(key), doc[key]
		field, isNumber := fields[key]
		switch {
		case isNumber:
			x, ok := d.number(at, value)
			*field, sound = x, sound && ok
		case key == "points":
			ok := false
			out.Points, ok = d.pairs(at, value)
			sound = sound && ok
		case slices.Contains(notes, key):
			_, ok := d.text(at, value)
			sound = sound && ok
		default:
			d.fault(at, show(value), "unknown key; a profile has base_ms, slope_ms and limit, or points, or step_ms, per_seq_ms, per_token_ms and slots")
			sound = false
		}
	}
	if !sound {
		d.bad[p.path] = true
		return nil
	}
	return &out
}

// pairs decodes [[load, latency], ...].
func (d *decoder) pairs(p place, value any) ([][2]float64, bool) {
	const want = "want pairs of load and latency, like [[0, 40], [20, 60]]"
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		d.fault(p, show(value), want)
		return nil, false
	}
	pairs, whole := make([][2]float64, len(list)), true
	for i, e := range list {
		pair, ok := e.([]any)
		if !ok || len(pair) != 2 {
			d.fault(p.element(i), show(e), want)
			whole = false
			continue
		}
		for k, v := range pair {
			x, ok := d.number(p.element(i), v)
			pairs[i][k], whole = x, whole && ok
		}
	}
	return pairs, whole
}

// LoadProfile reads a profile file. The error is Faults, or says that it cannot
// be read.
func LoadProfile(path string) (*engine.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, Faults{{File: path, Line: 1, Reason: "want a file of at most 1 MiB"}}
	}
	lines := indexLines(string(text))
	if lines.tooDeep > 0 {
		return nil, Faults{{File: path, Line: lines.tooDeep, Reason: fmt.Sprintf("nested deeper than %d levels", maxNesting)}}
	}
	var doc map[string]any
	if _, err := toml.Decode(string(text), &doc); err != nil {
		return nil, Faults{syntaxFault(path, err)}
	}
	d := &decoder{name: path, lines: lines, env: os.LookupEnv, bad: map[string]bool{}}
	p := d.profileTable(place{}, doc, profileNotes)
	if p != nil {
		for _, fault := range p.Validate() {
			at := place{}
			if fault.Key != "" {
				at = at.member(fault.Key)
			}
			d.add(at, printable(fault.Value), "want "+fault.Want)
		}
	}
	if len(d.faults) > 0 {
		d.faults.sort()
		for i := range d.faults {
			d.faults[i].Line = max(d.faults[i].Line, 1)
		}
		return nil, d.faults
	}
	p.Name = strings.TrimSuffix(filepath.Base(path), ".toml")
	return p, nil
}
