package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WhatIf is a change of the fleet or of the demand that is asked about.
type WhatIf struct {
	Text   string
	Demand float64 // times as much; 0: as it is
	change func(*Fleet) error
}

// WhatIfHelp says what can be asked.
const WhatIfHelp = `add N in REGION [PROFILE]   so many engines more, like those there or of a shipped profile
lose REGION|ENGINE [at T] [for D]   down, from T on (0s), for D or for good
slow ENGINE|REGION by F [at T] [for D]   F times slower
demand x F   so many times the requests
bind REGION   what enters there has to be served there: what a residency rule costs`

// ParseWhatIf reads one such question.
func ParseWhatIf(text string) (*WhatIf, error) {
	w := &WhatIf{Text: text}
	bad := func(why string) error {
		return fmt.Errorf("what-if %q: %s; there are:\n%s", text, why, WhatIfHelp)
	}
	words := slices.DeleteFunc(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ' ' || r == ':' || r == ',' }), func(s string) bool {
		return s == "engines" || s == "engine" || s == "in" || s == "x" || s == "by"
	})
	if len(words) < 2 {
		return nil, bad("too short")
	}
	switch words[0] {
	case "demand":
		f, err := strconv.ParseFloat(strings.TrimPrefix(words[1], "x"), 64)
		if err != nil || !(f > 0) {
			return nil, bad("want a factor above 0")
		}
		w.Demand = f
	case "add":
		n, err := strconv.Atoi(words[1])
		if err != nil || n < 1 || len(words) < 3 {
			return nil, bad("want a number of engines and a region")
		}
		w.change = func(f *Fleet) error { return f.addLike(n, words[2], words[3:]) }
	case "bind":
		w.change = func(f *Fleet) error { return f.bind(words[1]) }
	case "lose", "slow":
		x := Fault{Kind: "down"}
		rest := words[2:]
		if words[0] == "slow" {
			if len(rest) < 1 {
				return nil, bad("want a factor")
			}
			var err error
			if x.Factor, err = strconv.ParseFloat(rest[0], 64); err != nil || !(x.Factor > 0) {
				return nil, bad("want a factor above 0")
			}
			x.Kind, rest = "slow", rest[1:]
		}
		for len(rest) >= 2 {
			d, err := time.ParseDuration(rest[1])
			switch {
			case err != nil || d < 0:
				return nil, bad("want a time such as 10m")
			case rest[0] == "at":
				x.At = Duration(d)
			case rest[0] == "for":
				x.For = Duration(d)
			default:
				return nil, bad("unknown word " + rest[0])
			}
			rest = rest[2:]
		}
		if len(rest) > 0 {
			return nil, bad("unknown word " + rest[0])
		}
		w.change = func(f *Fleet) error { return f.befallen(x, words[1]) }
	default:
		return nil, bad("unknown word " + words[0])
	}
	return w, nil
}

// Of is the fleet with the change; the one that is given stays as it is.
func (w *WhatIf) Of(f *Fleet) (*Fleet, error) {
	next := *f
	next.Engines, next.Faults, next.Regions = slices.Clone(f.Engines), slices.Clone(f.Faults), slices.Clone(f.Regions)
	if w.change != nil {
		if err := w.change(&next); err != nil {
			return nil, fmt.Errorf("what-if %q: %w", w.Text, err)
		}
	}
	return &next, next.Complete()
}

func (f *Fleet) bind(region string) error {
	for i := range f.Regions {
		if strings.HasPrefix(f.Regions[i].Name, region) {
			f.Regions[i].Bound = true
			return nil
		}
	}
	return fmt.Errorf("no region is called %s", region)
}

func (f *Fleet) addLike(n int, region string, profile []string) error {
	at := slices.IndexFunc(f.Engines, func(e EngineSpec) bool { return strings.HasPrefix(e.Region, region) })
	if at < 0 {
		return fmt.Errorf("no engine is in a region called %s", region)
	}
	like := f.Engines[at]
	if len(profile) > 0 {
		like.Profile, like.Step, like.PerSeq, like.PerToken, like.PrefillStep = profile[0], 0, 0, 0, 0
	}
	like.Name, like.Count = "added-"+like.Region, n
	f.Engines = append(f.Engines, like)
	return nil
}

func (f *Fleet) befallen(x Fault, who string) error {
	for _, e := range f.Engines {
		if e.Name == who {
			x.Engine = who
			f.Faults = append(f.Faults, x)
			return nil
		}
	}
	for _, r := range f.Regions {
		if strings.HasPrefix(r.Name, who) {
			x.Region = r.Name
			f.Faults = append(f.Faults, x)
			return nil
		}
	}
	return fmt.Errorf("neither an engine nor a region is called %s", who)
}
