package engine

import "slices"

// What discovery logs: changes, and each oddity once.

func (d *Discovery) logChange(before, after []Config) {
	added, removed := missing(after, before), missing(before, after)
	if len(added)+len(removed) > 0 {
		d.log.Info("engines", "added", someOf(added), "removed", someOf(removed), "now", len(after))
	}
}

// missing names those of a that are not in b.
func missing(a, b []Config) (names []string) {
	in := make(map[place]bool, len(b))
	for i := range b {
		in[b[i].place()] = true
	}
	for i := range a {
		if !in[a[i].place()] {
			names = append(names, a[i].Name)
		}
	}
	return names
}

func (d *Discovery) logHolds(before holds, p plan) {
	var fresh []string
	for at := range p.holds {
		if _, had := before[at]; !had {
			fresh = append(fresh, at.name)
		}
	}
	if len(fresh) > 0 {
		slices.Sort(fresh)
		d.log.Warn("discovery: no longer listed, too many at once to be sure; they stay for a while (POST /-/reload?force=1 drops them now)",
			"engines", someOf(fresh), "for", holdFor.String())
	}
}

// maxTold bounds what is remembered of the log.
const maxTold = 10_000

func (d *Discovery) logSkips(skips []skipped) {
	if len(d.told) > maxTold {
		clear(d.told)
	}
	var news []string
	for _, s := range skips {
		if !d.told[s.text] {
			d.told[s.text] = true
			news = append(news, s.text)
		}
	}
	if len(news) > 0 {
		d.log.Warn("discovery leaves engines out", "engines", someOf(news))
	}
}
