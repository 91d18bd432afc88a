package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Skip says why an engine that is listed is not used. Closed.
type Skip uint8

const (
	SkipDuplicate Skip = iota // another entry lists the same server
	SkipNameTaken             // another server has the name
	SkipUnusable              // an answer of DNS that can be no engine
	skipCount
)

func (s Skip) String() string { return [...]string{"duplicate", "name_taken", "unusable"}[s] }

// skipped is one engine that is listed and not used.
type skipped struct {
	why  Skip
	text string // for the log
}

// merge joins the engines of the configuration with those that are listed, in
// order: who comes first has the name and the server. One server under two
// names would be counted twice, so a URL is in use once.
func merge(configured []Config, lists [][]Config) (all []Config, skips []skipped) {
	all = slices.Clone(configured)
	names, urls := make(map[string]*Config, len(all)), make(map[string]*Config, len(all))
	for i := range configured {
		names[configured[i].Name], urls[configured[i].URL] = &configured[i], &configured[i]
	}
	for _, list := range lists {
		for i := range list {
			c := &list[i]
			if same := urls[c.URL]; same != nil {
				if same.foundBy != c.foundBy {
					skips = append(skips, skipped{SkipDuplicate, fmt.Sprintf("%s of %s is %s of %s", c.URL, c.foundBy, same.Name, same.FoundBy())})
				}
				continue
			}
			if other := names[c.Name]; other != nil {
				skips = append(skips, skipped{SkipNameTaken, fmt.Sprintf("%s of %s: the name %s belongs to %s of %s", c.URL, c.foundBy, c.Name, other.URL, other.FoundBy())})
				continue
			}
			names[c.Name], urls[c.URL] = c, c
			all = append(all, *c)
		}
	}
	return all, skips
}

// Lost names the engines of old that next does not have and their share of
// old's capacity. An engine that is still there is no loss, whatever its
// capacity says now: that was written by hand, a lost entry may not be.
func Lost(old, next []Config) (gone []string, share float64) {
	kept := make(map[string]bool, len(next))
	for i := range next {
		kept[next[i].Name] = true
	}
	known, n := 0.0, 0
	for i := range old {
		if c := old[i].Capacity; c != nil {
			known += *c
			n++
		}
	}
	mean := 1.0
	if known > 0 {
		mean = known / float64(n)
	}
	lost, all := 0.0, 0.0
	for i := range old {
		c := mean
		if old[i].Capacity != nil {
			c = *old[i].Capacity
		}
		all += c
		if !kept[old[i].Name] {
			gone = append(gone, old[i].Name)
			lost += c
		}
	}
	if all == 0 {
		return gone, 0
	}
	return gone, lost / all
}

// someOf lists the first names: a fleet has thousands.
func someOf(names []string) string {
	const shown = 10
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
}
